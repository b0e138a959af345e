"""Context of a batch: its tables, plan and schema, and the names of its transactions."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.transactions import APPEND, HISTORY, MERGE, QUARANTINE, SWEEP, TOMBSTONES, version_of
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL, TableSchema

__all__ = ["APPEND", "HISTORY", "MERGE", "QUARANTINE", "SWEEP", "TOMBSTONES", "BatchContext", "version_of"]


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Context of all steps of one batch of one table."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    table_schema: TableSchema

    @property
    def transaction(self) -> int:
        """The transaction version of the batch's steps."""
        return version_of(self.plan)

    def append(self, rows: DataFrame, path: str, app: str) -> None:
        """Append the rows of a step of this batch, once."""
        self.tables.append(rows, path, app, self.transaction)

    def once(self, app: str) -> AbstractContextManager[None]:
        """Writes inside are a step of this batch; see `Tables.transaction`."""
        return self.tables.transaction(app, self.transaction)

    def metrics(self, path: str, app: str) -> dict[str, int]:
        """Metrics of the commit of a step of this batch; empty where there is none."""
        return self.tables.metrics(path, app, self.transaction)

    def changes(self) -> DataFrame:
        """This batch's rows of the change table."""
        return self.tables.read(self.layout.changes).where(F.col(GDDL)["batch_id"] == self.plan.batch_id)
