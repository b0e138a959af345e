"""What `gddl status` makes of the records of past runs."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from airflow_gddl.cli.history import read_histories
from airflow_gddl.cli.status import TableStatus, table_status
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult, MainCounts
from airflow_gddl.contract.spec import Roots, TableSpec

NOW = datetime(2024, 1, 2, 12, tzinfo=UTC)


def record(lake: Path, name: str, result: JobResult | str) -> None:
    path = lake / "_gddl" / "runs" / "sales" / "orders" / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(result if isinstance(result, str) else to_json(result))


def good(started_at: str, commit_ts: str | None, rows: int = 10) -> JobResult:
    return JobResult(
        table="sales.orders",
        status="succeeded",
        started_at=started_at,
        main=MainCounts(rows=rows),
        freshness=Freshness(commit_ts=commit_ts),
    )


def look(lake: Path, freshness: str | None = "30m") -> TableStatus:
    rows = [TableSpec(table="sales.orders", keys=("id",), freshness=freshness)]
    roots = Roots(landing=str(lake.parent / "landing"), lake=str(lake))
    (history,) = read_histories(roots, rows, {})
    return table_status(history, NOW)


def test_a_table_that_never_ran(tmp_path: Path) -> None:
    line = look(tmp_path)
    assert (line.status, line.mode, line.rows, line.lag_seconds, line.last_run, line.age_seconds) == (
        "never",
        None,
        None,
        None,
        None,
        None,
    )
    assert line.late, "a table with a freshness that holds nothing is late"
    assert not look(tmp_path, freshness=None).late


@pytest.mark.parametrize(
    ("commit_ts", "lag", "late"),
    [
        ("2024-01-02T11:30:00+00:00", 1800.0, False),
        ("2024-01-02T11:29:59Z", 1801.0, True),
        ("2024-01-02T11:45:00", 900.0, False),
        ("2024-01-02T12:45:00+01:00", 900.0, False),
    ],
)
def test_lag_is_against_now(tmp_path: Path, commit_ts: str, lag: float, late: bool) -> None:
    record(tmp_path, "20240102T110000-a", good("2024-01-02T11:00:00+00:00", commit_ts))
    line = look(tmp_path)
    assert (line.lag_seconds, line.late, line.freshness_seconds, line.age_seconds) == (lag, late, 1800, 3600.0)


def test_the_newest_name_is_the_newest_run(tmp_path: Path) -> None:
    failed = JobResult(
        table="sales.orders",
        status="failed",
        mode="refresh",
        quarantined=3,
        started_at="2024-01-02T11:00:00+00:00",
        error=ErrorInfo(code="X_Y", message="broken"),
    )
    record(tmp_path, "20240102T110000-a", failed)
    record(tmp_path, "20240102T090000-b", good("2024-01-02T09:00:00+00:00", "2024-01-02T08:00:00Z", rows=9))
    record(tmp_path, "20240102T100000-c", good("2024-01-02T10:00:00+00:00", "2024-01-02T11:50:00Z", rows=10))
    (tmp_path / "_gddl" / "runs" / "sales" / "orders" / "20240102T113000-d.json.tmp").write_text("half a run")
    line = look(tmp_path)
    assert (line.status, line.mode, line.quarantined, line.error) == ("failed", "refresh", 3, "[X_Y] broken")
    assert (line.last_run, line.last_success) == ("2024-01-02T11:00:00+00:00", "2024-01-02T10:00:00+00:00")
    assert (line.rows, line.lag_seconds, line.late) == (10, 600.0, False), (
        "what a failed run doesn't say is the last good one's"
    )


def test_a_damaged_record_is_told_and_the_older_ones_still_speak(tmp_path: Path) -> None:
    record(tmp_path, "20240102T110000-a", '{"table": "sales.or')
    record(tmp_path, "20240102T100000-a", good("2024-01-02T10:00:00+00:00", "2024-01-02T11:50:00Z"))
    line = look(tmp_path)
    assert (line.status, line.rows, line.last_success) == ("unreadable", 10, "2024-01-02T10:00:00+00:00")


def test_an_old_damaged_record_does_not_matter(tmp_path: Path) -> None:
    record(tmp_path, "20240102T100000-a", "[]")
    record(tmp_path, "20240102T110000-a", good("2024-01-02T10:00:00+00:00", "yesterday"))
    line = look(tmp_path)
    assert (line.status, line.lag_seconds) == ("succeeded", None)


def test_runs_with_nothing_to_do_are_good_ones(tmp_path: Path) -> None:
    idle = JobResult(table="sales.orders", status="skipped", started_at="2024-01-02T11:00:00+00:00")
    record(tmp_path, "20240102T110000-a", idle)
    record(tmp_path, "20240102T100000-a", good("2024-01-02T10:00:00+00:00", "2024-01-02T11:50:00Z"))
    record(tmp_path, "20240102T090000-a", good("2024-01-02T09:00:00+00:00", "2024-01-02T08:50:00Z", rows=9))
    line = look(tmp_path)
    assert (line.status, line.last_success) == ("skipped", "2024-01-02T11:00:00+00:00")
    assert (line.rows, line.lag_seconds) == (10, 600.0)
