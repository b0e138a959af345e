"""Commands name each code for which a result lets its table need attention, or fails it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import show_troubles
from airflow_gddl.contract.codes import (
    FOLDER_MISSING,
    MAINTENANCE_DUE,
    QUARANTINE_RATE,
    QUARANTINE_STALE,
    SOURCE_DIFFERENT,
    SOURCE_STOPPED,
    VERIFY_DIFFERENT,
    WINDOW_DIFFERENT,
)
from airflow_gddl.contract.completeness import WINDOWS
from airflow_gddl.contract.result import ErrorInfo, JobResult, MainCounts, RunWarning
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runtime.state import table_status
from airflow_gddl.runtime.state.table_status import NEEDS_ATTENTION

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
DONE: dict[str, Any] = {"table": "s.t", "status": "succeeded", "run_id": "r", "started_at": "2026-01-01T11:59:00+00:00"}
WINDOW = {"since": "2026-01-01T00:00:00+00:00", "missing_from": "2026-01-01T05:00:00+00:00", "windows": ()}
COUNTED = {
    QUARANTINE_RATE: [
        {"rows_read": 10, "changes_written": 8, "quarantined": 2, "in_quarantine": 2},
        {"main": MainCounts(rows=50), "in_quarantine": 5},
    ],
    "FILE_UNREADABLE": [
        {"in_quarantine": 1, "files_in_quarantine": 1},
        {"action": "errors_replay", "in_quarantine": 1, "files_in_quarantine": 1},
    ],
    VERIFY_DIFFERENT: [{"action": "verify", "details": {"buckets_different": 1, "rows": 1, "expected_rows": 1}}],
    WINDOW_DIFFERENT: [{"action": "verify", "details": {WINDOWS: WINDOW}}],
    SOURCE_DIFFERENT: [{"action": "verify", "details": {"source": {"different": 3}}}],
}
"""By code, results that say it by counts or details alone."""
BY_TIME = {MAINTENANCE_DUE, SOURCE_STOPPED}
"""Codes that no single result brings: of many runs, and of a log that stands still."""
WARNED = sorted({*NEEDS_ATTENTION, QUARANTINE_STALE, FOLDER_MISSING})


def said(result: JobResult, capsys: pytest.CaptureFixture[str]) -> str:
    cli = CliContext(environ={}, now=lambda: NOW, new_id=lambda: "aa", job_command=())
    show_troubles(cli, JobOutcome(results=(result,), exit_status=0))
    return capsys.readouterr().err


@pytest.mark.parametrize("code", WARNED)
def test_a_warning_that_needs_attention_is_named(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = JobResult(**DONE, warnings=(RunWarning(code=code, message="it says why"),))
    assert f"[{code}] it says why" in said(result, capsys)


@pytest.mark.parametrize(("code", "fields"), [(code, one) for code, several in COUNTED.items() for one in several])
def test_a_code_that_follows_from_counts_is_named(
    code: str, fields: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"s.t: [{code}] " in said(JobResult(**DONE, **fields), capsys)


@pytest.mark.parametrize("code", ["LOAD_UNREADABLE", WINDOW_DIFFERENT])
def test_an_error_is_named_once(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    result = JobResult(**{**DONE, "status": "failed"}, error=ErrorInfo(code=code, message=f"[{code}] why"))
    assert said(result, capsys).count(code) == 1


def test_a_result_without_problems_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    good = JobResult(**DONE, rows_read=10, changes_written=10, main=MainCounts(rows=10), in_quarantine=0)
    assert said(good, capsys) == ""


def test_each_code_that_is_no_warning_is_tried() -> None:
    """Those that `table_status` names by a constant."""
    named = {code for name, code in vars(table_status).items() if name.endswith("_CODE")}
    assert named <= {*WARNED, *COUNTED, *BY_TIME}
