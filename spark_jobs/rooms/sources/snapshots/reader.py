"""Snapshots of the whole table as its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_gddl.contract.result import JobResult
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.sources import SourceReader
from spark_jobs.rooms.sources.snapshots.capture import (
    capture,
    exported_files,
    has_new,
    load_snapshots,
    withdraw_unloaded,
)

if TYPE_CHECKING:
    from spark_jobs.rooms.sources import Load


class SnapshotReader(SourceReader):
    def has_work(self, run: TableRun, totals: RunTotals) -> bool:
        """Snapshots are read whole, which is no part of a poll."""
        if has_new(run):
            return True
        capture(run, totals)
        return False

    def load(self, run: TableRun, totals: RunTotals, then: Load) -> JobResult:
        return load_snapshots(run, totals, then)

    def exports(self, run: TableRun) -> tuple[PlannedFile, ...]:
        return tuple(exported_files(run))

    def withdraw(self, run: TableRun) -> None:
        withdraw_unloaded(run)


READER = SnapshotReader()
