"""Whom to tell of what: once when it begins, once when it is over."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, RunWarning
from airflow_gddl.runtime.state.alerts import after_notifying, alerts, lateness, moves, problems
from airflow_gddl.runtime.state.board import BoardRow
from airflow_gddl.runtime.state.facts import TableRecord
from airflow_gddl.runtime.state.judging import Knowledge, judge
from tests.unit.test_state_judging import ROW, moment, result

NOW = 1010.0


def standing(done: JobResult, now: float = NOW, **row: object) -> BoardRow:
    record = TableRecord().after(done, now)
    changed = replace(ROW, **row)  # type: ignore[arg-type]  # fields of a row by name
    return BoardRow(
        row=changed, record=record, poll=None, state=judge(changed, Knowledge(record=record, seen=0.0), now)
    )


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
        (replace(GOOD, warnings=(RunWarning(code="ENGINE_FALLBACK", message="m"),)), NOW, []),
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
def test_what_holds(done: JobResult, now: float, codes: list[str]) -> None:
    one = standing(done, now)
    assert [problem.code for problem in problems(one, 0.01)] == codes
    assert problems(standing(done, now, enabled=False), 0.01) == []


def test_one_alert_at_the_begin_and_one_at_the_end() -> None:
    bad, good = standing(replace(GOOD, rows_read=4), owner="sales"), standing(GOOD)
    fresh = alerts([bad], {}, 0.01)
    reported = after_notifying({}, fresh)
    assert [(one.change, one.code, one.owner) for one in fresh] == [("began", "ROWS_MISSING", "sales")]
    assert "4 rows were read, 300 accounted for" in fresh[0].line
    assert alerts([bad], reported, 0.01) == []
    over = alerts([good], reported, 0.01)
    assert [(one.change, one.code) for one in over] == [("over", "ROWS_MISSING")]
    assert alerts([good], after_notifying(reported, over), 0.01) == []


def test_lateness_without_a_load_sends_one_alert_and_keeps_others() -> None:
    late, fresh_again = standing(GOOD, 1031), standing(GOOD)
    reported = {"shop.a": ("SEQUENCE_TIE",)}
    began = lateness([late], reported)
    assert [(one.change, one.code) for one in began] == [("began", "FRESHNESS_MISSED")]
    assert "31 s behind" in began[0].text
    after = after_notifying(reported, began)
    assert after == {"shop.a": ("FRESHNESS_MISSED", "SEQUENCE_TIE")}
    assert lateness([late], after) == []
    over = lateness([fresh_again], after)
    assert [(one.change, one.code, one.text) for one in over] == [("over", "FRESHNESS_MISSED", "")]
    last = after_notifying(after, over)
    assert last == reported
    assert lateness([fresh_again], last) == []


def test_alerts_sent_by_others_are_kept() -> None:
    """Two tasks tell at a time: each adds what it told to what stands there then."""
    began = lateness([standing(GOOD, 1031)], {})
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
    assert (found.notified, found.taken, found.left) == (reported, taken, left)
