"""A job that kills itself while it loads: for `gddl check --platform`, where no request to the platform kills a job."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import is_of_check
from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.runtime import Step
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.pipeline import run_table


def act(run: TableRun, totals: RunTotals) -> JobResult:
    """Load the table, and kill this process once changes are appended, before they are merged and the batch committed.

    Raises:
        FatalError: `SPEC_INVALID`: the lake is not one that `gddl check --platform` has made.
        GddlError: as `run_table`.
    """
    lake = run.job.roots.lake
    if not is_of_check(lake):
        remedy = "run the job without it; `gddl check --platform` asks for it, in a lake of its own"
        raise FatalError("SPEC_INVALID", "no job of this lake kills itself", where=lake, remedy=remedy)
    return run_table(replace(run, runtime=replace(run.runtime, observe=_kill)), totals)


def _kill(step: Step) -> None:
    if step.step == "append":
        os.kill(os.getpid(), signal.SIGKILL)
