"""A few small tables in a bucket, each with a load and a change, and the jobs over them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import replace

import obstore
import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.s3.conftest import Place

ROWS = {1: "new", 3: "c"}
"""Of each table, key to value, once all is taken."""


def table(name: str) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), sequence_by=("seq",))


def deliver(place: Place, names: Sequence[str]) -> None:
    for name in names:
        put(place, name, "LOAD00000001", {"id": [1, 2, 3], "v": ["a", "b", "c"]})
        put(place, name, "20240101-000000001", {"Op": ["U", "D"], "seq": [1, 2], "id": [1, 2], "v": ["new", None]})


def deliver_load(place: Place, name: str) -> None:
    """The same rows as one file, for a batch less."""
    put(place, name, "LOAD00000001", {"id": list(ROWS), "v": list(ROWS.values())})


def put(place: Place, name: str, file: str, rows: dict[str, list[object]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table(rows), sink)
    obstore.put(place.store, f"landing/s/{name}/{file}.parquet", sink.getvalue())


def job(place: Place, names: Sequence[str], run_id: str = "run") -> JobSpec:
    specs = tuple(table(name) for name in names)
    tiers = {size: replace(tier, tasks="one") for size, tier in DEFAULT_TIERS.items()}
    return JobSpec(run_id=run_id, roots=place.roots, tables=specs, tiers=tiers)


def run_here(
    place: Place, names: Sequence[str], run_id: str = "run", *, wait: float = 0.0, port: LocalPort | None = None
) -> dict[str, JobResult]:
    """The job in this process; results by the table's bare name.

    Args:
        wait: seconds to wait for another run of a table.
        port: where tables are worked on; null: in this process, without Spark.
    """
    wanted = replace(job(place, names, run_id), options=JobOptions(wait_seconds=wait))
    runtime = Runtime(storage=Storage(environ=place.environ), spark=NoSpark())
    if port is not None:
        wanted, runtime = port.tiered(wanted), replace(port.runtime, storage=Storage(environ=place.environ))
    done = run_job(wanted, runtime, lambda _: None)
    return {outcome.result.table.partition(".")[2]: outcome.result for outcome in done}


def objects(place: Place, prefix: str) -> list[str]:
    return sorted(meta["path"] for page in obstore.list(place.store, prefix) for meta in page)
