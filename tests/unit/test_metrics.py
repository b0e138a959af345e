"""Figures of jobs: what they say, and that tables are bounded."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import ExpectationCount, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from spark_jobs.batch.runtime import Step, silent
from spark_jobs.job.job_logging import JsonFormatter, WorkAtHand
from spark_jobs.job.metrics import METRICS, Point, bounded, points_of
from spark_jobs.job.telemetry import publish
from spark_jobs.job.telemetry import send_otel as send
from tests.harness.asked import options_of
from tests.unit.pages import section

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def result(table: str = "s.t", **fields: Any) -> JobResult:
    return replace(JobResult(table=table, status="succeeded", rows_read=5, bytes_read=900, seconds=0.5), **fields)


def job(tables: Sequence[str] = ("s.t",), **options: Any) -> JobSpec:
    specs = tuple(TableSpec(table=name, keys=("id",), size="large") for name in tables)
    return JobSpec(run_id="r", roots=Roots(landing="/l", lake="/k"), tables=specs, options=options_of(**options))


def values(points: Sequence[Point]) -> dict[tuple[str, str], float]:
    """Values by metric and the label that it has beside table and tier; empty: none."""
    usual = ("table", "tier")
    return {(p.metric, "".join(value for name, value in p.labels if name not in usual)): p.value for p in points}


def test_counters_add_up_and_gauges_are_the_highest() -> None:
    warned = (RunWarning(code="SEQUENCE_TIE", message="m", count=3),)
    first = result(warnings=warned, freshness=Freshness(lag_seconds=12.5), main=MainCounts(rows=7), quarantined=2)
    second = result(status="failed", freshness=Freshness(lag_seconds=3.0))
    found = values(bounded([*points_of(first, "large", 1000.0), *points_of(second, "large", 2000.0)], 500))
    assert {name: found[f"gddl_{name}", ""] for name in ("rows_read", "bytes_read", "seconds", "quarantined")} == {
        "rows_read": 10, "bytes_read": 1800, "seconds": 1.0, "quarantined": 2
    }  # fmt: skip
    assert found["gddl_warnings", "SEQUENCE_TIE"] == 3
    assert found["gddl_runs", "succeeded"] == found["gddl_runs", "failed"] == 1
    assert (found["gddl_lag_seconds", ""], found["gddl_last_run_failed", ""]) == (12.5, 1)
    assert (found["gddl_replica_rows", ""], found["gddl_last_run_timestamp_seconds", ""]) == (7, 2000)


def test_labels_of_a_point_are_sorted_as_the_series_of_other_points() -> None:
    warned = result(warnings=(RunWarning(code="A", message="m", count=1),))
    assert all(list(p.labels) == sorted(p.labels) for p in points_of(warned, "small", 1.0))


def test_a_missing_library_is_named_and_needed_only_where_a_collector_is(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    publish(job(), [result()], 1.0, {})
    assert caplog.text == ""
    publish(job(), [result()], 1.0, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert "[PACKAGE_MISSING] a job that publishes metrics needs the package opentelemetry-sdk" in caplog.text
    assert "pip install 'airflow-gddl[otel]'" in caplog.text


def test_tables_are_bounded_and_keep_their_names() -> None:
    names = ("s.a", "s.b", "s.c", "s.d", "s.a")
    found = bounded([point for name in names for point in points_of(result(name), "small", 1.0)], 2)
    read = {dict(p.labels)["table"]: p.value for p in found if p.metric == "gddl_rows_read"}
    assert read == {"s.a": 10, "s.b": 5, "other": 10}


def test_highest_gauge_of_other_tables_is_used() -> None:
    points = [p for n, lag in (("s.a", 1.0), ("s.b", 9.0), ("s.c", 4.0))
              for p in points_of(result(n, freshness=Freshness(lag_seconds=lag)), "small", 1.0)]  # fmt: skip
    found = {p.labels[0][1]: p.value for p in bounded(points, 1) if p.metric == "gddl_lag_seconds"}
    assert found == {"s.a": 1.0, "other": 9.0}


def test_a_collector_that_can_t_be_reached_fails_no_run(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: object) -> None:
        raise ConnectionError("refused")

    monkeypatch.setattr("spark_jobs.job.telemetry.send_otel", refuse)
    publish(job(), [result()], 1.0, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert "metrics could not be handed on" in caplog.text


def test_maintenance_publishes_no_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[object] = []
    monkeypatch.setattr("spark_jobs.job.telemetry.send_otel", seen.append)
    publish(job(action="verify"), [result()], 1.0, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert seen == []


def test_opentelemetry_gets_the_same() -> None:
    export = pytest.importorskip("opentelemetry.sdk.metrics.export")
    seen: list[Any] = []

    class Kept(export.MetricExporter):  # type: ignore[misc, name-defined]  # the package may be absent
        def export(self, metrics_data: Any, *_: Any, **__: Any) -> Any:
            seen.append(json.loads(metrics_data.to_json()))
            return export.MetricExportResult.SUCCESS

        def shutdown(self, *_: Any, **__: Any) -> None: ...

        def force_flush(self, *_: Any) -> bool:
            return True

    send(points_of(result(), "small", 5.0), Kept())
    scope = seen[0]["resource_metrics"][0]["scope_metrics"][0]
    reported = {m["name"]: m["data"]["data_points"][0] for m in scope["metrics"]}
    assert reported["gddl.rows_read"]["value"] == 5
    assert reported["gddl.rows_read"]["attributes"] == {"table": "s.t", "tier": "small"}
    assert reported["gddl.last_run_failed"]["value"] == 0


def test_dashboard_uses_existing_metrics() -> None:
    board = json.loads(DASHBOARD.read_text())
    asked = " ".join(t["expr"] for panel in board["panels"] for t in panel.get("targets", []))
    names = {f"{name}_total" if kind == "counter" else name for name, (kind, _) in METRICS.items()}
    used = set(re.findall(r"gddl_[a-z_]+", asked))
    assert used <= names
    assert used >= {"gddl_lag_seconds", "gddl_quarantined_total", "gddl_rows_read_total", "gddl_runs_total"}


def test_the_page_names_every_metric_and_no_other() -> None:
    text = section("monitoring.md", "Metrics")
    names = {f"{name}_total" if kind == "counter" else name for name, (kind, _) in METRICS.items()}
    of_airflow = {"gddl_watch"}
    assert set(re.findall(r"\bgddl_[a-z_]+", text)) - of_airflow == names


def test_a_line_of_the_log_names_run_table_and_batch() -> None:
    at_hand = WorkAtHand()
    observe = at_hand.observing(silent)
    formatter = JsonFormatter("run-1", at_hand)

    def line() -> dict[str, Any]:
        record = logging.LogRecord("x", logging.WARNING, __file__, 1, "what %s", ("it says\n",), None)
        found: dict[str, Any] = json.loads(formatter.format(record))
        return found

    assert (line()["table"], line()["batch"]) == (None, None)
    observe(Step(table="s.t", step="replica", batch=7))
    assert (line()["run"], line()["table"], line()["batch"], line()["message"]) == ("run-1", "s.t", 7, "what it says\n")
    other: list[Any] = []
    thread = threading.Thread(target=lambda: other.append(line()["table"]))
    thread.start()
    thread.join()
    assert other == [None], "another thread works on another table"
    observe(Step(table="s.t", step="done"))
    assert line()["table"] is None


def test_points_are_of_metrics_that_are_declared() -> None:
    checked = (ExpectationCount(name="ok", on="warn", checked=9, failed=2),)
    freshness = Freshness(lag_seconds=1.0, complete_until="2026-01-31T12:00:00+00:00")
    one = result(freshness=freshness, main=MainCounts(rows=1), expectations=checked)
    found = list(points_of(one, "small", 1.0))
    assert {p.metric for p in found} == METRICS.keys() - {"gddl_warnings"}
    counts = {p.metric: p.value for p in found if ("expectation", "ok") in p.labels}
    assert counts == {"gddl_expectation_checked": 9, "gddl_expectation_failed": 2}
    until = {p.value for p in found if p.metric == "gddl_complete_until_timestamp_seconds"}
    assert until == {datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()}
