"""Outcome of a table whose process exceeded a limit or died."""

from __future__ import annotations

import logging
from dataclasses import replace

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import JobResult, error_info
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.table.outcome import TableOutcome

_LOG = logging.getLogger(__name__)
NEEDS_MEMORY = "it needs more memory than delta_rs_memory"


def too_late(spec: TableSpec) -> RetriableError:
    what = f"{spec.table} took longer than its tier's delta_rs_timeout and was stopped"
    return RetriableError("TABLE_TIMEOUT", what, remedy="run again, it resumes; or raise delta_rs_timeout")


def died_twice(spec: TableSpec, status: int | None = None) -> RetriableError:
    """
    Args:
        status: of the process that died last; None where it is not known.
    """
    last = "" if status is None else f", the last with status {status}"
    what = f"two processes that worked on {spec.table} died{last} (out of memory?)"
    return RetriableError("WORKER_DIED", what, remedy="see the job's log; a tier with engine spark may take the table")


def failed(job: JobSpec, spec: TableSpec, error: RetriableError) -> TableOutcome:
    _LOG.error("%s failed: %s", spec.table, error)
    return refused(job, spec, error)


def too_late_after(done: JobResult, spec: TableSpec) -> TableOutcome:
    """The failure of a table that was stopped.

    Args:
        done: what its run had done by then.
    """
    error = too_late(spec)
    _LOG.error("%s failed: %s", spec.table, error)
    return TableOutcome(replace(done, status="failed", error=error_info(error)), retriable=True)


def refused(job: JobSpec, spec: TableSpec, error: GddlError) -> TableOutcome:
    """The failure of a table without an outcome, which need not be that of its own process."""
    result = JobResult(table=spec.table, status="failed", engine="delta_rs", run_id=job.run_id, error=error_info(error))
    return TableOutcome(result, retriable=isinstance(error, RetriableError))
