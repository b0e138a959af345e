"""The register of codes says how to react: raise sites, results and exit statuses agree with it."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_gddl.cli.context import of_outcome
from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.result import JobResult, error_info
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runners.this_machine import JobLog
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.job_tables import exit_status
from tests.unit.pages import SOURCES, trees
from tests.unit.test_docs import documented_codes

KINDS = {code: tuple(kind.split(", ")) for code, kind, *_ in documented_codes()}
_OF_CLASS = {
    "FatalError": {"fatal", "setup", "retried", "problem"},
    "MetadataError": {"fatal", "setup", "problem"},
    "NewerDocumentError": {"fatal"},
    "RefusedError": {"fatal"},
    "RetriableError": {"retriable"},
    "QuarantinableError": {"row", "file", "warning"},
    "DocumentError": {"problem", "file"},
    "CatalogError": {"warning"},
    "RunWarning": {"warning", "problem"},
    "ErrorInfo": {"fatal", "retried", "retriable"},
    "_KnownError": {"fatal", "retried", "retriable"},
}
"""The kinds of codes that each class may carry."""
ERRORS = [code for code, kinds in KINDS.items() if {"fatal", "setup", "retried", "retriable"}.intersection(kinds[:1])]


def raised(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Each code with the class that carries it."""
    for call in ast.walk(tree):
        if isinstance(call, ast.Call):
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            given = [*call.args[:1], *(word.value for word in call.keywords if word.arg == "code")]
            for code in (getattr(one, "id", getattr(one, "attr", "")) for one in given):
                if code in KINDS and (name in _OF_CLASS or name.endswith("Error")):
                    yield code, name


def test_each_raise_site_has_a_class_of_its_code_s_kind() -> None:
    sites = {site for tree in trees(SOURCES) for site in raised(tree)}
    assert len(sites) > 250, "raise sites are found"
    assert [site for site in sorted(sites) if not _OF_CLASS[site[1]].intersection(KINDS[site[0]])] == []


@pytest.mark.parametrize("code", ERRORS)
def test_results_and_exit_statuses_follow_the_table(code: str) -> None:
    kind = KINDS[code][0]
    error = (RetriableError if kind == "retriable" else FatalError)(code, "what")
    failed = JobResult(table="s.t", status="failed", error=error_info(error))
    assert failed.error is not None
    assert failed.error.fatal == (kind in ("fatal", "setup"))
    status = {"setup": 2, "retriable": 75}.get(kind, 1)
    assert exit_status([TableOutcome(failed, kind == "retriable")]) == status
    of_job = JobOutcome(results=(failed,), exit_status=status)
    assert of_outcome(of_job, bad_rows=False) == status
    other = JobResult(table="s.u", status="failed", error=error_info(FatalError("BAD_ROWS", "what")))
    assert exit_status([TableOutcome(failed, kind == "retriable"), TableOutcome(other)]) == 1
    assert of_outcome(JobOutcome(results=(failed, other), exit_status=1), bad_rows=False) == 1


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a full disk is one of Linux")  # noqa: PTH110 - no file
def test_a_log_on_a_full_disk_changes_nothing_of_the_job(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "run.log").symlink_to("/dev/full")
    log = JobLog(tmp_path, "run")
    for number in range(3):
        log.write(f"line {number}")
    log.close()
    assert log.tail == "line 0\nline 1\nline 2"
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        f"lines are missing in the job's log {tmp_path}/run.log"
    ]
