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


def failed(job: JobSpec, spec: TableSpec, error: RetriableError, done: JobResult | None = None) -> TableOutcome:
    """`refused`, logged."""
    _LOG.error("%s failed: %s", spec.table, error)
    return refused(job, spec, error, done)


def refused(job: JobSpec, spec: TableSpec, error: GddlError, done: JobResult | None = None) -> TableOutcome:
    """The failure of a table without an outcome, which need not be that of its own process.

    Args:
        done: what its run had done by then; None: that is not known.
    """
    known = done or JobResult(table=spec.table, status="failed", engine="delta_rs", run_id=job.run_id)
    return TableOutcome(
        replace(known, status="failed", error=error_info(error)), retriable=isinstance(error, RetriableError)
    )
