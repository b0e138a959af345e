"""Tables over worker processes: all are done, whatever happens to one of them, and results come as they are made."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_local import LocalSpread, NoSpark
from tests.harness.asked import options_of
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write_bytes
from tests.one_task import broken_workers

pytestmark = pytest.mark.wide

GOOD = ("a", "b", "c", "d", "e")


class NoJava(NoSpark):
    """A driver that can't start Spark."""

    def for_table(self, _work: int | None = None, /) -> Any:
        raise FatalError("JAVA_MISSING", "there is no Java")


def landed(lake: Lake, names: Sequence[str]) -> list[TableSpec]:
    specs = [spec_of(name) for name in names]
    for spec in specs:
        lake.load(spec)
        lake.change(spec, 1, [("U", 1, "new"), ("D", 2, None)])
    return specs


def run(lake: Lake, specs: Sequence[TableSpec], options: JobOptions | None = None) -> list[JobResult]:
    """Results in the order in which they were shown."""
    shown: list[JobResult] = []
    spread = LocalSpread(target=broken_workers.serve)
    runtime = Runtime(storage=Storage(), spark=NoJava(), spreads={"processes": spread})
    outcomes = run_job(lake.job(specs, options), runtime, shown.append)
    assert [o.result.table for o in outcomes] == [s.table for s in specs]
    return shown


def by_name(results: Sequence[JobResult]) -> dict[str, JobResult]:
    return {result.table.removeprefix("s."): result for result in results}


def test_all_tables_are_loaded_and_then_idle(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    specs = landed(lake, GOOD)
    assert {(r.status, r.tasks, r.batches) for r in run(lake, specs)} == {("succeeded", "one", 2)}
    assert {(r.status, r.tasks) for r in run(lake, specs)} == {("skipped", "one")}
    assert {tuple(lake.replica(spec).items()) for spec in specs} == {((0, "load 0"), (1, "new"))}


def test_killed_worker_is_replaced(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    specs = landed(lake, (*GOOD, "dies_once"))
    assert {r.status for r in run(lake, specs)} == {"succeeded"}


def test_table_that_kills_its_workers_fails_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    results = by_name(run(lake, landed(lake, (*GOOD, "dies"))))
    assert {results[name].status for name in GOOD} == {"succeeded"}
    assert results["dies"].error is not None
    assert results["dies"].error.code == "WORKER_DIED"


def test_table_timeout_fails_alone(tmp_path: Path) -> None:
    lake = Lake(tmp_path, replace(TIER, task_timeout="6s"))
    results = by_name(run(lake, landed(lake, (*GOOD, "hangs"))))
    assert {results[name].status for name in GOOD} == {"succeeded"}
    assert results["hangs"].error is not None
    assert results["hangs"].error.code == "TABLE_TIMEOUT"


def test_unpicklable_failure_fails_alone(tmp_path: Path) -> None:
    """A ledger that can't be read; and beside it a file that can't, which only goes to the quarantine."""
    lake = Lake(tmp_path)
    specs = landed(lake, (*GOOD, "poisoned", "corrupt"))
    by = {spec.name: spec for spec in specs}
    write_bytes(Path(lake.layout(by["poisoned"]).state), "commits/00000000000000000001.json", b"not json")
    write_bytes(Path(lake.layout(by["corrupt"]).landing), "20240102-000000000.parquet", b"not parquet")
    results = by_name(run(lake, specs))
    assert {results[name].status for name in (*GOOD, "corrupt")} == {"succeeded"}
    assert [w.code for w in results["corrupt"].warnings] == ["FILE_UNREADABLE"]
    assert results["poisoned"].error is not None
    assert results["poisoned"].error.code == "LEDGER_DAMAGED"


def test_largest_tables_start_first_without_delaying_others(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    specs = landed(lake, GOOD)
    large = spec_of("large")
    lake.load(large, rows=300_000)
    shown = [r.table for r in run(lake, [*specs, large])]
    assert shown[0] != large.table, "the large table held the others back"
    assert shown.index(large.table) > 0
    assert len(lake.replica(large)) == 300_000


def test_table_beyond_its_memory_is_declined(tmp_path: Path) -> None:
    """Its process is ended; without Spark at hand that is an error that says so. The others go on."""
    lake = Lake(tmp_path, replace(TIER, task_memory="300m"))
    results = by_name(run(lake, landed(lake, (*GOOD, "hungry"))))
    assert {results[name].status for name in GOOD} == {"succeeded"}
    assert results["hungry"].tasks == "many"
    assert [w.code for w in results["hungry"].warnings] == ["NEEDS_MANY_TASKS"]
    assert "task_memory" in results["hungry"].warnings[0].message


def test_other_actions_are_spread(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    specs = landed(lake, GOOD)
    for spec in specs:
        lake.done(spec)
    for action in ("verify", "plan", "errors_list"):
        results = run(lake, specs, options_of(action))
        assert {r.error for r in results} == {None}
        if action == "verify":
            assert {r.details["verdict"] for r in results} == {"equal"}


def test_table_that_needs_spark_fails_clearly_without_java(tmp_path: Path) -> None:
    """The job as it is started on such a machine: why one task can't take it, then that Java is missing."""
    lake = Lake(tmp_path, replace(TIER, task_max_bytes=2_000))
    large, small = spec_of("large"), spec_of("small")
    lake.load(large, rows=10_000)
    lake.load(small)
    order = tmp_path / "spec.json"
    order.write_text(to_json(lake.job([large, small])))
    environ = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    nowhere = {"PATH": str(tmp_path), "GDDL_JARS": str(tmp_path / "jars")}
    done = subprocess.run(command, env=environ | nowhere, capture_output=True, text=True, check=False, timeout=120)
    found = {result["table"]: result for result in map(json.loads, done.stdout.splitlines())}
    assert (done.returncode, found["s.small"]["status"], found["s.large"]["status"]) == (2, "succeeded", "failed")
    error = found["s.large"]["error"]
    assert error["code"] == "JAVA_MISSING"
    assert error["message"].startswith("[JAVA_MISSING] s.large needs Spark, since one task can't take it (")
    assert "there is no `java` on PATH, and JAVA_HOME is not set" in error["message"]
    assert "install a JDK or JRE 17 or newer" in error["message"]
    assert [warning["code"] for warning in found["s.large"]["warnings"]] == ["NEEDS_MANY_TASKS"]
    assert error["message"] in done.stderr
    record = next(Path(lake.layout(large).runs).glob("*.json"))
    assert json.loads(record.read_text())["error"] == error
