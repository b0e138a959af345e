"""Whom to tell of what: once when it begins, once when it is over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from airflow_gddl.contract.result import ErrorInfo, JobResult, RunWarning
from airflow_gddl.state.alerts import alerts, lateness, problems
from airflow_gddl.state.board import Standing
from airflow_gddl.state.facts import TableRecord
from airflow_gddl.state.judging import judge
from tests.unit.test_state_judging import ROW, moment, result

NOW = 1010.0


def standing(done: JobResult, now: float = NOW, **row: object) -> Standing:
    record = TableRecord().after(done, now)
    changed = replace(ROW, **row)  # type: ignore[arg-type]  # fields of a row by name
    return Standing(row=changed, record=record, look=None, state=judge(changed, record, None, now))


GOOD = replace(result("succeeded", 1000, 995), quarantined=0, changes_written=3)


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


def test_told_once_when_it_begins_and_once_when_it_is_over() -> None:
    bad, good = standing(replace(GOOD, rows_read=4), owner="sales"), standing(GOOD)
    fresh, told = alerts([bad], {}, 0.01)
    assert [(one.change, one.code, one.owner) for one in fresh] == [("began", "ROWS_MISSING", "sales")]
    assert "4 rows were read, 3 accounted for" in fresh[0].line
    again, told = alerts([bad], told, 0.01)
    assert again == []
    over, told = alerts([good], told, 0.01)
    assert [(one.change, one.code) for one in over] == [("over", "ROWS_MISSING")]
    assert alerts([good], told, 0.01)[0] == []


def test_lateness_without_a_load_is_told_once_and_leaves_the_rest_alone() -> None:
    late, fresh_again = standing(GOOD, 1031), standing(GOOD)
    told = {"shop.a": ("SEQUENCE_TIE",)}
    began, after = lateness([late], told)
    assert [(one.change, one.code) for one in began] == [("began", "FRESHNESS_MISSED")]
    assert "31 s behind" in began[0].text
    assert after == {"shop.a": ("FRESHNESS_MISSED", "SEQUENCE_TIE")}
    assert lateness([late], after) == ([], {})
    over, last = lateness([fresh_again], after)
    assert [(one.change, one.code, one.text) for one in over] == [("over", "FRESHNESS_MISSED", "")]
    assert last == told
    assert lateness([fresh_again], last) == ([], {})
