"""A job that goes on whose Java process dies: it starts another, and nothing is lost or doubled (docs/streaming.md)."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import Continuous, JobOptions, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.ledger.ledger import Ledger
from tests.harness.lake import Lake
from tests.harness.waiting import wait_for
from tests.one_task.test_continuous import Source, specs_of
from tests.spark.children import Child, job_child


def java_of(pid: int) -> int | None:
    """The Java process that this process has started; null when it has none."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            name, fields = stat.read_text().partition("(")[2].rsplit(")", 1)
            state, parent = fields.split()[:2]
            if (name, int(parent)) == ("java", pid) and state not in "ZX":
                return int(stat.parent.name)
    return None


def kill_java_of(pid: int) -> int:
    wait_for(lambda: java_of(pid) is not None)
    java = java_of(pid)
    assert java is not None
    os.kill(java, signal.SIGKILL)
    return java


def is_at_work(source: Source) -> bool:
    """Some table's batch is begun."""
    layouts = (source.lake.layout(spec) for spec in source.specs)
    return any(Ledger.open(Storage(), layout.state).plan() is not None for layout in layouts)


@pytest.mark.deep
@pytest.mark.parametrize(("tasks", "rounds"), [("many", 2), ("one", 1)])
def test_lost_spark_is_replaced_and_tables_are_correct(tasks: TableTasks, rounds: int, tmp_path: Path) -> None:
    """Two of the tables are left to Spark."""
    chance = random.Random(5)  # noqa: S311 - moments, no secrets
    lake = Lake(tmp_path, TierSpec(tasks=tasks, cores=2))
    left_to_spark = [
        replace(spec, table_properties={"delta.enableTypeWidening": "true"}) for spec in specs_of("a", "b")
    ]
    source = Source(lake, [*left_to_spark, *specs_of("c")])
    source.load()
    killed = []
    with job_child(lake.job(source.specs, JobOptions(continuous=Continuous()))) as child:
        wait_for(source.is_taken)
        for _ in range(rounds):
            source.change()
            wait_for(lambda: is_at_work(source))
            time.sleep(chance.uniform(0, 1.0))
            killed.append(kill_java_of(child.pid))
            source.change()
            wait_for(source.is_taken)
        source.check()
        killed.append(kill_java_of(child.pid))  # at rest
        source.change()
        wait_for(source.is_taken)
        source.check()
        assert len(set(killed)) == len(killed)
        os.kill(child.pid, signal.SIGTERM)
        ended = child.end(60)
    assert ended.status == 0, ended.err
    failed = [result for line in ended.out.splitlines() if (result := json.loads(line))["status"] == "failed"]
    assert {result["error"]["code"] for result in failed} <= {"SPARK_GONE"}, failed


def test_lost_spark_leaves_no_process_or_folder() -> None:
    with Child("tests.spark.lost_child", []) as child:
        ended = child.end()
    assert ended.status == 0, ended.err
    *reported, left = [json.loads(line) for line in ended.out.splitlines()]
    assert [(one["sum"], one["losses"]) for one in reported] == [(10, 0), (10, 1), (10, 2)]
    assert len({one["pid"] for one in reported}) == len({one["folder"] for one in reported}) == 3
    assert [one["pid"] for one in reported[:-1] if Path(f"/proc/{one['pid']}").exists()] == []
    assert left == []
