"""Without a triggerer: sensors poll, and tasks wait for their remote jobs, in their own process."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.version_compat import AirflowException, TaskDeferred
from devtools.fake_databricks.server import FakeServer
from devtools.fake_databricks.workspace import LIVE
from tests.airflow.stage import Stage
from tests.airflow.test_remote import PACK, fake, polled, run, tables
from tests.harness.waiting import wait_for

__all__ = ["fake"]
pytestmark = [
    pytest.mark.usefixtures("database"),
    # Each test is a new version of the same DAG to this database; Airflow's own query does not expect that in one run.
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]


@pytest.fixture(autouse=True)
def in_task(stage: Stage) -> None:
    stage.monkeypatch.setenv("AIRFLOW__GDDL__DEFERRABLE", "False")


def of_maintenance() -> tuple[Any, Any]:
    """A task that waits for a remote job, and what it is called with."""
    task = build_upkeep_dags()["gddl_maintenance"].get_task("maintain_small")
    context = {
        "params": {},
        "run_id": "r",
        "ti": SimpleNamespace(try_number=1, task_id="maintain_small", xcom_push=lambda **_: None),
    }
    return task, {**context, "dag_run": SimpleNamespace(clear_number=0)}


def test_no_task_defers(stage: Stage, fake: FakeServer) -> None:
    import airflow.sdk.definitions.dag as sdk  # noqa: PLC0415 - after the database is set up

    def refuse(*_: Any) -> None:
        raise AssertionError("deferred")

    stage.monkeypatch.setattr(sdk, "_run_inline_trigger", refuse)
    tables(stage, "a", "b")
    stage.order(sleep=1)
    assert run() == {"landed": "success", "initial_load": "success", "incremental_load": "skipped"}
    assert stage.loaded == [["shop.a", "shop.b"]]
    assert set(run().values()) == {"skipped"}
    assert not build_dags()[PACK].get_task("landed").start_from_trigger


def test_a_task_waits_for_its_job(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a", "b")
    stage.order(sleep=1)
    task, context = of_maintenance()
    found = task.execute(context)
    assert (found["tables"], found["succeeded"]) == (2, 2)
    assert len(fake.workspace.runs) == 1


def test_a_stopped_task_cancels_its_job(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a")
    stage.order(sleep=300)
    task, context = of_maintenance()
    ended: list[BaseException] = []

    def execute() -> None:
        try:
            task.execute(context)
        except AirflowException as error:
            ended.append(error)

    thread = threading.Thread(target=execute)
    thread.start()
    wait_for(lambda: any(one.state == LIVE.RUNNING for one in fake.workspace.runs.values()))
    wait_for(polled(fake, 3))  # its first poll may be the runner's own
    task.on_kill()
    thread.join(60)
    assert [one.state for one in fake.workspace.runs.values()] == [LIVE.TERMINATED]
    assert [str(error) for error in ended] == ["the task was stopped"]


def test_a_task_can_say_so_itself(stage: Stage, fake: FakeServer) -> None:
    """Whatever the option says."""
    tables(stage, "a")
    stage.order(sleep=1)
    task, context = of_maintenance()
    task.deferrable = True
    with pytest.raises(TaskDeferred):
        task.execute(context)


def test_an_option_that_is_neither_is_refused(stage: Stage) -> None:
    from airflow_gddl import configuration  # noqa: PLC0415 - as above
    from airflow_gddl.contract.errors import MetadataError  # noqa: PLC0415 - as above

    stage.monkeypatch.setenv("AIRFLOW__GDDL__DEFERRABLE", "maybe")
    with pytest.raises(MetadataError, match="deferrable"):
        configuration.is_deferrable()
