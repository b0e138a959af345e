"""The Spark engine behind the pipeline's port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import RebuildRequest, RebuildWork, TableContext
from spark_jobs.engines.batch_steps import AppendedWork, BatchWork, TableWork
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.engine import DeltaRsEngine
from spark_jobs.engines.delta_rs.rebuild import Rebuild, rewrite_changes
from spark_jobs.engines.delta_rs.table_writer import TableWriter as KnownTableWriter
from spark_jobs.engines.delta_rs.tables import Tables as KnownTables
from spark_jobs.engines.delta_rs.verify import verify
from spark_jobs.engines.first_load import FileTables, FirstLoadReader
from spark_jobs.engines.places import InProcess, Place
from spark_jobs.engines.spark.beside import BatchesBesideSpark, SparkMade, TablesWork, tables_of
from spark_jobs.engines.spark.columns import tuples
from spark_jobs.engines.spark.erasing import SparkEraser, of_key
from spark_jobs.engines.spark.in_tasks import row_by_row
from spark_jobs.engines.spark.maintenance import SparkMaintenance
from spark_jobs.engines.spark.places import SparkTasks
from spark_jobs.engines.spark.tables import Tables, sql_text
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.figures import Verdict
from spark_jobs.rules.key_rows import KeyRows, highest
from spark_jobs.rules.recorded import recorded_files
from spark_jobs.rules.rewrite import COLUMN, COUNT, PROBLEM, Rewrite, count_of, refused_values

DRIVER_BYTES = 4 * 1024**2
"""Bytes up to which the files of a first load are decoded in the driver: starting tasks would take longer."""


@dataclass(frozen=True)
class SparkEngine:
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

    def foreign_rows(self, path: str) -> int:
        return self.tables.read(path).where(F.col(GDDL).isNull()).count()

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def recorded_files(self, path: str) -> list[RecordedFile]:
        rows, gddl = self.tables.read(path), F.col(GDDL)
        kind = parse_type(sql_text(rows.schema[GDDL].dataType))
        ends = F.array(F.max(gddl["sequence"]), F.min(gddl["sequence"])).alias("ends")
        latest = [*(F.max(gddl[name]).alias(name) for name in ("applied_at", "batch_id")), ends]
        found = rows.groupBy(gddl["source_file"].alias("source_file"), gddl["generation"].alias("generation"))
        each = found.agg(*latest).withColumn("sequence", F.explode("ends"))
        struct = F.struct("source_file", "generation", "applied_at", "sequence", "batch_id").alias(GDDL)
        return recorded_files([each.select(struct).toArrow()], kind)

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.tables.columns(path) if c.name != GDDL)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        small = sum(file.size for file in plan.files) <= DRIVER_BYTES
        place: Place = InProcess(context.storage) if small else self._tasks
        tables = self.tables_of(context, *_all_of(context.layout))
        new: FileTables = self.tables if tables.arranges_files else tables
        first = FirstLoadReader(context=context, plan=plan, state=state, tables=new, place=place)
        if first.suits() and (found := first.decode_files()) is not None:
            return found
        return BatchesBesideSpark(context, tables, self.tables).decode_files(plan, state)

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedWork:
        tables = self.tables_of(context, *_all_of(context.layout))
        return BatchesBesideSpark(context, tables, self.tables).resume_from_changes(plan, state)

    @property
    def _tasks(self) -> SparkTasks:
        return SparkTasks(self.tables.spark, self.tables.slots)

    def tables_of(self, context: TableContext, *paths: str) -> KnownTables:
        """See `tables_of`."""
        return tables_of(context, self.tables, self._tasks, paths)

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWork:
        layout = context.layout
        own = BatchContext(
            tables=self.tables_of(context, layout.changes, layout.replica, layout.history), layout=layout,
            tier=context.tier, plan=plan, table_schema=table_schema, resumed=context.resumed,
        )  # fmt: skip
        return TablesWork(KnownTableWriter(own), self.tables)

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        tables = self.tables_of(context, context.layout.errors)
        DeltaRsEngine(tables).quarantine_files(context, plan, files)

    def forget_errors(self, path: str, batch_id: str) -> None:
        self.tables.handle(path).delete(F.col("batch_id") == batch_id)

    def maintenance(self) -> SparkMaintenance:
        return SparkMaintenance(self.tables)

    def eraser(self) -> SparkEraser:
        return SparkEraser(self.tables)

    def refused_values(self, path: str, how: Rewrite) -> dict[tuple[str, str], int]:
        kind = T.StructType().add(PROBLEM, T.StringType()).add(COLUMN, T.StringType()).add(COUNT, T.LongType())
        found = row_by_row(self.tables.read(path), lambda rows: refused_values(rows, how), kind)
        return count_of([found.groupBy(PROBLEM, COLUMN).agg(F.sum(COUNT).alias(COUNT)).toArrow()])

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
        rewrite_changes(self.tables_of(context, context.layout.changes), context, plan, how)

    def rebuild(self, order: RebuildRequest) -> RebuildWork:
        layouts = [order.live.layout, *([] if order.shadow is None else [order.shadow])]
        known = self.tables_of(order.live, *(path for layout in layouts for path in _all_of(layout)))
        made = SparkMade(self.tables, known, rewrite=not order.live.tier.deletion_vectors)
        return Rebuild(known, order, made)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        known = self.tables_of(context, context.layout.replica, context.layout.changes)
        return verify(known, context.layout, table_schema, swept=swept, limit=limit)

    def live_rows(self, path: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        rows = self.tables.read(path)
        if "deleted" in rows.select(f"{GDDL}.*").columns:
            rows = rows.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
        return tuples(rows, columns)

    def rows_of_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
        rows, gddl = self.tables.read(path), F.col(GDDL)
        found = rows.where(of_key(table_schema, key, rows.columns))
        order = [gddl[name].desc_nulls_last() for name in ("generation", "sequence", "batch_id", "position")]
        return KeyRows(rows=highest(found.orderBy(*order).limit(limit).toArrow(), limit).rows, count=found.count())

    def in_quarantine(self, path: str) -> tuple[int, int]:
        left = self.tables.read(path).where(F.col("resolved_at").isNull())
        found = left.agg(F.count(F.lit(1)), F.count_if(F.col("position").isNull())).collect()[0]
        return int(found[0]), int(found[1])

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        rows = self.tables.read(path).where(F.col("resolved_at").isNull())
        shown = rows.drop("record_schema", "resolved_at").orderBy("batch_id", "source_file", "position")
        listed = shown.withColumn("occurred_at", F.date_format("occurred_at", "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"))
        return rows.count(), [row.asDict() for row in listed.limit(limit).collect()]


def _all_of(layout: Layout) -> tuple[str, ...]:
    return layout.changes, layout.replica, layout.history, layout.tombstones, layout.errors
