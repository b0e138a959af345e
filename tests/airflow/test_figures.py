"""Figures of a load, for as many tables as a metrics store bears."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from airflow_gddl.contract.result import Freshness, JobResult, RunWarning
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.dags.factory import build_dags
from airflow_gddl.dags.maintenance import build_upkeep_dags
from airflow_gddl.reporting import results as reporting
from airflow_gddl.reporting.results import Reporter
from airflow_gddl.runners.interface import ProgressEvent
from tests.airflow.stage import Stage


def test_figures_are_tagged_by_table_and_tier_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[str, float, dict[str, str]]] = []
    monkeypatch.setattr(reporting, "gauge", lambda name, value, tags: sent.append((name, value, tags)))
    specs = {f"s.t{n}": TableSpec(table=f"s.t{n}", keys=("id",), size="medium") for n in range(700)}
    reporter = Reporter(logging.getLogger("figures"), specs)
    warnings = (RunWarning(code="A_TIE", message="m", count=2),)
    for name in (*specs, "s.t0"):
        reporter.on_result(JobResult(table=name, status="succeeded", rows_read=7, bytes_read=90, warnings=warnings))
    assert sent[:6] == [
        (f"gddl.{name}", value, {"table": "s.t0", "tier": "medium"})
        for name, value in (
            ("rows_read", 7.0), ("bytes_read", 90.0), ("quarantined", 0.0), ("batches", 0.0), ("seconds", 0.0),
            ("warnings", 2.0),
        )
    ]  # fmt: skip
    assert len({tags["table"] for _, _, tags in sent}) == 500
    assert len(sent) == 6 * 501, "a table that has a name of its own keeps it"


def test_lag_is_not_held_against_freshness(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It grows while the source is quiet; a table that was just loaded is late if its run took too long."""
    sent: dict[str, float] = {}
    monkeypatch.setattr(reporting, "gauge", lambda name, value, tags: sent.update({f"{name} {tags['table']}": value}))
    specs = {f"s.{name}": TableSpec(table=f"s.{name}", keys=("id",), freshness="1m") for name in "abcdef"}
    reporter = Reporter(logging.getLogger("figures"), specs)
    quiet = Freshness(commit_ts="2024-01-01T00:00:00Z", lag_seconds=962.0)
    reporter.on_result(JobResult(table="s.a", status="succeeded", freshness=quiet, seconds=3))
    reporter.on_result(JobResult(table="s.b", status="succeeded", freshness=quiet, seconds=61))
    reporter.on_result(JobResult(table="s.c", status="skipped", freshness=quiet))
    reporter.on_result(JobResult(table="s.d", status="failed", seconds=3))
    held = Freshness(waiting_since="2024-01-01T00:00:00+00:00")
    for name, status in (("e", "succeeded"), ("f", "skipped")):
        reporter.on_result(JobResult(table=f"s.{name}", status=status, freshness=held, seconds=3))
    assert (sent["gddl.late s.e"], sent["gddl.late s.f"]) == (1, 1), "whether or not a run finds work"
    assert (sent["gddl.lag_seconds s.a"], sent["gddl.late s.a"], sent["gddl.late s.b"]) == (962.0, 0, 1)
    assert not {"gddl.late s.c", "gddl.late s.d"} & set(sent), "nothing is known of them here; gddl_watch sends it"
    assert [record.getMessage() for record in caplog.records if record.levelname == "WARNING"] == [
        "s.b is late: its run took 61 s, longer than its freshness, 1m",
        *(f"s.{name} is late: what has landed since {held.waiting_since} is not applied, and its freshness is 1m"
          for name in "ef"),
    ]  # fmt: skip


def test_a_long_job_is_logged_every_thirty_seconds(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    caplog.set_level(logging.INFO)
    reporter = Reporter(logging.getLogger("figures"), {}, lambda: clock[0])
    for second in range(133):
        clock[0] = float(second)
        if second == 40:
            reporter.on_progress(ProgressEvent(table="s.a", step="read", batch=1, batches=4, rows=7))
            reporter.on_progress(ProgressEvent(table="s.b", step="discover"))
        if second == 70:
            reporter.on_progress(ProgressEvent(table="s.a", step="replica", batch=2, batches=4, rows=90))
        if second == 80:
            reporter.on_result(JobResult(table="s.b", status="skipped"))
        reporter.tick()
    assert caplog.messages == [
        "running for 30 s, tables done: 0",
        "running for 60 s, tables done: 0; s.a: read, batch 1 of 4, 7 rows read; s.b: discover",
        "s.b skipped: 0 files, 0 rows read, 0 changes, 0.0 s",
        "running for 110 s, tables done: 1; s.a: replica, batch 2 of 4, 90 rows read",
    ]


def test_of_many_tables_at_work_the_newest_are_named(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    caplog.set_level(logging.INFO)
    reporter = Reporter(logging.getLogger("figures"), {}, lambda: clock[0])
    for n in range(12):
        reporter.on_progress(ProgressEvent(table=f"s.t{n}", step="read"))
    clock[0] = 31.0
    reporter.tick()
    (line,) = caplog.messages
    assert ("s.t11: read" in line, "s.t7: read" in line, "s.t6" in line, "and 7 more" in line) == (
        True,
        True,
        False,
        True,
    )


def test_quarantined_files_are_named_and_keys_are_not(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    warnings = (
        RunWarning(
            code="FILE_UNREADABLE", message="files could not be read", count=7, sample=("a.parquet", "b.parquet")
        ),
        RunWarning(code="SEQUENCE_TIE", message="changes of a key are equal", count=1, sample=("key 4711",)),
    )
    reporter = Reporter(logging.getLogger("figures"), {})
    reporter.on_result(JobResult(table="s.a", status="succeeded", quarantined=3, warnings=warnings))
    assert caplog.messages == [
        "s.a succeeded: 0 files, 0 rows read, 0 changes, 3 quarantined, 0.0 s",
        "s.a: [FILE_UNREADABLE] files could not be read: a.parquet, b.parquet and 5 more",
        "s.a: [SEQUENCE_TIE] changes of a key are equal",
    ]


@pytest.mark.usefixtures("database")
@pytest.mark.parametrize("what", ["load", "maintenance", "continuous"])
def test_every_task_with_a_job_logs_while_it_runs(stage: Stage, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    schedule = ", schedule: continuous" if what == "continuous" else ""
    stage.rows(f"{{table: shop.{what}, keys: [id], size: large{schedule}}}")
    stage.land(f"shop.{what}")
    ticked = []

    def tick(reporter: Reporter) -> None:
        ticked.append(reporter)

    monkeypatch.setattr(Reporter, "tick", tick)
    made = build_upkeep_dags()["gddl_maintenance"] if what == "maintenance" else build_dags()[f"gddl.shop.{what}"]
    assert str(made.test(logical_date=datetime(2025, 5, 1, tzinfo=UTC)).state) == "success"
    assert stage.jobs
    assert ticked
