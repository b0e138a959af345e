"""A database's log as the source of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.rooms.sources import READING, LogEnd, SourceReader
from spark_jobs.rooms.sources.capture.log import capture_log, follow, load_forms, log_end, open_log
from spark_jobs.rooms.sources.capture.postgresql_types import Form
from spark_jobs.source_tables import SourceTable

if TYPE_CHECKING:
    from spark_jobs.rooms.sources import Load


class LogReader(SourceReader):
    def has_work(self, run: TableRun, totals: RunTotals) -> bool:
        """A poll reads the log itself: one reading is for all tables of a source; its files are found as any others."""
        _read(run, totals)
        return False

    def load(self, run: TableRun, totals: RunTotals, then: Load) -> JobResult:
        _read(run, totals)
        return then(run, totals)

    def open_log(self, run: TableRun) -> str:
        return open_log(run)

    def follow(self, run: TableRun, log: str) -> bool:
        return follow(run, log)

    def log_end(self, run: TableRun) -> LogEnd | None:
        return log_end(run)

    def load_forms(self, run: TableRun, table: SourceTable) -> Mapping[str, Form]:
        return load_forms(run, table)


READER = LogReader()


def _read(run: TableRun, totals: RunTotals) -> None:
    if isinstance(run.job.options.action, READING):
        capture_log(run, totals)
