"""Small tables over Spark tasks by `mapInArrow`: all are done, and one that fails stops no other."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.layout import join, result_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_spark import SparkSpread, TaskResultStore
from tests.conftest import SPARK
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write_bytes

NAMES = ("a", "b", "c", "poisoned", "large")
TIER = DEFAULT_TIERS["small"]


def run(lake: Lake, names: tuple[str, ...]) -> dict[str, JobResult]:
    shown: list[JobResult] = []
    runtime = Runtime(storage=Storage(), spark=SPARK, spread=SparkSpread(SPARK, Storage()))
    run_job(lake.job([spec_of(name) for name in names]), runtime, shown.append)
    return {result.table.removeprefix("s."): result for result in shown}


def test_tables_are_spread_over_tasks(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """And those that one task declines are left to many."""
    if request.config.getoption("--tasks") == "one":
        pytest.skip("it takes Spark")
    lake = Lake(tmp_path, replace(TIER, task_max_bytes=20_000))
    for name in NAMES:
        lake.load(spec_of(name), rows=10_000 if name == "large" else 3)
    left = TaskResultStore.of(lake.job([]), Storage())  # by an earlier start of the job, which was killed
    left.put(TableOutcome(JobResult(table=spec_of("a").table, status="failed"), retriable=True))
    for number in (1, 2):
        left.begin(spec_of("b"), number)
    write_bytes(Path(lake.layout(spec_of("poisoned")).state), "commits/00000000000000000001.json", b"not json")
    done = run(lake, NAMES)
    assert {n: (r.status, r.tasks) for n, r in done.items()} == {
        **dict.fromkeys("abc", ("succeeded", "one")),
        "poisoned": ("failed", "one"),
        "large": ("succeeded", "many"),
    }
    application = SPARK.for_table().sparkContext.applicationId
    assert {r.place for r in done.values()} == {f"Spark {application}"}
    assert [w.code for w in done["large"].warnings] == ["NEEDS_MANY_TASKS"]
    assert len(lake.replica(spec_of("large"))) == 10_000
    assert {r.status for r in run(lake, ("a", "b", "c", "large")).values()} == {"skipped"}
    assert list(Storage().list(f"{lake.roots.lake}/_gddl/jobs")) == []


def kill_workers(lake: Lake, name: str, times: int, stop: threading.Event) -> None:
    """Send SIGKILL to the Python worker as often as one has begun with a table, `times` at most."""
    results = TaskResultStore.of(lake.job([]), Storage())
    killed = 0
    while killed < times and not stop.wait(0.01):
        if results.tries(spec_of(name)) > killed:
            killed += 1
            begun = join(results.folder, f"{result_name(spec_of(name).table)}.begun-{killed}")
            os.kill(int(Storage().read(begun).split()[1]), signal.SIGKILL)


def run_killing(lake: Lake, names: tuple[str, ...], name: str, times: int) -> dict[str, JobResult]:
    stop = threading.Event()
    killer = threading.Thread(target=kill_workers, args=(lake, name, times, stop))
    killer.start()
    try:
        return run(lake, names)
    finally:
        stop.set()
        killer.join()


@pytest.fixture
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> Lake:
    if request.config.getoption("--tasks") == "one":
        pytest.skip("it takes Spark")
    found = Lake(tmp_path, TIER)
    for name in ("a", "b"):
        found.load(spec_of(name))
    return found


@pytest.mark.deep
def test_killed_task_is_retried_once(lake: Lake) -> None:
    lake.load(spec_of("long"), rows=300_000)
    done = run_killing(lake, ("a", "b", "long"), "long", times=1)
    assert {r.status for r in done.values()} == {"succeeded"}
    assert len(lake.replica(spec_of("long"))) == 300_000


def test_table_that_kills_its_tasks_fails_alone(lake: Lake) -> None:
    lake.load(spec_of("long"), rows=300_000)
    done = run_killing(lake, ("a", "b", "long"), "long", times=2)
    assert done["long"].error is not None
    assert done["long"].error.code == "WORKER_DIED"
    for name in ("a", "b"):  # skipped: the task that Spark cancelled with that of `long` had committed
        assert done[name].status in ("succeeded", "skipped")
        assert len(lake.replica(spec_of(name))) == 3
    assert {r.status for r in run(lake, ("long",)).values()} == {"succeeded"}, "the next run takes it up"


def test_table_beyond_its_memory_runs_on_spark(lake: Lake) -> None:
    hungry = replace(lake, tier=replace(TIER, task_memory="1m"))
    hungry.load(spec_of("long"), rows=3_000_000)
    done = run(hungry, ("long",))["long"]
    assert (done.status, done.tasks) == ("succeeded", "many")
    assert [w.code for w in done.warnings] == ["NEEDS_MANY_TASKS"]
    assert "task_memory" in done.warnings[0].message
