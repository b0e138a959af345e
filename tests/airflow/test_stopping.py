"""A stopped task stops its job; a killed worker's job ends by itself (docs/airflow.md)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.runtime.state.lake_state import read_pipeline
from airflow_gddl.runtime.state.table_runs import RunFact
from tests.airflow.stage import Stage
from tests.airflow.workers import command
from tests.harness.waiting import is_alive, wait_for

PACK = "gddl_pack.shop.small.1"


def has_ended(process: subprocess.Popen[str]) -> bool:
    """Whether a worker ended early: a test that waits for its job then fails at once, and shows why."""
    assert process.poll() is None, process.communicate()[1]
    return False


@pytest.fixture
def worker(stage: Stage) -> subprocess.Popen[str]:
    """A worker in the middle of a job: shop.a is done, shop.b takes its time."""
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    stage.order(sleep={"shop.b": 300}, pid=str(stage.root / "pid"))
    process = subprocess.Popen(
        command("load", stage.metadata, PACK), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    # The stand-in makes it once it has answered for the table.
    wait_for(lambda: has_ended(process) or list(stage.lake.glob("shop/a/_delta_log/*.json")))
    return process


def test_a11_a_stopped_task_stops_its_job_and_keeps_finished_tables(
    worker: subprocess.Popen[str], stage: Stage
) -> None:
    job = int((stage.root / "pid").read_text())
    assert is_alive(job)
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert out.splitlines()[-1] == "stopped ['shop.b']", err
    wait_for(lambda: not is_alive(job))
    assert sorted(stage.state(PACK).hints) == ["shop.a"]


def test_a11_the_job_of_a_killed_worker_ends_and_the_next_try_resumes(
    worker: subprocess.Popen[str], stage: Stage
) -> None:
    job = int((stage.root / "pid").read_text())
    worker.kill()
    worker.communicate(timeout=60)
    wait_for(lambda: not is_alive(job), seconds=10)
    stage.order()
    done = subprocess.run(command("load", stage.metadata, PACK), capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "ended []"
    # Where the hint of shop.a was lost with the worker, it has a replica, and is for the other task.
    assert stage.loaded[1:] == [["shop.b"]]
    assert "shop.b" in stage.state(PACK).hints


def out_of_time(stage: Stage, done: Any, said: str) -> RunFact:
    """The first load has failed because shop.b was not done in time, as its record says; shop.a was."""
    assert {ti.task_id: str(ti.state) for ti in done.get_task_instances()}["initial_load"] == "failed"
    records = read_pipeline(str(stage.lake), (PACK,), os.environ).records
    assert (records["shop.a"].failed, records["shop.b"].failed) == (False, True)
    newest = records["shop.b"].newest
    assert newest is not None
    assert (newest.error, newest.airflow[1]) == ("RUN_TIMEOUT", "initial_load")
    assert said in (records["shop.b"].error or "")
    return newest


@pytest.mark.usefixtures("database")
def test_a_load_that_reaches_its_time_limit_is_recorded(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    stage.land("shop.a")
    stage.land("shop.b")
    stage.order(sleep={"shop.b": 300})
    dag = build_dags(default_args={"retries": 0})[PACK]
    load = dag.get_task("initial_load")
    load.execution_timeout = timedelta(seconds=4)
    done = dag.test(logical_date=datetime(2027, 1, 1, tzinfo=UTC))
    newest = out_of_time(stage, done, "run_timeout of the tier small")
    (record,) = (stage.lake / "_gddl" / "runs" / "shop" / "b").glob("*.json")
    assert '"RUN_TIMEOUT"' in record.read_text()
    assert (stage.lake / "_gddl" / "logs" / PACK / f"{newest.run_id}.log").exists()


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_job_ends_with_its_parent_also_behind_a_wrapper(tmp_path: Path, wrapped: bool) -> None:
    job = (  # it writes its id once it has found its parent alive, and again looks for it
        "import os, sys, threading, time; from spark_jobs.job.stop import end_with\n"
        "sleep, again = time.sleep, threading.Event()\n"
        "time.sleep = lambda seconds: (again.set(), sleep(seconds))\n"
        "end_with(int(sys.argv[1])); again.wait(); again.clear(); again.wait()\n"
        "open(sys.argv[2], 'w').write(str(os.getpid())); sleep(300)\n"
    )
    starter = (
        "import os, subprocess, sys, time\n"
        "command = [sys.executable, '-c', sys.argv[1], str(os.getpid()), sys.argv[2]]\n"
        "wrapper = ['sh', '-c', '\"$@\"; exit 0', 'sh'] if sys.argv[3] == 'True' else []\n"
        "subprocess.Popen([*wrapper, *command], process_group=0)\n"
        "time.sleep(300)\n"
    )
    pid = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", starter, job, str(pid), str(wrapped)]) as process:
        wait_for(lambda: pid.exists() and pid.read_text())
        assert is_alive(int(pid.read_text()))
        os.kill(process.pid, signal.SIGKILL)
        wait_for(lambda: not is_alive(int(pid.read_text())), seconds=10)
