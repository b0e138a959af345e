"""A load whose job runs elsewhere and reaches its task's time limit."""

from __future__ import annotations

import math
import time
from datetime import timedelta
from typing import Any

import pytest

pytest.importorskip("databricks.sdk")
pytest.importorskip("airflow.providers.databricks")

from airflow_gddl.dags.factory import build_dags
from airflow_gddl.devtools.fakes.databricks.run import LIVE
from airflow_gddl.devtools.fakes.databricks.server import FakeServer
from airflow_gddl.triggers.runs import GddlRunTrigger, ends_at
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
    answers = stage.lake / "_gddl" / "answers"
    # The limit comes when the first table is done, however long that takes.
    stage.monkeypatch.setattr(GddlRunTrigger, "_left", lambda _: 0.0 if any(answers.rglob("*.json")) else math.inf)
    done = limited(3600)
    (made,) = fake.workspace.runs.values()
    assert made.state == LIVE.TERMINATED
    out_of_time(stage, done, "the tier small before this table was done")
    stage.order()
    assert run()["incremental_load"] == "success"
    assert stage.loaded == [["shop.a", "shop.b"], ["shop.b"]]


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
