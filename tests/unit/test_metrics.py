"""Figures of jobs: what they say, that tables are bounded, and that jobs side by side lose none."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from airflow_gddl.contract.result import ExpectationCount, Freshness, JobResult, MainCounts, RunWarning
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from spark_jobs import job as job_package
from spark_jobs.batch.runtime import Step, silent
from spark_jobs.job.job_logging import JsonFormatter, WorkAtHand
from spark_jobs.job.metrics import METRICS, Point, bounded, points_of
from spark_jobs.job.metrics_file import add, read
from spark_jobs.job.telemetry import publish
from spark_jobs.job.telemetry import send_otel as send
from tests.harness.asked import options_of

DASHBOARD = Path(__file__).parents[2] / "docs" / "grafana.json"


def result(table: str = "s.t", **fields: Any) -> JobResult:
    return replace(JobResult(table=table, status="succeeded", rows_read=5, bytes_read=900, seconds=0.5), **fields)


def job(tables: Sequence[str] = ("s.t",), **options: Any) -> JobSpec:
    specs = tuple(TableSpec(table=name, keys=("id",), size="large") for name in tables)
    return JobSpec(run_id="r", roots=Roots(landing="/l", lake="/k"), tables=specs, options=options_of(**options))


def values(path: Path) -> dict[str, float]:
    """Values by series, labels sorted by name."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def written(path: Path, points: Sequence[Point]) -> Path:
    path.unlink(missing_ok=True)
    add(str(path), points, 500)
    return path


def test_counters_grow_and_gauges_are_the_last(tmp_path: Path) -> None:
    path = tmp_path / "gddl.prom"
    environ = {"GDDL_METRICS_FILE": str(path)}
    warned = (RunWarning(code="SEQUENCE_TIE", message="m", count=3),)
    first = result(warnings=warned, freshness=Freshness(lag_seconds=12.5), main=MainCounts(rows=7), quarantined=2)
    publish(job(), [first], 1000.0, environ)
    publish(job(), [result(status="failed", freshness=Freshness(lag_seconds=3.0))], 2000.0, environ)
    found, own = values(path), 'table="s.t",tier="large"'
    assert found[f"gddl_rows_read_total{{{own}}}"] == 10
    assert found[f"gddl_bytes_read_total{{{own}}}"] == 1800
    assert found[f"gddl_seconds_total{{{own}}}"] == 1.0
    assert found[f"gddl_quarantined_total{{{own}}}"] == 2
    assert found[f'gddl_warnings_total{{code="SEQUENCE_TIE",{own}}}'] == 3
    assert (
        found[f'gddl_runs_total{{status="succeeded",{own}}}'] == found[f'gddl_runs_total{{status="failed",{own}}}'] == 1
    )
    assert (found[f"gddl_lag_seconds{{{own}}}"], found[f"gddl_last_run_failed{{{own}}}"]) == (3.0, 1)
    assert (found[f"gddl_replica_rows{{{own}}}"], found[f"gddl_last_run_timestamp_seconds{{{own}}}"]) == (7, 2000)


def test_the_text_is_prometheus_s(tmp_path: Path) -> None:
    freshness = Freshness(lag_seconds=0.1 + 0.2, complete_until="2026-01-31T12:00:00+00:00")
    hostile = result('s."t\\\n {x="1",}#\u2028', freshness=freshness, main=MainCounts(rows=7),
                     warnings=(RunWarning(code="SEQUENCE_TIE", message="m", count=3),),
                     expectations=(ExpectationCount(name="ok", on="warn", checked=9, failed=2),))  # fmt: skip
    points = points_of(hostile, "small", 1763749658.5)
    path = written(tmp_path / "x.prom", points)
    families = {f.name: f for f in text_string_to_metric_families(path.read_text())}
    assert [(f.name, f.type, f.documentation) for f in families.values()] == [(m.name, m.kind, m.help) for m in METRICS]
    found = {(f.name, s.name, frozenset(s.labels.items()), s.value) for f in families.values() for s in f.samples}
    suffix = {m.name: "_total" if m.kind == "counter" else "" for m in METRICS}
    assert found == {(p.metric, p.metric + suffix[p.metric], frozenset(p.labels), p.value) for p in points}
    assert sorted(read(path), key=str) == sorted(points, key=str)
    text = path.read_text()
    assert written(path, read(path)).read_text() == text


def test_labels_of_a_point_are_sorted_so_that_a_series_read_again_is_the_same() -> None:
    warned = result(warnings=(RunWarning(code="A", message="m", count=1),))
    assert all(list(p.labels) == sorted(p.labels) for p in points_of(warned, "small", 1.0))


def test_a_file_of_an_earlier_release_is_added_to(tmp_path: Path) -> None:
    path, own = tmp_path / "gddl.prom", 'table="s.\\"t\\"",tier="small"'
    path.write_text(
        f"# HELP gddl_rows_read_total Rows read from landing files.\n# TYPE gddl_rows_read_total counter\n"
        f"gddl_rows_read_total{{{own}}} 5\n"
        f"# HELP gddl_runs_total Runs of tables by status.\n# TYPE gddl_runs_total counter\n"
        f'gddl_runs_total{{{own},status="succeeded"}} 1\n'
    )
    add(str(path), points_of(result('s."t"'), "small", 1.0), 500)
    found = values(path)
    assert found[f"gddl_rows_read_total{{{own}}}"] == 10
    assert [value for name, value in found.items() if name.startswith("gddl_runs_total")] == [2]


def test_file_in_another_format_is_unchanged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "gddl.prom"
    path.write_text("gddl_rows_read_total{table=} five\n")
    publish(job(), [result()], 1.0, {"GDDL_METRICS_FILE": str(path)})
    assert "metrics could not be handed on" in caplog.text
    assert path.read_text() == "gddl_rows_read_total{table=} five\n"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["gddl.prom", "gddl.prom.lock"], "no temporary file is left"


def test_other_users_may_read_the_file(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        path = written(tmp_path / "x.prom", points_of(result(), "small", 1.0))
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


def test_a_missing_library_is_named_and_needed_only_for_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "spark_jobs.job.metrics_file")
    monkeypatch.delattr(job_package, "metrics_file")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    publish(job(), [result()], 1.0, {})
    assert caplog.text == ""
    publish(job(), [result()], 1.0, {"GDDL_METRICS_FILE": str(tmp_path / "x.prom")})
    assert "pip install 'airflow-gddl[prometheus]'" in caplog.text
    assert not (tmp_path / "x.prom").exists()


def test_tables_are_bounded_and_keep_their_names(tmp_path: Path) -> None:
    path = str(tmp_path / "gddl.prom")
    for name in ("s.a", "s.b", "s.c", "s.d", "s.a"):
        add(path, points_of(result(name, freshness=Freshness(lag_seconds=len(name) + ord(name[-1]))), "small", 1.0), 2)
    found = values(Path(path))
    read = {name.split('"')[1]: value for name, value in found.items() if name.startswith("gddl_rows_read")}
    assert read == {"s.a": 10, "s.b": 5, "other": 10}


def test_highest_gauge_of_other_tables_is_used() -> None:
    points = [p for n, lag in (("s.a", 1.0), ("s.b", 9.0), ("s.c", 4.0))
              for p in points_of(result(n, freshness=Freshness(lag_seconds=lag)), "small", 1.0)]  # fmt: skip
    found = {p.labels[0][1]: p.value for p in bounded(points, (), 1) if p.metric == "gddl_lag_seconds"}
    assert found == {"s.a": 1.0, "other": 9.0}


def test_jobs_side_by_side_lose_nothing(tmp_path: Path) -> None:
    path = str(tmp_path / "gddl.prom")

    def many() -> None:
        for _ in range(20):
            add(path, points_of(result(), "small", 1.0), 10)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values(Path(path))['gddl_rows_read_total{table="s.t",tier="small"}'] == 4 * 20 * 5


def test_a_file_that_can_t_be_written_fails_no_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    publish(job(), [result()], 1.0, {"GDDL_METRICS_FILE": str(tmp_path / "no" / "x.prom")})
    assert "metrics could not be handed on" in caplog.text


def test_maintenance_publishes_no_metrics(tmp_path: Path) -> None:
    path = tmp_path / "gddl.prom"
    publish(job(action="verify"), [result()], 1.0, {"GDDL_METRICS_FILE": str(path)})
    assert not path.exists()


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
    names = {f"{m.name}_total" if m.kind == "counter" else m.name for m in METRICS}
    used = set(re.findall(r"gddl_[a-z_]+", asked))
    assert used <= names
    assert used >= {"gddl_lag_seconds", "gddl_quarantined_total", "gddl_rows_read_total", "gddl_runs_total"}


def test_the_page_names_every_metric_and_no_other() -> None:
    text = (DASHBOARD.parents[1] / "docs" / "monitoring.md").read_text(encoding="utf-8")
    names = {f"{m.name}_total" if m.kind == "counter" else m.name for m in METRICS}
    of_airflow = {"gddl_watch", "gddl_text", "gddl_alerts", "gddl_upkeep", "gddl_verify"}
    assert set(re.findall(r"\bgddl_[a-z_]+", text)) - of_airflow == names


def test_a_line_of_the_log_names_run_table_and_batch() -> None:
    at_hand = WorkAtHand("run-1")
    observe = at_hand.observing(silent)
    formatter = JsonFormatter(at_hand)

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
    found: list[Point] = points_of(one, "small", 1.0)
    assert {p.metric for p in found} == {m.name for m in METRICS} - {"gddl_warnings"}
    counts = {p.metric: p.value for p in found if ("expectation", "ok") in p.labels}
    assert counts == {"gddl_expectation_checked": 9, "gddl_expectation_failed": 2}
    until = {p.value for p in found if p.metric == "gddl_complete_until_timestamp_seconds"}
    assert until == {datetime(2026, 1, 31, 12, tzinfo=UTC).timestamp()}
