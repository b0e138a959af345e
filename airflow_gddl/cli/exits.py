"""Exit statuses, part of the public contract."""

from __future__ import annotations

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.runtime.runners.base import JobOutcome

OK = 0
FAILED = 1
BAD_METADATA = 2
RETRY = 75


def of_outcome(outcome: JobOutcome, *, bad_rows: bool) -> int:
    """By precedence: failed tables, invalid metadata, transient errors; 128 plus the signal's number after a signal."""
    failed = [result for result in outcome.results if result.status == "failed"]
    if failed and outcome.cancelled_by is not None:
        return 128 + outcome.cancelled_by
    if failed and outcome.exit_status not in (BAD_METADATA, RETRY):
        return FAILED
    if bad_rows:
        return BAD_METADATA
    return outcome.exit_status if outcome.exit_status in (OK, BAD_METADATA, RETRY) else FAILED


def of_error(error: GddlError) -> int:
    """Status of an error outside a table's run, which changed nothing: the caller must fix it, or retry."""
    if isinstance(error, RetriableError):
        return RETRY
    return BAD_METADATA if isinstance(error, FatalError) else FAILED
