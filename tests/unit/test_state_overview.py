"""Figures of many tables over time, from the digests of their last runs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from airflow_gddl.contract.result import ErrorInfo, Freshness, JobResult
from airflow_gddl.runtime.state.lake_state import LakeState, table_statuses
from airflow_gddl.runtime.state.overview import PeriodFigures, overview
from airflow_gddl.runtime.state.table_runs import KEPT_RUNS, TableRecord
from airflow_gddl.runtime.state.table_status import TableStatus
from airflow_gddl.runtime.table_directory import TableRow

HOUR, DAY = 3600.0, 86_400.0
NOW = 472_222 * HOUR + 600
"""Ten minutes past an hour."""


def ran(ago: float, **given: Any) -> JobResult:
    started = datetime.fromtimestamp(NOW - ago, UTC).isoformat()
    lag = Freshness(lag_seconds=given.pop("lag", None))
    shown = {"status": "succeeded", "changes_written": 10, "seconds": 5.0, "freshness": lag, "run_id": f"r{ago}"}
    return JobResult(table="s.t", started_at=started, **{**shown, **given})


def failed(ago: float) -> JobResult:
    return ran(ago, status="failed", error=ErrorInfo(code="X", message="x"), changes_written=0, seconds=99.0, lag=9e6)


def board(**tables: tuple[dict[str, Any], list[JobResult]]) -> list[TableStatus]:
    records, rows = {}, []
    for name, (fields, results) in tables.items():
        record = TableRecord()
        for result in results:
            record = record.after(result, NOW)
        records[f"s.{name}"] = record
        rows.append(TableRow(table=f"s.{name}", **fields))
    return table_statuses(rows, LakeState(records=records), NOW)


def fields(**given: Any) -> dict[str, Any]:
    return {"source": "s", "tier": "small", "priority": "normal", "dag_id": "d", **given}


def test_runs_are_counted_in_the_hour_in_which_they_began() -> None:
    found = overview(
        board(a=(fields(), [ran(300, lag=60.0), ran(700, lag=10.0), failed(650), ran(25 * HOUR)])), NOW, "day"
    )
    assert [start for start, _ in found.periods] == [NOW - 600 - (23 - at) * HOUR for at in range(24)]
    newest, before = found.periods[-1][1], found.periods[-2][1]
    assert newest == PeriodFigures(runs=1, failed=0, rows=10, lag=(60.0, 60.0), seconds=(5.0, 5.0))
    assert before == PeriodFigures(runs=2, failed=1, rows=10, lag=(10.0, 10.0), seconds=(5.0, 5.0))
    assert sum(one.runs for _, one in found.periods) == 3
    nothing = PeriodFigures(runs=0, failed=0, rows=0, lag=None, seconds=None)
    assert {one for _, one in found.periods[:-2]} == {nothing}
    assert found.complete_since is None


def test_the_overview_has_percentiles_by_day() -> None:
    lags = [float(number) for number in range(1, 11)]
    results = [ran(30 + number, lag=lag, seconds=lag * 2) for number, lag in enumerate(lags)]
    found = overview(board(a=(fields(), results)), NOW, "fortnight")
    assert len(found.periods) == 14
    assert (found.periods[-1][1].lag, found.periods[-1][1].seconds) == ((5.0, 10.0), (10.0, 20.0))


def test_groups_are_those_of_sources_and_owners() -> None:
    found = overview(
        board(
            a=(fields(source="erp", owner="sales"), [ran(60), failed(50)]),
            b=(fields(source="erp"), [ran(70)]),
            c=(fields(source="crm", owner="sales"), [ran(80)]),
            idle=(fields(source="old", owner="none"), [ran(40 * DAY)]),
        ),
        NOW,
        "day",
    )
    assert {name: (one.runs, one.failed, one.rows) for name, one in found.sources.items()} == {
        "crm": (1, 0, 10), "erp": (3, 1, 20),
    }  # fmt: skip
    assert {name: (one.runs, one.failed) for name, one in found.owners.items()} == {"": (1, 0), "sales": (3, 1)}


def test_it_says_since_when_all_runs_are_known() -> None:
    often = [ran(60.0 * number) for number in range(KEPT_RUNS + 6)]
    found = overview(board(a=(fields(), often), b=(fields(), [ran(HOUR)])), NOW, "day")
    assert found.complete_since == NOW - 60 * (KEPT_RUNS - 1)
    assert sum(one.runs for _, one in found.periods) == KEPT_RUNS + 1
