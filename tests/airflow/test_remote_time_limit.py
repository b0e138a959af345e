"""A load whose job runs elsewhere and reaches its task's time limit."""

from __future__ import annotations

import asyncio
import functools
import math
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")
pytest.importorskip("airflow.providers.databricks")

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.operators import upkeep
from airflow_gddl.triggers import GddlRunTrigger, ends_at
from airflow_gddl.version_compat import AirflowException, TaskDeferred
from devtools.fake_databricks.server import FakeServer
from devtools.fake_databricks.workspace import LIVE
from tests.airflow.stage import Stage
from tests.airflow.test_remote import DATES, PACK, fake, run, tables
from tests.airflow.test_stopping import out_of_time

__all__ = ["fake"]
pytestmark = [
    pytest.mark.usefixtures("database"),
    pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False"),
]


def limited(seconds: float) -> Any:
    """The run of a DAG whose first load has this time limit."""
    dag = build_dags(default_args={"retries": 0})[PACK]
    dag.get_task("initial_load").execution_timeout = timedelta(seconds=seconds)
    return dag.test(logical_date=next(DATES))


def test_the_run_is_cancelled_and_what_it_has_done_is_collected(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a", "b")
    stage.order(sleep={"shop.b": 300})
    answers = stage.lake / "_gddl" / "results"
    # The limit comes when the first table is done, however long that takes.
    stage.monkeypatch.setattr(
        GddlRunTrigger, "seconds_left", lambda _: 0.0 if any(answers.rglob("*.json")) else math.inf
    )
    done = limited(3600)
    assert ended(fake) == [LIVE.TERMINATED]
    out_of_time(stage, done, "run_timeout of the tier small: raise it")
    stage.order()
    stage.monkeypatch.setattr(GddlRunTrigger, "seconds_left", lambda _: math.inf)
    assert run()["initial_load"] == "success"
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"]]


def ended(fake: FakeServer) -> list[Any]:
    return [made.state for made in fake.workspace.runs.values()]


def test_maintenance_is_cancelled_too_and_starts_no_further_job(
    stage: Stage, fake: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables(stage, "a", "b", "c")
    stage.order(sleep={"shop.b": 300})
    monkeypatch.setattr(upkeep, "TABLES_PER_JOB", 2)
    answers = stage.lake / "_gddl" / "results"
    stage.monkeypatch.setattr(
        GddlRunTrigger, "seconds_left", lambda _: 0.0 if any(answers.rglob("*.json")) else math.inf
    )
    task = build_upkeep_dags()["gddl_maintenance"].get_task("maintain_small")
    context: Any = {"params": {}, "run_id": "r", "ti": SimpleNamespace(try_number=1, xcom_push=lambda **_: None)}
    context["dag_run"] = SimpleNamespace(clear_number=0)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    event = asyncio.run(anext(deferred.value.trigger.run()))
    event.payload["begun"]["ends"] = time.time() - 1
    with pytest.raises(AirflowException, match=r"shop\.b.*RUN_TIMEOUT"):
        task.resumed(context, event.payload)
    assert ended(fake) == [LIVE.TERMINATED]
    assert stage.loaded == [["shop.a", "shop.b"]]
    # The next try does the rest.
    stage.order()
    stage.monkeypatch.setattr(GddlRunTrigger, "seconds_left", lambda _: math.inf)
    context["ti"] = SimpleNamespace(try_number=2, xcom_push=lambda **_: None)
    reported = resumed_to_the_end(task, context)
    assert (reported["failed"], stage.loaded[1:]) == (0, [["shop.b", "shop.c"]])


def resumed_to_the_end(task: Any, context: Any) -> dict[str, Any]:
    """The summary of a task that waits in the triggerer as often as it likes."""
    call = functools.partial(task.execute, context)
    while True:
        try:
            found: dict[str, Any] = call()
        except TaskDeferred as deferred:
            event = asyncio.run(anext(deferred.trigger.run()))
            call = functools.partial(task.resumed, context, event.payload)
        else:
            return found


def test_the_limit_is_counted_from_the_wait() -> None:
    before = time.time()
    ends = ends_at(timedelta(hours=6))
    assert ends is not None
    assert before + 6 * 3600 <= ends <= time.time() + 6 * 3600
    assert ends_at(None) is None


def test_a_run_within_its_limit_is_not_cancelled(stage: Stage, fake: FakeServer) -> None:
    tables(stage, "a")
    assert str(limited(60).state) == "success"
    (made,) = fake.workspace.runs.values()
    assert made.attempts == 1
    assert stage.loaded == [["shop.a"]]
