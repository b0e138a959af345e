"""Alerts through notifiers that the configuration names."""

from __future__ import annotations

import contextlib
import json
import logging
import time
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, Roots, TableSpec
from airflow_gddl.dags.maintenance import WATCH, build_upkeep_dags
from airflow_gddl.metadata.topology import pipelines
from airflow_gddl.notifications.webhook import message_of
from airflow_gddl.operators.watch import GddlWatchOperator
from airflow_gddl.reporting import alerting
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.runtime.state.alerts import Alert
from airflow_gddl.runtime.state.documents import place
from airflow_gddl.runtime.state.reading import StateReader
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.records import write_record
from airflow_gddl.stores import open_store
from airflow_gddl.version_compat import AirflowException
from tests.airflow.stage import Stage

CONTEXT: Any = {"run_id": "r", "ti": None, "dag": None}
PACK = "gddl_pack.shop.small.hourly.normal.all"
LOG = logging.getLogger(__name__)


class ListNotifier(BaseNotifier):
    """Keeps what it was told; a provider's notifier as far as Airflow is concerned."""

    template_fields = ("text",)
    told: ClassVar[list[str]] = []
    broken: ClassVar[bool] = False

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:  # noqa: ARG002 - Airflow's signature
        if type(self).broken:
            raise OSError("no answer")
        self.told.append(self.text)


@pytest.fixture
def document(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> PipelineDocument:
    monkeypatch.setattr(ListNotifier, "told", [])
    monkeypatch.setattr(ListNotifier, "broken", False)
    given = [{"notifier": f"{__name__}.ListNotifier", "arguments": {"text": "told: {{ gddl_text }}"}}]
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps(given))
    specs = (TableSpec(table="shop.a", keys=("id",), source="shop"),)
    (pipeline,) = pipelines(specs, DEFAULT_TIERS)
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    return PipelineDocument(pipeline=pipeline, roots=roots, runner="local", specs=specs, tiers=DEFAULT_TIERS)


def load(document: PipelineDocument, started: int, rows_read: int) -> list[Alert]:
    recorder = StateRecorder(document.roots, document.pipeline.dag_id, ())
    moment = f"2024-01-01T00:00:{started:02d}+00:00"
    recorder.take(
        JobResult(table="shop.a", status="succeeded", started_at=moment, rows_read=rows_read, changes_written=3)
    )
    recorder.flush()
    return alerting.tell(CONTEXT, document, LOG)


def test_a_state_change_is_told_once(document: PipelineDocument) -> None:
    assert load(document, 1, 3) == []
    assert [one.code for one in load(document, 2, 4)] == ["ROWS_MISSING"]
    assert load(document, 3, 4) == []
    assert [one.change for one in load(document, 4, 3)] == ["over"]
    assert load(document, 5, 3) == []
    first, second = ListNotifier.told
    assert first == "told: shop.a: [ROWS_MISSING] 4 rows were read, 3 accounted for"
    assert second == "told: shop.a: ROWS_MISSING is over"


def test_a_notifier_that_fails_fails_no_load_and_is_told_again(document: PipelineDocument) -> None:
    ListNotifier.broken = True
    with contextlib.suppress(OSError):
        ListNotifier()(dict(CONTEXT))
        pytest.skip("this Airflow keeps a notifier's failure to itself")
    assert load(document, 1, 4) == []
    ListNotifier.broken = False
    assert [one.code for one in alerting.tell(CONTEXT, document, LOG)] == ["ROWS_MISSING"]


@pytest.mark.parametrize("value", ["{", "[1]", '[{"notifier": "no.such.Thing"}]', '[{"arguments": {}}]'])
def test_notifiers_that_are_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", value)
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*alert_notifiers"):
        alerting.notifiers()


def test_the_webhook_is_told_where_nothing_else_is(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alerting.notifiers() == []
    monkeypatch.setenv("AIRFLOW__GDDL__NOTIFY_CONNECTION", "hook")
    (webhook,) = alerting.notifiers()
    assert webhook.connection == "hook"
    assert message_of({"gddl_text": "shop.a: [X_Y] z"}, late=False)["text"] == "shop.a: [X_Y] z"


def watched(stage: Stage) -> dict[str, int]:
    dag = build_upkeep_dags()[WATCH]
    task = dag.get_task("look")
    assert isinstance(task, GddlWatchOperator)
    return task.execute(CONTEXT)


def test_a_table_that_nothing_loads_any_more_is_told_of_once(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}", "{table: shop.b, keys: [id]}")
    assert watched(stage) == {"began": 1, "over": 0}
    assert watched(stage) == {"began": 0, "over": 0}
    assert [text.split("]")[0] for text in ListNotifier.told] == ["told: shop.a: [FRESHNESS_MISSED"]
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    recorder = StateRecorder(document.roots, PACK, ())
    recorder.take(JobResult(table="shop.a", status="succeeded", started_at=now, rows_read=1, changes_written=1))
    recorder.flush()
    assert watched(stage) == {"began": 0, "over": 1}
    assert watched(stage) == {"began": 0, "over": 0}
    assert ListNotifier.told[-1] == "told: shop.a: FRESHNESS_MISSED is over"


def test_a_table_that_goes_to_another_pipeline_is_not_told_of_again(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    assert watched(stage) == {"began": 1, "over": 0}
    stage.rows("{table: shop.a, keys: [id], freshness: 1h, priority: high}")
    assert watched(stage) == {"began": 0, "over": 0}
    moved = PACK.replace("normal", "high")
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    recorder = StateRecorder(document.roots, moved, ())
    recorder.take(JobResult(table="shop.a", status="succeeded", started_at=now, rows_read=1, changes_written=1))
    recorder.flush()
    assert [watched(stage)["over"] for _ in range(3)] == [1, 0, 0]
    known = StateReader(str(stage.lake), time.time).read()
    assert known.told_by == {PACK: {}, moved: {"shop.a": ()}}


def test_a_table_whose_state_was_lost_is_not_taken_for_late(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    store = open_store()
    write_record(store, document.roots, JobResult(table="shop.a", status="succeeded", started_at=now))
    assert watched(stage) == {"began": 0, "over": 0}
    store.write(place(str(stage.lake), PACK, "runs"), b"damaged")
    assert watched(stage) == {"began": 0, "over": 0}


def test_the_load_after_it_does_not_tell_again(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    watched(stage)
    (spec,) = document.specs
    pack = replace(document, specs=(replace(spec, freshness="1h"),), pipeline=replace(document.pipeline, dag_id=PACK))
    assert load(pack, 1, 3) == []
    assert len(ListNotifier.told) == 1


def test_a_watch_that_can_t_tell_fails_and_tells_the_next_time(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    ListNotifier.broken = True
    with contextlib.suppress(OSError):
        ListNotifier()(dict(CONTEXT))
        pytest.skip("this Airflow keeps a notifier's failure to itself")
    with pytest.raises(OSError, match="no answer"):
        watched(stage)
    ListNotifier.broken = False
    assert watched(stage) == {"began": 1, "over": 0}


def test_where_nobody_is_to_be_told_nobody_watches(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    assert WATCH not in build_upkeep_dags()


def test_a_lake_that_can_t_be_read_fails_the_watch(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    folder = stage.lake / "_gddl" / "state"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)  # a loop: neither there nor absent
    with pytest.raises(AirflowException, match="LAKE_UNREADABLE"):
        watched(stage)
    assert ListNotifier.told == []
