"""What a catalog costs jobs: an idle round with and without one, and a comparison of every entry.

    python benchmarks/catalog_sync.py --tables 1000

Needs moto (`pip install '.[bench]'`), which answers as the Glue Data Catalog in this process: the figures hold this
project's own work, and moto's, but no network.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import boto3
import moto
import workload
from botocore.client import BaseClient
from measuring import WrongResultError, print_figures
from small_folders import MIX, SmallFolders
from workload import Workload

from airflow_gddl.contract.actions import CompareCatalogs
from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job

GLUE = CatalogSpec(kind="glue", region="eu-west-1")
SIDES = ("without", "with")
CALL = "_make_api_call"
"""The method of boto3's clients that makes every request."""


@dataclass
class Timed:
    """Seconds of a round, and requests to the catalog in it."""

    results: list[JobResult]
    seconds: float
    requests: int


@dataclass
class Jobs:
    """Jobs of both sides, in this process; `requests`: names of all requests to Glue."""

    folders: SmallFolders
    requests: list[str] = field(default_factory=list)

    def run(self, side: str, number: int, options: JobOptions | None = None) -> Timed:
        job, before, began = self._job(side, number, options), len(self.requests), time.perf_counter()
        outcomes = run_job(job, Runtime(storage=Storage(), spark=NoSpark()), lambda _: None)
        seconds = time.perf_counter() - began
        return Timed([outcome.result for outcome in outcomes], seconds, len(self.requests) - before)

    def _job(self, side: str, number: int, options: JobOptions | None) -> JobSpec:
        job = self.folders.job(side, f"{side}-{number:04d}", self.folders.tier("one", 1))
        catalog = "main" if side == "with" else None
        tables = tuple(replace(spec, catalog=catalog, settle="0s") for spec in job.tables)
        return replace(job, tables=tables, catalogs={"main": GLUE}, options=options or JobOptions())


@contextmanager
def glue(requests: list[str]) -> Iterator[Any]:
    """A Glue Data Catalog in this process; each request to it is noted."""
    real = getattr(BaseClient, CALL)

    def call(self: Any, name: str, parameters: Any) -> Any:
        requests.append(name)
        return real(self, name, parameters)

    environ = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
    with patch.dict(os.environ, environ), patch.object(BaseClient, CALL, call), moto.mock_aws():
        yield boto3.client("glue", region_name=GLUE.region)


def require(timed: Timed, status: str, *, requests: int | None = None) -> Timed:
    """
    Raises:
        WrongResultError: another status of a table, a warning of the catalog, or another number of requests.
    """
    wrong = [
        one.table for one in timed.results if one.status != status or any("CATALOG" in w.code for w in one.warnings)
    ]
    if wrong or (requests is not None and timed.requests != requests):
        raise WrongResultError(f"not {status}: {wrong[:3]}; {timed.requests} requests")
    return timed


def measure(jobs: Jobs, client: Any, rounds: int) -> dict[str, Any]:
    """Load, idle rounds of both sides in turn, and one comparison of all entries."""
    count = len(jobs.folders.names)
    for side in SIDES:
        jobs.folders.land(side, jobs.folders.made.load_files())
        require(jobs.run(side, 0), "succeeded")
    entries = sum(len(page["TableList"]) for page in client.get_paginator("get_tables").paginate(DatabaseName="bench"))
    if entries != count:
        raise WrongResultError(f"{entries} entries of {count} tables")
    idle: dict[str, list[float]] = {side: [] for side in SIDES}
    for number in range(1, rounds + 1):
        for side in SIDES:
            idle[side].append(require(jobs.run(side, number), "skipped", requests=0).seconds)
    compared = require(jobs.run("with", rounds + 1, JobOptions(action=CompareCatalogs())), "succeeded")
    median = {side: statistics.median(seconds) for side, seconds in idle.items()}
    return {
        "tables": count,
        "idle_round_seconds": round(median["without"], 3),
        "idle_round_with_catalog_seconds": round(median["with"], 3),
        "idle_sync_ms_per_table": round(1000 * (median["with"] - median["without"]) / count, 3),
        "idle_requests": 0,
        "compare_ms_per_table": round(1000 * compared.seconds / count, 2),
        "compare_requests": compared.requests,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-catalog-sync-") as root:
        folders = SmallFolders(Path(root), tuple(f"t{number:05d}" for number in range(given.tables)))
        workload.write(Workload(rows=100, files=1, changes_per_file=10, seed=1, mix=MIX), folders.made)
        jobs = Jobs(folders)
        with glue(jobs.requests) as client:
            figures = measure(jobs, client, given.rounds)
    print_figures(figures, "tables", "idle_round_seconds", "compare_ms_per_table", "compare_requests")
    return 0


if __name__ == "__main__":
    sys.exit(main())
