"""`GDDL_WITHOUT_SPARK=1`: the job works on all tables in its own process, whatever their tiers say, and says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import WITHOUT_SPARK, JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime, SparkLeftOut
from spark_jobs.job.job_tables import run_job
from tests.harness.asked import options_of
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write_bytes

pytestmark = pytest.mark.wide

GOOD = ("a", "b", "c", "d", "e")


def landed(lake: Lake, names: Sequence[str]) -> list[TableSpec]:
    specs = [spec_of(name) for name in names]
    for spec in specs:
        lake.load(spec)
        lake.change(spec, 1, [("U", 1, "new"), ("D", 2, None)])
    return specs


def run(lake: Lake, specs: Sequence[TableSpec], options: JobOptions | None = None) -> list[JobResult]:
    runtime = Runtime(storage=Storage(), spark=SparkLeftOut())
    return [outcome.result for outcome in run_job(lake.job(specs, options), runtime, lambda _: None)]


@pytest.mark.parametrize("tier", [TIER, replace(TIER, tasks="many", commit="merge")])
def test_all_tables_are_loaded_and_then_idle(tmp_path: Path, tier: object) -> None:
    lake = Lake(tmp_path, replace(TIER, **vars(tier)))
    specs = landed(lake, GOOD)
    specs[0] = replace(specs[0], commit="merge", size="large")
    found = {(r.status, r.tasks, r.commit, r.place) for r in run(lake, specs)}
    assert found == {("succeeded", "one", "direct", WITHOUT_SPARK)}
    assert {(r.status, r.tasks) for r in run(lake, specs)} == {("skipped", "one")}
    assert {tuple(lake.replica(spec).items()) for spec in specs} == {((0, "load 0"), (1, "new"))}


def test_a_failure_is_of_one_table_alone(tmp_path: Path) -> None:
    """A ledger that can't be read; and beside it a file that can't, which only goes to the quarantine."""
    lake = Lake(tmp_path)
    specs = landed(lake, (*GOOD, "poisoned", "corrupt"))
    by = {spec.name: spec for spec in specs}
    write_bytes(Path(lake.layout(by["poisoned"]).state), "commits/00000000000000000001.json", b"not json")
    write_bytes(Path(lake.layout(by["corrupt"]).landing), "20240102-000000000.parquet", b"not parquet")
    results = {result.table.removeprefix("s."): result for result in run(lake, specs)}
    assert {results[name].status for name in (*GOOD, "corrupt")} == {"succeeded"}
    assert [w.code for w in results["corrupt"].warnings] == ["FILE_UNREADABLE"]
    assert results["poisoned"].error is not None
    assert results["poisoned"].error.code == "LEDGER_DAMAGED"


def test_other_actions_need_no_spark(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    specs = landed(lake, GOOD)
    for spec in specs:
        lake.done(spec)
    for action in ("verify", "plan", "errors_list"):
        results = run(lake, specs, options_of(action))
        assert {r.error for r in results} == {None}
        if action == "verify":
            assert {r.details["verdict"] for r in results} == {"equal"}


def test_a_table_that_needs_spark_fails_alone_and_says_so(tmp_path: Path) -> None:
    """The job as it is started: why one task can't take the table, then that there is no Spark."""
    lake = Lake(tmp_path, replace(TIER, task_max_bytes=2_000))
    large, small = spec_of("large"), spec_of("small")
    lake.load(large, rows=10_000)
    lake.load(small)
    status, found, said = played(lake.job([large, small]), tmp_path)
    assert (status, found["s.small"]["status"], found["s.large"]["status"]) == (1, "succeeded", "failed")
    error = found["s.large"]["error"]
    assert error["code"] == "NEEDS_SPARK"
    assert error["message"].startswith("[NEEDS_SPARK] s.large needs Spark, since one task can't take it (")
    assert "GDDL_WITHOUT_SPARK is set. Remedy: run the job without GDDL_WITHOUT_SPARK" in error["message"]
    assert [warning["code"] for warning in found["s.large"]["warnings"]] == ["NEEDS_MANY_TASKS"]
    assert error["message"] in said
    record = next(Path(lake.layout(large).runs).glob("*.json"))
    assert json.loads(record.read_text())["error"] == error


def played(job: JobSpec, folder: Path) -> tuple[int, dict[str, dict[str, object]], str]:
    """Exit status, results and standard error of `gddl-job` on a machine without Java and pyspark."""
    order, site = folder / "spec.json", folder / "site"
    order.write_text(to_json(job))
    site.mkdir()
    (site / "pyspark.py").write_text("raise ImportError('pyspark')\n")
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environ |= {"PATH": str(folder), "GDDL_WITHOUT_SPARK": "1", "PYTHONPATH": os.pathsep.join([str(site), *sys.path])}
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, {r["table"]: r for r in map(json.loads, done.stdout.splitlines())}, done.stderr
