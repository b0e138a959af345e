"""Rows of `awsdms_apply_exceptions`: a warning for each batch that brings some."""

from __future__ import annotations

from airflow_gddl.contract.features.apply_exceptions import EXCEPTIONS_CODE
from airflow_gddl.contract.result import RunWarning
from spark_jobs.batch.feature import Feature
from spark_jobs.batch.merge import MergedBatch
from spark_jobs.batch.session import TableSession


class ApplyExceptions(Feature):
    def after_commit(self, table: TableSession, merged: MergedBatch) -> None:
        if rows := merged.appended.appended.written:
            message = "AWS DMS could not apply changes: its table names them, with the table of each and the error"
            table.note([RunWarning(code=EXCEPTIONS_CODE, message=message, count=rows)])


FEATURE = ApplyExceptions()
