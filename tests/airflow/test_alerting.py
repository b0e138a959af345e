"""Alerts through notifiers that the configuration names."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

import pytest
from airflow.sdk import BaseNotifier

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, RunWarning
from airflow_gddl.contract.spec import DEFAULT_TIERS, Roots, TableSpec
from airflow_gddl.dags.maintenance import WATCH, build_upkeep_dags
from airflow_gddl.notifications.webhook import message_of
from airflow_gddl.operators.jobs import GddlWatchOperator
from airflow_gddl.reporting import alerting
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.state.alerts import Alert
from airflow_gddl.runtime.state.documents import PipelineState, place
from airflow_gddl.runtime.state.lake_state import StateReader
from airflow_gddl.runtime.state.recording import StateRecorder, write_record
from airflow_gddl.stores import open_store
from airflow_gddl.topology.pipelines import arrange
from airflow_gddl.version_compat import AirflowException
from tests.airflow.stage import Stage

CONTEXT: Any = {"run_id": "r", "ti": None, "dag": None}
PACK = "gddl_pack.shop.small.1"
LOG = logging.getLogger(__name__)


class ListNotifier(BaseNotifier):
    """Keeps the messages that it gets; a provider's notifier as far as Airflow is concerned."""

    template_fields = ("text",)
    reported: ClassVar[list[str]] = []
    broken: ClassVar[bool] = False

    def __init__(self, text: str = "") -> None:
        super().__init__()
        self.text = text

    def notify(self, context: Any) -> None:  # noqa: ARG002 - Airflow's signature
        if type(self).broken:
            raise OSError("no answer")
        self.reported.append(self.text)


@pytest.fixture
def document(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> PipelineDocument:
    monkeypatch.setattr(ListNotifier, "reported", [])
    monkeypatch.setattr(ListNotifier, "broken", False)
    given = [{"notifier": f"{__name__}.ListNotifier", "arguments": {"text": "told: {{ gddl_text }}"}}]
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps(given))
    specs = (TableSpec(table="shop.a", keys=("id",), source="shop"),)
    (pipeline,) = arrange(specs, DEFAULT_TIERS).pipelines
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    return PipelineDocument(pipeline=pipeline, roots=roots, runner="local", specs=specs, tiers=DEFAULT_TIERS)


def load(document: PipelineDocument, started: int, rows_read: int) -> list[Alert]:
    recorder = StateRecorder(document.roots, document.pipeline.dag_id, ())
    moment = f"2024-01-01T00:00:{started:02d}+00:00"
    recorder.take(
        JobResult(table="shop.a", status="succeeded", started_at=moment, rows_read=rows_read, changes_written=3)
    )
    recorder.flush()
    return alerting.notify(CONTEXT, document, LOG, os.environ)


def test_a_state_change_sends_one_alert(document: PipelineDocument) -> None:
    assert load(document, 1, 3) == []
    assert [one.code for one in load(document, 2, 4)] == ["ROWS_MISSING"]
    assert load(document, 3, 4) == []
    assert [one.change for one in load(document, 4, 3)] == ["over"]
    assert load(document, 5, 3) == []
    first, second = ListNotifier.reported
    assert first == "told: shop.a: [ROWS_MISSING] 4 rows were read, 3 accounted for ▸ gddl verify --table shop.a"
    assert second == "told: shop.a: ROWS_MISSING is over"


def test_a_failing_notifier_fails_no_load_and_is_called_again(document: PipelineDocument) -> None:
    ListNotifier.broken = True
    with contextlib.suppress(OSError):
        ListNotifier()(dict(CONTEXT))
        pytest.skip("this Airflow keeps a notifier's failure to itself")
    assert load(document, 1, 4) == []
    ListNotifier.broken = False
    assert [one.code for one in alerting.notify(CONTEXT, document, LOG, os.environ)] == ["ROWS_MISSING"]


@pytest.mark.parametrize("value", ["{", "[1]", '[{"notifier": "no.such.Thing"}]', '[{"arguments": {}}]'])
def test_notifiers_that_are_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", value)
    with pytest.raises(MetadataError, match=r"OPTION_INVALID.*alert_notifiers"):
        alerting.notifiers()


@pytest.mark.parametrize(
    ("notifier", "arguments", "said"),
    [("pigeon", {}, "OPTION_INVALID.*webhook"), ("webhook", {}, "OPTION_INVALID"),
     ("webhook", {"connection": "ops", "level": 2}, "OPTION_INVALID.*level")],
)  # fmt: skip
def test_wrong_names_and_arguments_are_named(
    notifier: str, arguments: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__GDDL__ALERT_NOTIFIERS", json.dumps([{"notifier": notifier, "arguments": arguments}]))
    with pytest.raises(MetadataError, match=said):
        alerting.notifiers()


def test_the_webhook_is_the_default_notifier(monkeypatch: pytest.MonkeyPatch) -> None:
    assert alerting.notifiers() == []
    monkeypatch.setenv("AIRFLOW__GDDL__NOTIFY_CONNECTION", "hook")
    (webhook,) = alerting.notifiers()
    assert webhook.connection == "hook"
    assert message_of({"gddl_text": "shop.a: [X_Y] z"})["text"] == "shop.a: [X_Y] z"


def watched(stage: Stage) -> dict[str, int]:
    dag = build_upkeep_dags()[WATCH]
    task = dag.get_task("look")
    assert isinstance(task, GddlWatchOperator)
    return task.execute(CONTEXT)


def overdue(stage: Stage, dag_id: str = PACK) -> None:
    """The watch has met the pipeline's new tables, and that so long ago that their first load is overdue."""
    assert watched(stage) == {"began": 0, "over": 0}
    assert forgotten(stage, dag_id).tables


def forgotten(stage: Stage, dag_id: str) -> PipelineState:
    """As if all tables of the pipeline had been met long ago."""
    roots = Roots(landing=str(stage.landing), lake=str(stage.lake))
    return StateRecorder(roots, dag_id, ()).change(
        lambda known: known.with_records({name: replace(one, seen=0.0) for name, one in known.tables.items()})
    )


def test_tables_onboarded_together_are_new_and_not_late(document: PipelineDocument, stage: Stage) -> None:
    names = [f"shop.t{number:03d}" for number in range(500)]
    stage.rows(*(f"{{table: {name}, keys: [id], freshness: 1h}}" for name in names))
    for _ in range(2):
        assert watched(stage) == {"began": 0, "over": 0}
    assert ListNotifier.reported == []
    known = StateReader(str(stage.lake), time.time).read()
    assert {name for name, one in known.records.items() if one.seen is not None} == set(names)
    assert alerting.notify(CONTEXT, replace(document, specs=tuple(map(_fresh, names))), LOG, os.environ) == []
    paths = (stage.lake / "_gddl" / "state").iterdir()
    for dag_id in sorted(path.name.removesuffix(".json") for path in paths):
        forgotten(stage, dag_id)
    assert watched(stage) == {"began": 500, "over": 0}, "the period is over, and nothing has loaded them"
    (text,) = ListNotifier.reported
    assert text.endswith("and 475 more")


def _fresh(name: str) -> TableSpec:
    return TableSpec(table=name, keys=("id",), source="shop", freshness="1h")


def test_a_table_without_loads_sends_one_alert(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}", "{table: shop.b, keys: [id]}")
    overdue(stage)
    assert watched(stage) == {"began": 1, "over": 0}
    assert watched(stage) == {"began": 0, "over": 0}
    assert [text.split("]")[0] for text in ListNotifier.reported] == ["told: shop.a: [FRESHNESS_MISSED"]
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    recorder = StateRecorder(document.roots, PACK, ())
    recorder.take(JobResult(table="shop.a", status="succeeded", started_at=now, rows_read=1, changes_written=1))
    recorder.flush()
    assert watched(stage) == {"began": 0, "over": 1}
    assert watched(stage) == {"began": 0, "over": 0}
    assert ListNotifier.reported[-1] == "told: shop.a: FRESHNESS_MISSED is over"


def test_a_stopped_source_sends_one_alert_for_each_table(document: PipelineDocument, stage: Stage) -> None:
    """Neither the load of a quiet table nor the watch ends what the other has sent: both know the heartbeat."""
    row = "{table: shop.a, keys: [id], freshness: 1h, heartbeat: shop.beat}"
    stage.rows(row, "{table: shop.beat, keys: [id], size: large}")
    now = datetime.now(UTC)
    beat = "gddl.shop.beat"

    def applied(pipeline: str, table: str, commit: datetime) -> None:
        recorder = StateRecorder(document.roots, pipeline, ())
        moment = datetime.now(UTC).isoformat(timespec="microseconds")
        fresh = Freshness(commit_ts=commit.isoformat(), lag_seconds=0.0)
        recorder.take(JobResult(table=table, status="succeeded", started_at=moment, batches=1, rows_read=1,
                                changes_written=1, freshness=fresh))  # fmt: skip
        recorder.flush()

    applied(PACK, "shop.a", now - timedelta(hours=5))
    applied(beat, "shop.beat", now - timedelta(hours=2))
    (spec,) = document.specs
    specs = (replace(spec, freshness="1h", heartbeat="shop.beat"),)
    pack = replace(document, specs=specs, heartbeats=(beat,), pipeline=replace(document.pipeline, dag_id=PACK))
    assert [one.code for one in alerting.notify(CONTEXT, pack, LOG, os.environ)] == ["SOURCE_STOPPED"]
    assert alerting.notify(CONTEXT, pack, LOG, os.environ) == []
    assert watched(stage) == {"began": 0, "over": 0}
    applied(beat, "shop.beat", now)
    assert [(one.code, one.change) for one in alerting.notify(CONTEXT, pack, LOG, os.environ)] == [
        ("SOURCE_STOPPED", "over")
    ]
    assert [text.split("]")[0] for text in ListNotifier.reported] == [
        "told: shop.a: [SOURCE_STOPPED", "told: shop.a: SOURCE_STOPPED is over"
    ]  # fmt: skip


def test_a_moved_table_sends_no_second_alert(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    overdue(stage)
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
    assert known.notified_by == {PACK: {}, moved: {"shop.a": ()}}


def test_a_table_with_lost_state_is_not_late(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    now = datetime.now(UTC).isoformat(timespec="microseconds")
    store = open_store()
    write_record(store, document.roots, JobResult(table="shop.a", status="succeeded", started_at=now))
    assert watched(stage) == {"began": 0, "over": 0}
    store.write(place(str(stage.lake), PACK), b"damaged")
    assert watched(stage) == {"began": 0, "over": 0}


def test_the_next_load_sends_no_second_alert(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    overdue(stage)
    watched(stage)
    (spec,) = document.specs
    pack = replace(document, specs=(replace(spec, freshness="1h"),), pipeline=replace(document.pipeline, dag_id=PACK))
    assert load(pack, 1, 3) == []
    assert len(ListNotifier.reported) == 1


def test_a_failed_watch_sends_its_alerts_in_the_next_run(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    overdue(stage)
    ListNotifier.broken = True
    with contextlib.suppress(OSError):
        ListNotifier()(dict(CONTEXT))
        pytest.skip("this Airflow keeps a notifier's failure to itself")
    with pytest.raises(OSError, match="no answer"):
        watched(stage)
    ListNotifier.broken = False
    assert watched(stage) == {"began": 1, "over": 0}


def test_without_notifiers_there_is_no_watch(stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    assert WATCH not in build_upkeep_dags()


def test_a_lake_that_can_t_be_read_fails_the_watch(document: PipelineDocument, stage: Stage) -> None:
    stage.rows("{table: shop.a, keys: [id], freshness: 1h}")
    folder = stage.lake / "_gddl" / "state"
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder)  # a loop: neither there nor absent
    with pytest.raises(AirflowException, match="LAKE_UNREADABLE"):
        watched(stage)
    assert ListNotifier.reported == []


def test_the_watch_reports_failures_and_invalid_rows_without_freshness(
    document: PipelineDocument, stage: Stage
) -> None:
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keyz: [id]}")
    recorder = StateRecorder(document.roots, PACK, ())
    for run in (1, 2):
        error = ErrorInfo(code="JOB_FAILED", message=f"[JOB_FAILED] no {run}")
        result = JobResult(table="shop.a", status="failed", started_at=f"2024-01-01T00:00:0{run}+00:00", error=error)
        recorder.take(replace(result, run_id=f"r{run}"), (f"r{run}", "t"))
    recorder.flush()
    assert watched(stage) == {"began": 2, "over": 0}
    (text,) = ListNotifier.reported
    first, second = text.removeprefix("told: ").splitlines()
    assert first == "shop.a: [LOAD_FAILED] it failed in 2 runs in a row: [JOB_FAILED] no 2 ▸ gddl status --table shop.a"
    assert second.startswith("shop.b: [ROW_INVALID] tables/shop.yaml:"), second
    assert watched(stage) == {"began": 0, "over": 0}
    stage.rows("{table: shop.a, keys: [id]}", "{table: shop.b, keys: [id]}")
    assert watched(stage) == {"began": 0, "over": 1}
    assert ListNotifier.reported[-1] == "told: shop.b: ROW_INVALID is over"
    assert watched(stage) == {"began": 0, "over": 0}
    stage.rows("{table: shop.b, keys: [id]}", "{table: shop.c, keyz: [id]}")
    assert watched(stage) == {"began": 1, "over": 1}, "a table that was removed is no incident"
    assert "shop.a: LOAD_FAILED is over" in ListNotifier.reported[-1]
    stage.rows("{table: shop.b, keys: [id]}")
    assert watched(stage) == {"began": 0, "over": 1}, "nor is a row that was removed"
    assert watched(stage) == {"began": 0, "over": 0}
    stage.write("tables/other.yaml", "tables: [")
    assert watched(stage) == {"began": 1, "over": 0}
    assert "(metadata): [METADATA_INVALID] tables/other.yaml:" in ListNotifier.reported[-1]


def test_alerts_name_files_a_command_and_the_page(
    document: PipelineDocument, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example.org/a/")
    warning = RunWarning(
        code="FILE_UNREADABLE", message="2 files can't be read", count=2, sample=("a.parquet", "b.parquet")
    )
    result = JobResult(table="shop.a", status="succeeded", started_at="2024-01-01T00:00:01+00:00", warnings=(warning,),
                       in_quarantine=2, files_in_quarantine=2)  # fmt: skip
    write_record(open_store(), document.roots, replace(result, files=1))
    recorder = StateRecorder(document.roots, document.pipeline.dag_id, ())
    recorder.take(replace(result, files=1))
    recorder.flush()
    alerting.notify(CONTEXT, document, LOG, os.environ)
    (text,) = ListNotifier.reported
    assert text == (
        "told: shop.a: [FILE_UNREADABLE] 2 files can't be read (a.parquet, b.parquet) ▸ gddl errors list "
        "--table shop.a https://airflow.example.org/a/gddl/#/table/shop.a"
    )
