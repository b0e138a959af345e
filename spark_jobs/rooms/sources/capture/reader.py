"""A database's log as the source of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.rooms.sources import READING, SourceReader
from spark_jobs.rooms.sources.capture.log import capture_log, follow, load_forms, log_end, open_log

if TYPE_CHECKING:
    from spark_jobs.rooms.sources import Load


def read(run: TableRun, totals: RunTotals) -> bool:
    """A poll reads the log itself: one reading is for all tables of a source; its files are found as any others."""
    if isinstance(run.job.options.action, READING):
        capture_log(run, totals)
    return False


def load(run: TableRun, totals: RunTotals, then: Load) -> JobResult:
    read(run, totals)
    return then(run, totals)


READER = SourceReader(
    has_work=read, load=load, open_log=open_log, follow=follow, log_end=log_end, load_forms=load_forms
)
