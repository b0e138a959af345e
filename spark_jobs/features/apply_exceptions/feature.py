"""Rows of `awsdms_apply_exceptions`: a warning for each batch that brings some."""

from __future__ import annotations

from airflow_gddl.contract.result import RunWarning
from spark_jobs.batch.commit import CommittedBatch
from spark_jobs.batch.feature import Feature


class ApplyExceptions(Feature):
    def after_commit(self, done: CommittedBatch) -> None:
        if rows := done.merged.appended.appended.written:
            message = "AWS DMS could not apply changes: its table names them, with the table of each and the error"
            done.table.note([RunWarning(code="SOURCE_EXCEPTIONS", message=message, count=rows)])


FEATURE = ApplyExceptions()
