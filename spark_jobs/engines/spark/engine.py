"""The Spark engine behind the pipeline's port."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.sql_types import parse_type
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.base import RebuildRequest, RebuildWork, TableContext
from spark_jobs.engines.batch_steps import BatchWork, TableWork
from spark_jobs.engines.delta_rs.batch_context import BatchContext as KnownBatchContext
from spark_jobs.engines.delta_rs.rebuild import Rebuild as KnownRebuild
from spark_jobs.engines.delta_rs.rebuild import rewrite_changes
from spark_jobs.engines.delta_rs.table_writer import TableWriter as KnownTableWriter
from spark_jobs.engines.delta_rs.tables import Tables as KnownTables
from spark_jobs.engines.delta_rs.verify import verify
from spark_jobs.engines.first_load import FirstLoadReader
from spark_jobs.engines.places import InProcess, Place
from spark_jobs.engines.spark import quarantine, row_types
from spark_jobs.engines.spark import verify as verifying
from spark_jobs.engines.spark.batch_context import BatchContext
from spark_jobs.engines.spark.batch_reader import BatchReader
from spark_jobs.engines.spark.beside import BatchesBesideSpark, KnownTablesWork, SparkMade, hides_commits, known_tables
from spark_jobs.engines.spark.change_table import AppendedChanges, ChangeTableWriter
from spark_jobs.engines.spark.columns import tuples
from spark_jobs.engines.spark.erasing import SparkEraser, of_key
from spark_jobs.engines.spark.in_tasks import row_by_row
from spark_jobs.engines.spark.maintenance import SparkMaintenance
from spark_jobs.engines.spark.places import SparkTasks
from spark_jobs.engines.spark.rebuild import Rebuild, overwrite
from spark_jobs.engines.spark.replica import ReplicaWriter
from spark_jobs.engines.spark.table_writer import TableWriter
from spark_jobs.engines.spark.tables import Tables, sql_text
from spark_jobs.engines.transactions import QUARANTINE, REWRITE, version_of
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import Appended, Verdict
from spark_jobs.rules.key_rows import KeyRows, highest
from spark_jobs.rules.recorded import recorded_files
from spark_jobs.rules.rewrite import COLUMN, COUNT, PROBLEM, Rewrite, count_of, refused_values, rewritten


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
        reader = BatchReader(tables=self.tables, context=context, plan=plan, state=state)
        if (beside := self._decode_beside(context, plan, state, in_driver=reader.is_for_driver)) is not None:
            return beside
        decoded, unreadable = reader.decode_files()
        if decoded is None:
            return None, unreadable
        batch_context = self._batch_context(context, plan, decoded.decoded_batch.schema.table_schema)
        return ChangeTableWriter(batch_context=batch_context, decoded=decoded, first=state.keys is None), unreadable

    def _decode_beside(
        self, context: TableContext, plan: BatchPlan, state: TableState, *, in_driver: bool
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]] | None:
        """Files whose rows need not go through the JVM; None: Spark is to decode them."""
        if hides_commits():
            return None
        tasks = SparkTasks(self.tables.spark, self.tables.slots)
        place: Place = InProcess(context.storage) if in_driver else tasks
        first = FirstLoadReader(context=context, plan=plan, state=state, tables=self.tables, place=place)
        if first.suits() and (found := first.decode_files()) is not None:
            return found
        return BatchesBesideSpark(context, tasks, self.tables).decode_files(plan, state)

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedChanges:
        decoded = BatchReader(tables=self.tables, context=context, plan=plan, state=state).resume_from_changes()
        batch = decoded.decoded_batch
        replica = ReplicaWriter(
            batch_context=self._batch_context(context, plan, batch.schema.table_schema), figures=batch.figures,
            schemas=batch.change_schemas, first=state.keys is None,
        )  # fmt: skip
        return AppendedChanges(
            replica=replica, decoded=decoded, appended=Appended(written=batch.figures.rows, redelivered=0)
        )

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWork:
        work, layout = TableWriter(self._batch_context(context, plan, table_schema)), context.layout
        if (known := self.known_tables(context, layout.changes, layout.replica, layout.history)) is None:
            return work
        own = KnownBatchContext(
            tables=known, layout=layout, tier=context.tier, plan=plan, table_schema=table_schema,
            resumed=context.resumed,
        )  # fmt: skip
        return KnownTablesWork(work, KnownTableWriter(own))

    def _batch_context(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> BatchContext:
        return BatchContext(
            tables=self.tables, layout=context.layout, tier=context.tier, plan=plan, table_schema=table_schema
        )

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        self.tables.create(table_definition.errors(context.layout.errors))
        rows = quarantine.bad_files(self.tables, files, Stamp.of(plan))
        self.tables.append(rows, context.layout.errors, QUARANTINE, version_of(plan))

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
        if (known := self.known_tables(context, context.layout.changes)) is not None:
            rewrite_changes(known, context, plan, how)
            return
        definition = table_definition.changes(how.schema, context.layout.changes, context.tier)
        if self.tables.last_transaction(definition.path, REWRITE) < version_of(plan):
            schema = row_types.change_rows(how.schema)
            rows = row_by_row(self.tables.read(definition.path), lambda part: rewritten(part, how), schema)
            overwrite(self.tables, definition, rows, (REWRITE, version_of(plan)))

    def known_tables(self, context: TableContext, *paths: str) -> KnownTables | None:
        """See `known_tables`."""
        return known_tables(context, SparkTasks(self.tables.spark, self.tables.slots), paths, self.tables.shard)

    def rebuild(self, order: RebuildRequest) -> RebuildWork:
        layouts = [order.live.layout, *([] if order.shadow is None else [order.shadow])]
        paths = [p for at in layouts for p in (at.changes, at.replica, at.history, at.tombstones, at.errors)]
        if (known := self.known_tables(order.live, *paths)) is None:
            return Rebuild(self.tables, order)
        made = SparkMade(self.tables, known, rewrite=not order.live.tier.deletion_vectors)
        return KnownRebuild(known, order, made)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        layout, shard = context.layout, table_schema.spec.shard
        known = known_tables(
            context, SparkTasks(self.tables.spark, self.tables.slots), (layout.replica, layout.changes)
        )
        if known is not None:
            return verify(known, layout, table_schema, swept=swept, limit=limit)
        replica, changes = self.tables.read(layout.replica), self.tables.read(layout.changes)
        rows = self.tables.count(layout.changes)
        if shard is not None:
            replica, changes = (table.where(F.col(SHARD_COLUMN) == shard) for table in (replica, changes))
        return verifying.verify(replica, changes, table_schema, swept=swept, limit=limit, rows=rows)

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
