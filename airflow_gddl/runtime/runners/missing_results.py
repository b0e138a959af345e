"""Failures of tables for which a run has ended without a result."""

from __future__ import annotations

import re
from datetime import timedelta

from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.s3_errors import CODES
from airflow_gddl.runtime.runners.attempts import Attempt
from airflow_gddl.runtime.runners.platform import Handle, RunStatus

_OF_ORDERS = ("CONTRACT_VERSION", "SPEC_INVALID", "SPEC_UNREADABLE", *sorted(CODES))
_REFUSAL = re.compile(rf"\[({'|'.join(_OF_ORDERS)})\]")
"""Log line of a job that ends before its first table."""


def out_of_time(tier: str, limit: timedelta | None = None) -> ErrorInfo:
    """Of a table that was not done when its task reached its time limit.

    Args:
        limit: null: not named.
    """
    own = f"run_timeout of the tier {tier}{f', {limit}' if limit else ''}"
    message = (
        "[RUN_TIMEOUT] the task reached its time limit before this table was done; nothing is lost, the next try "
        f"resumes where it stopped. Remedy: a load's limit is {own}: raise it, or give the table another size"
    )
    return ErrorInfo(code="RUN_TIMEOUT", message=message)


def out_of_time_result(table: str, run_id: str, tier: str) -> JobResult:
    """The failure of a table whose run, or whose turn to have one, the time limit has ended."""
    return JobResult(table=table, status="failed", run_id=run_id, error=out_of_time(tier))


def unanswered(table: str, attempt: Attempt, run_status: RunStatus, handle: Handle) -> JobResult:
    """The failure of a table for which the run ended without a result."""
    if attempt.timed_out:
        return out_of_time_result(table, attempt.submission.run_id, attempt.submission.size)
    if run_status.state == "cancelled":
        code, what = "REMOTE_RUN_CANCELLED", "the run was cancelled before this table was done"
    elif run_status.state == "lost":
        code, what = "REMOTE_RUN_LOST", "the platform no longer knows the run"
    elif (refusal := _REFUSAL.search(run_status.message)) is not None:
        code, what = refusal[1], "the job rejected its JobSpec; nothing was written"
    else:
        code, what = "REMOTE_RUN_FAILED", f"the run {run_status.state} without a result for this table"
    said = f": {run_status.message}" if run_status.message else ""
    where = f". Its page: {handle.page}" if handle.page else ""
    info = ErrorInfo(code=code, message=f"{what}{said}{where}")
    return JobResult(table=table, status="failed", run_id=attempt.submission.run_id, error=info)
