"""The Spark engine behind the pipeline's port."""

from __future__ import annotations

from dataclasses import dataclass, replace

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.sql_types import quoted
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import RebuildRequest, RebuildWork, TableContext
from spark_jobs.engines.batch_steps import AppendedWork, BatchWork
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.engine import TablesEngine
from spark_jobs.engines.delta_rs.rebuild import Rebuild, rewrite_changes
from spark_jobs.engines.delta_rs.table_writer import TableWriter
from spark_jobs.engines.delta_rs.tables import Tables as KnownTables
from spark_jobs.engines.delta_rs.verify import verify
from spark_jobs.engines.first_load import FirstLoadReader
from spark_jobs.engines.places import InProcess, Place
from spark_jobs.engines.spark.beside import BatchesBesideSpark, tables_of
from spark_jobs.engines.spark.maintenance import SparkMaintenance
from spark_jobs.engines.spark.places import SparkTasks
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.figures import Verdict
from spark_jobs.rules.rewrite import Rewrite

DRIVER_BYTES = 4 * 1024**2
"""Bytes up to which the files of a first load are decoded in the driver: starting tasks would take longer."""


@dataclass(frozen=True)
class SparkEngine(TablesEngine):
    """See `Engine`."""

    tables: Tables

    def suited(self, *, few_rows: bool) -> SparkEngine:
        return SparkEngine(self.tables.suited(few_rows=few_rows))

    def of_shard(self, shard: str) -> SparkEngine:
        return SparkEngine(replace(self.tables, shard=shard))

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.tables.columns(path) if c.name != GDDL)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        small = sum(file.size for file in plan.files) <= DRIVER_BYTES
        place: Place = InProcess(context.storage) if small else self._tasks
        tables = self.tables_of(context, *_all_of(context.layout))
        first = FirstLoadReader(context=context, plan=plan, state=state, tables=tables, place=place)
        if first.suits() and (found := first.decode_files()) is not None:
            return found
        return BatchesBesideSpark(context, tables).decode_files(plan, state)

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedWork:
        tables = self.tables_of(context, *_all_of(context.layout))
        return BatchesBesideSpark(context, tables).resume_from_changes(plan, state)

    @property
    def _tasks(self) -> SparkTasks:
        return SparkTasks(self.tables.spark, self.tables.slots)

    def tables_of(self, context: TableContext, *paths: str) -> KnownTables:
        """See `tables_of`."""
        return tables_of(context, self.tables, self._tasks, paths)

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWriter:
        layout = context.layout
        own = BatchContext(
            tables=self.tables_of(context, layout.changes, layout.replica, layout.history), layout=layout,
            tier=context.tier, plan=plan, table_schema=table_schema, resumed=context.resumed,
        )  # fmt: skip
        return TableWriter(own)

    def maintenance(self, context: TableContext) -> SparkMaintenance:
        layout = context.layout
        return SparkMaintenance(self.tables, self.tables_of(context, layout.changes, layout.tombstones), layout.changes)

    def purge(self, path: str) -> None:
        """Rows that deletion vectors only mark leave the files in use, those of earlier deletes too."""
        self.tables.spark.sql(f"REORG TABLE delta.{quoted(path)} APPLY (PURGE)")

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
        rewrite_changes(self.tables_of(context, context.layout.changes), context, plan, how)

    def rebuild(self, order: RebuildRequest) -> RebuildWork:
        layouts = [order.live.layout, *([] if order.shadow is None else [order.shadow])]
        known = self.tables_of(order.live, *(path for layout in layouts for path in _all_of(layout)))
        return Rebuild(known, order)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        known = self.tables_of(context, context.layout.replica, context.layout.changes)
        return verify(known, context.layout, table_schema, swept=swept, limit=limit)


def _all_of(layout: Layout) -> tuple[str, ...]:
    return layout.changes, layout.replica, layout.history, layout.tombstones, layout.errors
