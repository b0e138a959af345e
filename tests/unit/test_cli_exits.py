"""Exit statuses: failed tables, then bad metadata, then passing faults."""

from __future__ import annotations

import pytest

from airflow_gddl.cli.context import of_error, of_outcome, real
from airflow_gddl.cli.main import invoke
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError, QuarantinableError, RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runners.interface import JobOutcome

GOOD = JobResult(table="a.a", status="succeeded")
IDLE = JobResult(table="a.b", status="skipped")
FAILED = JobResult(table="a.c", status="failed")


@pytest.mark.parametrize(
    ("results", "job", "cancelled", "bad_rows", "status"),
    [
        ((GOOD, IDLE), 0, None, False, 0),
        ((GOOD,), 0, None, True, 2),
        ((), 0, None, True, 2),
        ((GOOD, FAILED), 1, None, False, 1),
        ((GOOD, FAILED), 1, None, True, 1),
        ((GOOD, FAILED), 75, None, False, 75),
        ((GOOD, FAILED), 75, None, True, 2),
        ((FAILED,), 2, None, False, 2),
        ((FAILED,), 137, None, False, 1),
        ((FAILED,), 137, None, True, 1),
        ((GOOD,), 139, None, False, 1),
        ((GOOD, FAILED), 137, 15, False, 143),
        ((GOOD, FAILED), 1, 2, True, 130),
        ((GOOD,), 0, 2, False, 0),
    ],
)
def test_exit_status_of_a_job(
    results: tuple[JobResult, ...], job: int, cancelled: int | None, bad_rows: bool, status: int
) -> None:
    outcome = JobOutcome(results=results, exit_status=job, cancelled_by=cancelled)
    assert of_outcome(outcome, bad_rows=bad_rows) == status


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (MetadataError("X", "x"), 2),
        (FatalError("JAVA_MISSING", "x"), 2),
        (RetriableError("X", "x"), 75),
        (QuarantinableError("X", "x"), 1),
    ],
)
def test_exit_status_of_an_error(error: GddlError, status: int) -> None:
    assert of_error(error) == status


@pytest.mark.parametrize(
    ("command", "option", "other"),
    [
        (["plan", "--markdown"], "--markdown", "--diff"),
        (["plan", "--no-records"], "--no-records", "--diff"),
        (["verify", "--by", "day"], "--by", "--since"),
        (["verify", "--column", "updated_at"], "--column", "--since"),
    ],
)
def test_an_option_that_says_nothing_alone_is_refused(
    command: list[str], option: str, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert invoke(command, real()) == 2
    assert f"[OPTION_INVALID] {option} without {other}" in capsys.readouterr().err
