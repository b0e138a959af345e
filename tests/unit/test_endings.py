"""Each action on each code of the state `attention`: it ends the code where the table of endings says so alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.codes import (
    ENDINGS,
    FILE_UNREADABLE,
    FOLDER_MISSING,
    KEYS_SHARED,
    LOAD_INCOMPLETE,
    MAINTENANCE_DUE,
    QUARANTINE_RATE,
    QUARANTINE_STALE,
    SOURCE_DIFFERENT,
    SOURCE_STOPPED,
    VERIFY_DIFFERENT,
    WINDOW_DIFFERENT,
)
from airflow_gddl.contract.codes.code import COUNTS
from airflow_gddl.contract.result import ErrorInfo, JobResult, MainCounts, RunWarning
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import NEEDS_ATTENTION, judge, what_to_do
from airflow_gddl.runtime.table_directory import TableRow
from tests.harness.asked import DOES
from tests.unit.test_table_status import DAY, ROW, changed_daily

PLAYED = (
    *("run", "rebuild", "reload", "resync_rows", "errors_replay", "errors_dismiss", "erase"),
    *("maintain", "adopt", "release", "verify"),
)
CALM: TableRow = replace(ROW, freshness=None)
FILES = {"reload": {"reload": {}}, "rebuild": {"rebuild": {"rekeyed": True}}}
VERIFIED = {
    "rows": 1, "expected_rows": 1, "buckets_different": 0, "source": {"different": 0},
    "windows": {"since": "1970-01-01T00:00:00+00:00"},
}  # fmt: skip


def outcome(action: str, start: float, *, left: int | None, **fields: Any) -> JobResult:
    """A successful action that warns of nothing.

    Args:
        left: rows that it leaves in quarantine, as far as it counts them.
    """
    details: dict[str, Any] = {**FILES.get(action, {}), **(VERIFIED if action == "verify" else {})}
    details |= {"codes": [KEYS_SHARED]} if action == "errors_dismiss" else {}
    return JobResult(
        table="shop.a", action=action, status="succeeded", mode="refresh" if action in FILES else "incremental",
        run_id=f"{action}{start}",
        started_at=f"1970-04-{11 + int(start):02d}T00:00:00+00:00", details=details, main=MainCounts(rows=10**6),
        in_quarantine=left if action in COUNTS else None, **fields,
    )  # fmt: skip


def with_code(code: str) -> TableRecord:
    """A table that needs attention for this code, by a run of day 0."""
    quarantined = {QUARANTINE_STALE: (3, 0), QUARANTINE_RATE: (3, 0), FILE_UNREADABLE: (3, 3)}.get(code, (0, 0))
    warned = (RunWarning(code=code, message="x"),) if code in (*NEEDS_ATTENTION, FOLDER_MISSING) else ()
    first = outcome("run", 0, left=quarantined[0], files_in_quarantine=quarantined[1], warnings=warned)
    if code == MAINTENANCE_DUE:
        return changed_daily(100)
    record = TableRecord().after(first, 0)
    if code in (VERIFY_DIFFERENT, SOURCE_DIFFERENT):
        wrong = replace(outcome("verify", 1, left=None), status="failed", details={},
                        error=ErrorInfo(code=code, message="x"))  # fmt: skip
        return record.after(wrong, 0)
    return replace(record, missing_from=1.0) if code == WINDOW_DIFFERENT else record


def attention(record: TableRecord, code: str) -> tuple[str, ...]:
    rate = 1e-9 if code == QUARANTINE_RATE else 0.5
    return judge(CALM, record, 100.5 * DAY, quarantine_rate=rate).attention


CODES = [code for code in ENDINGS if code not in (SOURCE_STOPPED, WINDOW_DIFFERENT)]
"""All but those that no record of a run alone shows: see `test_completeness`."""


def test_the_table_has_every_code_and_only_actions() -> None:
    assert {*NEEDS_ATTENTION} <= ENDINGS.keys()
    for code, how in ENDINGS.items():
        assert {*(how.ends or ())} <= DOES, code


@pytest.mark.parametrize("code", ENDINGS)
def test_a_code_says_what_to_do_about_the_table(code: str) -> None:
    """In the status, alerts and on the page, where no message of a run is at hand."""
    text = what_to_do(code, "shop.a")
    assert not text.startswith("see "), text
    assert "--table T" not in text
    assert code not in ("FOREIGN_COMMIT", "SWEEP_HELD", "TRUNCATE_HELD") or "--table shop.a`" in text


@pytest.mark.parametrize("code", CODES)
def test_a_code_ends_by_the_actions_of_its_row_alone(code: str) -> None:
    record = with_code(code)
    assert attention(record, code) == (code,)
    ended = {action for action in PLAYED if not attention(record.after(outcome(action, 5, left=0), 0), code)}
    assert ended == {*(ENDINGS[code].ends or ())}


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("action", PLAYED)
def test_no_action_that_fails_or_says_it_again_ends_a_code(action: str, code: str) -> None:
    record = with_code(code)
    if code != MAINTENANCE_DUE:
        failed = replace(outcome(action, 5, left=None), status="failed", details={})
        assert code in attention(record.after(failed, 0), code)
    if code in (*NEEDS_ATTENTION, FOLDER_MISSING) and code != FILE_UNREADABLE:
        again = outcome(action, 5, left=0, warnings=(RunWarning(code=code, message="x"),))
        assert code in attention(record.after(again, 0), code)


@pytest.mark.parametrize("code", [code for code, how in ENDINGS.items() if how.ends == COUNTS])
@pytest.mark.parametrize("action", PLAYED)
def test_what_is_left_in_quarantine_keeps_its_codes(action: str, code: str) -> None:
    """A rebuild reads no quarantine, and so it is for all that leave it as it was."""
    files = 3 if code == FILE_UNREADABLE else 0
    record = with_code(code).after(outcome(action, 5, left=3, files_in_quarantine=files), 0)
    assert attention(record, code) == (code,)


def test_an_idle_run_ends_what_it_has_seen_alone() -> None:
    idle = JobResult(table="shop.a", status="skipped", started_at="1970-04-16T00:00:00+00:00")
    ended = {code for code in CODES if not attention(with_code(code).after(idle, 0), code)}
    assert ended == {FOLDER_MISSING, LOAD_INCOMPLETE}
