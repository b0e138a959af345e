"""Whom to tell of what: once when it begins, once when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, RunWarning
from airflow_gddl.runtime.state.alerts import (
    METADATA,
    AlertLimits,
    after_notifying,
    alerts,
    moves,
    of_metadata,
    problems,
    without_load,
)
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import TableStatus, judge
from tests.unit.test_table_status import ROW, moment, result

NOW = 1010.0
LIMITS = AlertLimits(quarantine_rate=0.01, failed_runs=2)


def standing(done: JobResult, now: float = NOW, **row: object) -> TableStatus:
    record = TableRecord().after(done, now)
    changed = replace(ROW, **row)  # type: ignore[arg-type]  # fields of a row by name
    return judge(changed, replace(record, seen=0.0), now)


GOOD = replace(result("succeeded", 1000, 995), quarantined=0, changes_written=300)


@pytest.mark.parametrize(
    ("done", "now", "codes"),
    [
        (GOOD, NOW, []),
        (GOOD, 1031, ["FRESHNESS_MISSED"]),
        (replace(GOOD, rows_read=100, changes_written=98, quarantined=2), NOW, ["QUARANTINE_RATE"]),
        (replace(GOOD, rows_read=100, changes_written=99, quarantined=1), NOW, []),
        (replace(GOOD, rows_read=4), NOW, ["ROWS_MISSING"]),
        (replace(GOOD, warnings=(RunWarning(code="SEQUENCE_TIE", message="m"),)), NOW, ["SEQUENCE_TIE"]),
        (replace(GOOD, warnings=(RunWarning(code="NEEDS_MANY_TASKS", message="m"),)), NOW, []),
        (
            JobResult(
                table="shop.a",
                status="failed",
                started_at=moment(1000),
                error=ErrorInfo(code="SCHEMA_REFUSED", message="a column is text"),
            ),
            NOW,
            ["FRESHNESS_MISSED", "SCHEMA_REFUSED"],
        ),
    ],
)
def test_problems_of_a_table_follow_its_last_run_and_limits(done: JobResult, now: float, codes: list[str]) -> None:
    one = standing(done, now)
    assert [problem.code for problem in problems(one, LIMITS)] == codes
    assert problems(standing(done, now, enabled=False), LIMITS) == []


def test_one_alert_at_the_begin_and_one_at_the_end() -> None:
    bad, good = standing(replace(GOOD, rows_read=4), owner="sales"), standing(GOOD)
    fresh = alerts([bad], {}, LIMITS)
    reported = after_notifying({}, fresh)
    assert [(one.change, one.code, one.owner) for one in fresh] == [("began", "ROWS_MISSING", "sales")]
    assert "4 rows were read, 300 accounted for" in fresh[0].line
    assert alerts([bad], reported, LIMITS) == []
    over = alerts([good], reported, LIMITS)
    assert [(one.change, one.code) for one in over] == [("over", "ROWS_MISSING")]
    assert alerts([good], after_notifying(reported, over), LIMITS) == []


def test_lateness_without_a_load_sends_one_alert_and_keeps_others() -> None:
    late, fresh_again = (row_with(record_with((GOOD, ("r", "t"))), at, freshness=30) for at in (1031, NOW))
    reported = {"shop.a": ("SEQUENCE_TIE",)}
    began = without_load([late], reported, LIMITS, 1031)
    assert [(one.change, one.code) for one in began] == [("began", "FRESHNESS_MISSED")]
    assert "31 s behind" in began[0].text
    after = after_notifying(reported, began)
    assert after == {"shop.a": ("FRESHNESS_MISSED", "SEQUENCE_TIE")}
    assert without_load([late], after, LIMITS, 1031) == []
    over = without_load([fresh_again], after, LIMITS, NOW)
    assert [(one.change, one.code, one.text) for one in over] == [("over", "FRESHNESS_MISSED", "")]
    last = after_notifying(after, over)
    assert last == reported, "its load has just ended, and sends what it changed"
    assert without_load([fresh_again], last, LIMITS, NOW) == []


def test_no_load_sends_the_alerts_of_a_run_by_hand() -> None:
    warning = RunWarning(code="BATCH_LATE", message="late")
    bad, good = standing(replace(GOOD, warnings=(warning,))), standing(GOOD)
    began = without_load([bad], {}, LIMITS, NOW)
    assert [(one.change, one.code) for one in began] == [("began", "BATCH_LATE")]
    reported = after_notifying({}, began)
    assert without_load([bad], reported, LIMITS, NOW) == []
    over = without_load([good], reported, LIMITS, NOW)
    assert [(one.change, one.code) for one in over] == [("over", "BATCH_LATE")]
    assert without_load([good], after_notifying(reported, over), LIMITS, NOW) == []


def failed(started: int, run: str, code: str = "JOB_FAILED") -> tuple[JobResult, tuple[str, str]]:
    error = ErrorInfo(code=code, message=f"[{code}] no, in LOAD1.parquet")
    return JobResult(table="shop.a", status="failed", started_at=moment(started), run_id=run, error=error), (run, "t")


def record_with(*runs: tuple[JobResult, tuple[str, str]]) -> TableRecord:
    record = TableRecord()
    for result_, airflow in runs:
        record = record.after(result_, NOW, airflow)
    return record


def row_with(record: TableRecord, now: float = NOW, **row: object) -> TableStatus:
    changed = replace(ROW, **{"freshness": None, **row})  # type: ignore[arg-type]  # fields of a row by name
    return judge(changed, record, now)


@pytest.mark.parametrize(
    ("runs", "codes"),
    [
        ([failed(1000, "r1")], []),
        ([failed(1000, "r1"), failed(1001, "r1"), failed(1002, "r1")], []),
        ([failed(1000, "r1"), failed(1001, "r2")], ["LOAD_FAILED"]),
        ([failed(1000, "r1"), failed(1001, "r2", "EXPECTATION_FAILED")], ["EXPECTATION_FAILED"]),
        ([failed(1000, "r1"), (result("succeeded", 1001, 995), ("r2", "t")), failed(1002, "r3")], []),
    ],
)
def test_a_table_without_freshness_that_keeps_failing_is_reported(runs: Any, codes: list[str]) -> None:
    found = row_with(record_with(*runs))
    assert [one.code for one in problems(found, LIMITS) if one.code != "ROWS_MISSING"] == codes
    if codes == ["LOAD_FAILED"]:
        assert alerts([found], {}, LIMITS)[0].text == (
            "it failed in 2 runs in a row: [JOB_FAILED] no, in LOAD1.parquet"
        )


def test_one_failed_run_is_reported_where_that_is_configured() -> None:
    found = row_with(record_with(failed(1000, "r1")))
    limits = AlertLimits(quarantine_rate=0.01, failed_runs=1)
    assert [one.text for one in problems(found, limits)] == ["it failed: [JOB_FAILED] no, in LOAD1.parquet"]


def test_everything_that_needs_attention_is_reported() -> None:
    warned = replace(GOOD, warnings=(RunWarning(code="SWEEP_HELD", message="m"),))
    found = row_with(TableRecord().after(warned, NOW))
    assert [(one.code, one.of_run) for one in problems(found, LIMITS)] == [("SWEEP_HELD", True)]
    lost = replace(found, attention=("FOLDER_MISSING", "SWEEP_HELD"))
    assert {one.code: one.text for one in problems(lost, LIMITS)}["FOLDER_MISSING"].startswith(
        "the landing folder is missing"
    )
    warned = replace(GOOD, warnings=(RunWarning(code="FOLDER_MISSING", message="no folder; folders there: shop/as"),))
    named = replace(row_with(TableRecord().after(warned, NOW)), attention=("FOLDER_MISSING",))
    assert [one.text for one in problems(named, LIMITS)] == ["no folder; folders there: shop/as"]


def test_an_invalid_row_is_reported_once_and_ends_no_other_alert() -> None:
    lines = ("tables/a.yaml:3: [FIELD_UNKNOWN] shop.a keyz", "tables/a.yaml:3: [FIELD_REQUIRED] shop.a keys")
    broken = row_with(record_with(failed(1000, "r1")), 2000.0, problems=lines, dag_id=None)
    reported = {"shop.a": ("FRESHNESS_MISSED", "SWEEP_HELD")}
    (alert,) = without_load([broken], reported, LIMITS, 2000.0)
    assert (alert.change, alert.code, alert.text) == ("began", "ROW_INVALID", f"{lines[0]} (2 problems)")
    after = after_notifying(reported, [alert])
    assert without_load([broken], after, LIMITS, 2000.0) == []
    valid = row_with(TableRecord())
    over = without_load([valid], {"shop.a": ("ROW_INVALID",)}, LIMITS, 2000.0)
    assert [(one.change, one.code) for one in over] == [("over", "ROW_INVALID")]


def test_metadata_outside_of_rows_is_reported() -> None:
    (alert,) = of_metadata(["tables/a.yaml:1: [DOCUMENT_INVALID] no"], {})
    assert alert.line == "(metadata): [METADATA_INVALID] tables/a.yaml:1: [DOCUMENT_INVALID] no ▸ gddl validate"
    assert of_metadata(["another"], {METADATA: ("METADATA_INVALID",)}) == []
    assert [one.change for one in of_metadata([], {METADATA: ("METADATA_INVALID",)})] == ["over"]


def test_alerts_sent_by_others_are_kept() -> None:
    """Two tasks tell at a time: each adds what it told to what stands there then."""
    began = without_load([standing(GOOD, 1031)], {}, LIMITS, 1031)
    assert after_notifying({"shop.a": ("ROWS_MISSING",), "shop.b": ("X_Y",)}, began) == {
        "shop.a": ("FRESHNESS_MISSED", "ROWS_MISSING"),
        "shop.b": ("X_Y",),
    }


@pytest.mark.parametrize(
    ("told_by", "reported", "taken", "left"),
    [
        ({"new": {"t": ("A",)}}, {"t": ("A",)}, {}, {}),
        ({"old": {"t": ("A",)}}, {"t": ("A",)}, {"new": {"t": ("A",)}}, {"old": ("t",)}),
        ({"old": {"t": ("A",)}, "new": {"t": ()}}, {"t": ()}, {}, {"old": ("t",)}),
        ({"old": {"t": ("A",)}, "older": {"t": ("B",)}}, {"t": ("A", "B")}, {"new": {"t": ("A", "B")}},
         {"old": ("t",), "older": ("t",)}),
        ({"old": {"gone": ("A",)}}, {}, {}, {}),
    ],
)  # fmt: skip
def test_sent_alerts_move_with_their_table(told_by: Any, reported: Any, taken: Any, left: Any) -> None:
    found = moves(told_by, {"t": "new"})
    assert (found.notified, found.taken, found.strays) == (reported, taken, left)
