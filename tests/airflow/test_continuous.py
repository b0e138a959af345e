"""Continuous pipelines: one task that keeps a job alive, gives it new rows, and stops it (docs/streaming.md)."""

from __future__ import annotations

import itertools
import json
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import desired_path, stop_path
from airflow_gddl.contract.spec import DesiredState
from airflow_gddl.dags.factory import AGAIN, build_dags
from airflow_gddl.operators.jobs import GddlContinuousOperator
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline, current_desired_state
from airflow_gddl.runtime.state.lake_state import read_pipeline, table_statuses
from airflow_gddl.runtime.state.table_status import TableStatus
from airflow_gddl.runtime.table_directory import row_of
from tests.airflow.bag import serialised
from tests.airflow.stage import Stage
from tests.airflow.test_run import events
from tests.airflow.test_stopping import has_ended
from tests.airflow.workers import command
from tests.harness.waiting import is_alive, wait_for

PACK = "gddl_pack.shop.small.1"
ROWS = ("{table: shop.a, keys: [id], schedule: continuous}", "{table: shop.b, keys: [id], trigger: 5s}")
DATES = (datetime(2026, 1, 1, tzinfo=UTC) + timedelta(hours=n) for n in itertools.count())
pytestmark = [
    pytest.mark.usefixtures("database"),
    # Each test is a new version of the same DAG to this database; Airflow's own query does not expect that in one run.
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]


@pytest.fixture
def pack(stage: Stage) -> Stage:
    stage.rows(*ROWS)
    return stage


def run(conf: dict[str, Any] | None = None) -> str:
    """State of the task after a run."""
    (instance,) = build_dags()[PACK].test(logical_date=next(DATES), run_conf=conf).get_task_instances()
    assert instance.task_id == "continuous_load"
    return str(instance.state)


def folder(stage: Stage) -> Path:
    return stage.lake / "_gddl" / "continuous" / PACK


def order(stage: Stage) -> DesiredState:
    return decode(DesiredState, json.loads(Path(desired_path(str(folder(stage)))).read_text()))


def states(stage: Stage) -> dict[str, TableStatus]:
    document = configuration.compiled_metadata(str(stage.metadata)).pipeline(PACK)
    assert document is not None
    known = read_pipeline(str(stage.lake), (PACK,))
    return {
        one.row.table: one
        for one in table_statuses([row_of(s, document.pipeline) for s in document.specs], known, time.time())
    }


def test_one_task_with_growing_retry_delays(pack: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(AGAIN, "retries", 10)
    dag = build_dags()[PACK]
    (task,) = dag.tasks
    assert isinstance(task, GddlContinuousOperator)
    assert "Continuous" in serialised(dag)
    assert (dag.max_active_runs, task.pool) == (1, "gddl_continuous")
    assert (task.retries, task.retry_delay, task.max_retry_delay) == (10, timedelta(seconds=10), timedelta(minutes=10))
    assert task.retry_exponential_backoff
    assert "shop.a" not in serialised(dag)


def test_the_job_runs_until_its_time_limit_and_its_results_are_stored(pack: Stage) -> None:
    events()
    assert run() == "success"
    job = pack.jobs[0]
    assert job["options"]["continuous"] == {"folder": str(folder(pack)), "seconds": 6 * 3600}
    assert [spec.table for spec in order(pack).tables] == ["shop.a", "shop.b"]
    assert {name: extras[0]["rows"] for name, extras in events().items()} == {"shop.a": 7, "shop.b": 7}
    assert sorted(pack.state(PACK).hints) == ["shop.a", "shop.b"]
    assert {name: one.state for name, one in states(pack).items()} == {"shop.a": "fresh", "shop.b": "fresh"}


def test_a_row_that_is_added_while_it_runs_reaches_the_job(pack: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_gddl.runtime.landing.continuous_job.FRESH_SECONDS", 0.1)
    pack.order(lasts=60, until="shop.c")

    def later() -> None:
        wait_for(lambda: pack.jobs)
        pack.rows(*ROWS, "{table: shop.c, keys: [id], schedule: continuous}")

    editor = threading.Thread(target=later)
    editor.start()
    assert run() == "success"
    editor.join()
    assert [job["tables"] for job in pack.jobs] == [["shop.a", "shop.b"], ["shop.a", "shop.b", "shop.c"]]


def test_a_failing_table_fails_the_task_at_the_end_by_name(pack: Stage) -> None:
    pack.order(fail={"shop.a": ["SCHEMA_REFUSED", "a column is text now"]})
    assert run() == "failed"
    found = states(pack)
    assert {name: one.state for name, one in found.items()} == {"shop.a": "failed", "shop.b": "fresh"}
    assert sorted(pack.state(PACK).hints) == ["shop.b"]


def test_the_job_of_a_retired_pipeline_is_not_started_again(pack: Stage) -> None:
    """Another DAG's job has its tables by now."""
    configuration.compiled_metadata(str(pack.metadata)).keep_placement()
    pack.rows("{table: shop.a, keys: [id], size: medium, schedule: continuous}")
    retired = build_dags()[PACK]
    assert (retired.schedule, "retired" in retired.tags) == (None, True)
    assert run() == "success"
    assert pack.jobs == []


@pytest.mark.parametrize("status", [1, 75, 137])
def test_a_crashed_job_fails_the_task_for_a_retry(pack: Stage, status: int) -> None:
    pack.order(status=status)
    assert run() == "failed"


def test_a_failed_start_is_retried_within_the_run(pack: Stage) -> None:
    task = build_dags()[PACK].get_task("continuous_load")
    pack.rows("{table: shop.x, keys: [id], size: medium}")
    with pytest.raises(Exception, match="PIPELINE_UNKNOWN") as caught:
        task.execute({"ti": None, "params": {}, "run_id": "r"})
    assert type(caught.value).__name__ == "AirflowException"
    assert not isinstance(caught.value, GddlError)


@pytest.mark.parametrize(
    ("conf", "tables", "action"),
    [
        ({"tables": ["shop.b"]}, ["shop.b"], "run"),
        ({"tables": ["shop.a"], "action": "rebuild"}, ["shop.a"], "rebuild"),
        ({"action": "verify"}, ["shop.a", "shop.b"], "verify"),
    ],
)
def test_a_run_with_params_runs_only_the_request(
    pack: Stage, conf: dict[str, Any], tables: list[str], action: str
) -> None:
    pack.land("shop.a")
    pack.land("shop.b")
    assert run(conf) == "success"
    assert pack.loaded == [tables]
    assert pack.jobs[0]["options"]["action"]["name"] == action
    assert pack.jobs[0]["options"]["continuous"] is None


def test_a_request_that_names_a_table_of_another_dag_loads_its_own(pack: Stage) -> None:
    pack.land("shop.a")
    assert run({"tables": ["shop.a", "shop.typo"]}) == "failed"
    assert pack.loaded == [["shop.a"]]


def test_a_removed_or_rescheduled_pipeline_empties_its_desired_state(pack: Stage) -> None:
    kept = MonitoredPipeline(metadata=str(pack.metadata), pipeline=PACK, run="r", task="continuous_load")
    now = current_desired_state(kept)
    assert now is not None
    assert [spec.table for spec in now.tables] == ["shop.a", "shop.b"]
    pack.rows("{table: shop.a, keys: [id]}")
    assert current_desired_state(kept) == DesiredState(tables=())
    pack.write("gddl.yaml", "landing: ../landing\nlake: 7\n")  # can't be read: the last good copy serves
    assert current_desired_state(kept) == DesiredState(tables=())


@pytest.fixture
def worker(pack: Stage) -> Iterator[subprocess.Popen[str]]:
    pack.order(lasts=300, pid=str(pack.root / "pid"), answered=str(pack.root / "answered"))
    with subprocess.Popen(
        command("monitor", pack.metadata, PACK), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(lambda: has_ended(process) or (pack.root / "answered").exists())
        yield process
        process.kill()


def test_stopping_the_task_lets_the_job_finish(worker: subprocess.Popen[str], pack: Stage) -> None:
    worker.send_signal(signal.SIGTERM)
    out, err = worker.communicate(timeout=60)
    assert out.splitlines()[-1] == "0 15 ['shop.a', 'shop.b'] 0", err
    assert pack.jobs[-1]["ended"] is True
    assert sorted(pack.state(PACK).hints) == ["shop.a", "shop.b"]


def test_a_killed_worker_s_job_ends_too(worker: subprocess.Popen[str], pack: Stage) -> None:
    job = int((pack.root / "pid").read_text())
    worker.kill()
    wait_for(lambda: not is_alive(job), seconds=10)


def test_kept_is_plain_data() -> None:
    kept = MonitoredPipeline(metadata="/m", pipeline=PACK, run="r", task="t", job="j-1")
    assert decode(MonitoredPipeline, json.loads(json.dumps(plain(kept)))) == kept
    assert stop_path("/f", "j-1") != stop_path("/f", "j-2")
