"""The swap of a rebuild or a reload: derives the live tables from the change table, one Delta commit each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines import rebuilding, table_definition
from spark_jobs.engines.base import RebuildRequest
from spark_jobs.engines.spark import evolve, row_types
from spark_jobs.engines.spark.batch_context import HISTORY, MERGE, TOMBSTONES, version_of
from spark_jobs.engines.spark.columns import name, retyped, tuples
from spark_jobs.engines.spark.history import Generations, versions_of
from spark_jobs.engines.spark.in_tasks import RowRule, row_by_row
from spark_jobs.engines.spark.indexing import index_as_defined, prepare_overwrite
from spark_jobs.engines.spark.merge import by_events, tombstones_of
from spark_jobs.engines.spark.redelivery import lacking_rows
from spark_jobs.engines.spark.removal import changes_in, remove_changes
from spark_jobs.engines.spark.tables import Assignments, Tables, spark_type
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.figures import Rebuilt, Replaced
from spark_jobs.rules.fold import newest_state
from spark_jobs.rules.order import ARCHIVED
from spark_jobs.rules.rebuild import rebuilt_rows, restamped
from spark_jobs.rules.rewrite import rewritten

_FILE, _GENERATION, _READ = (f"{GDDL}__{name}" for name in ("file", "generation", "read"))
"""Columns of `_stored`: the change's file, its generation, and whether it is the change's; null: it was not read."""


def overwrite(tables: Tables, definition: TableDefinition, rows: DataFrame, transaction: tuple[str, int]) -> None:
    """Replace rows and schema in one commit; columns keep the table's order and comments."""
    stored = {f.name: f.metadata for f in tables.read(definition.path).schema.fields}
    columns = [
        retyped(rows, c.name, spark_type(str(c.type))).alias(c.name, metadata=stored.get(c.name, {}))
        for c in table_definition.in_stored_order(definition, tuple(stored))
    ]
    prepare_overwrite(tables, definition)
    tables.overwrite(rows.select(*columns), definition, *transaction)
    index_as_defined(tables, definition)


@dataclass(frozen=True)
class Rebuild:
    """See `RebuildWork` and `RebuildSteps`."""

    tables: Tables
    order: RebuildRequest

    @property
    def plan(self) -> BatchPlan:
        return self.order.plan

    @property
    def live(self) -> Layout:
        return self.order.live.layout

    @property
    def tier(self) -> TierSpec:
        return self.order.live.tier

    @property
    def table_schema(self) -> TableSchema:
        return self.order.table_schema

    def app(self, step: str) -> str:
        return f"refresh:{step}"

    def swap(self, report: Callable[[str], None]) -> Rebuilt:
        return rebuilding.swap(self, report)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        return tuples(self._live(), columns)

    def compared(self, columns: Sequence[str] | None) -> Replaced:
        return rebuilding.compared(self, self.order, columns)

    def _live(self) -> DataFrame:
        """Live rows of the replica that `swap` would make."""
        source = self._fresh()
        if not self.order.archives and self._compatible() and self.tables.exists(self.live.changes):
            source = source.unionByName(self._known(self._stored().where(~F.coalesce(F.col(_READ), F.lit(False)))))
        if not self.table_schema.keys:
            return source.where(F.col(GDDL)["generation"] >= max(self.order.swept, 1))
        return self._state(source).where(F.col(GDDL)["op"] != "D")

    def _fresh(self) -> DataFrame:
        """Changes of the shadow table, stamped with this batch; none without one."""
        if self.order.shadow is None:
            return self.tables.local(
                change_schema(self.table_schema).empty_table(), row_types.change_rows(self.table_schema)
            )
        schema, batch, planned_at = row_types.change_rows(self.table_schema), self.plan.batch_id, self.plan.planned_at
        rows = self._known(self.tables.read(self.order.shadow.changes))
        return row_by_row(rows, lambda part: restamped(part, batch, planned_at), schema)

    def _stored(self) -> DataFrame:
        """Live changes except those that this refresh added, with `_READ`."""
        read = self.tables.spark.createDataFrame(list(self.order.read.items()), f"{_FILE} string, {_GENERATION} int")
        rows, gddl = self.tables.read(self.live.changes), F.col(GDDL)
        found = rows.where(gddl["batch_id"] != self.plan.batch_id).join(
            F.broadcast(read), gddl["source_file"] == F.col(_FILE), "left"
        )
        return found.withColumn(_READ, F.col(_GENERATION) == gddl["generation"])

    def _compatible(self) -> bool:
        path = self.live.changes
        return not self.tables.exists(path) or rebuilding.keeps_changes(self.order, self.tables.columns(path))

    def archived(self) -> int:
        rows = self._rewritten()
        return 0 if rows is None else self._newly_archived(rows).count()

    def _rewritten(self) -> DataFrame | None:
        """Live changes of earlier batches in the new table's columns; null where none are archived."""
        how = self.order.archives
        if how is None or not self.tables.exists(self.live.changes):
            return None
        stored = self.tables.read(self.live.changes).where(F.col(GDDL)["batch_id"] != self.plan.batch_id)
        return row_by_row(stored, lambda part: rewritten(part, how), row_types.change_rows(self.table_schema))

    def _newly_archived(self, rows: DataFrame) -> DataFrame:
        """Those of `_rewritten` that no file holds."""
        counting = rows.where(F.col(GDDL)["generation"] != ARCHIVED)
        return lacking_rows(counting, self._fresh(), self.table_schema, rows=self._count_of_changes())

    def _with_archive(self, fresh: DataFrame) -> DataFrame:
        """The new changes, and archived ones: those of earlier reloads, and new ones."""
        rows, gddl = self._rewritten(), F.col(GDDL)
        if rows is None:
            return fresh
        new = self._newly_archived(rows).select(*(name(c) for c in rows.columns))
        new = new.withColumn(GDDL, gddl.withField("generation", F.lit(ARCHIVED)))
        return fresh.unionByName(rows.where(gddl["generation"] == ARCHIVED)).unionByName(new)

    def drops_changes(self) -> bool:
        if self.order.archives:
            return False
        # Files that are not read were removed or are unreadable.
        return not self._compatible() and not self._stored().where(F.col(_READ).isNull()).isEmpty()

    def changes(self) -> int:
        """Add missing changes to the change table and remove those that its files no longer hold.

        If types are incompatible, replace it.
        """
        if self.order.shadow is None:
            return 0
        definition = table_definition.changes(self.table_schema, self.live.changes, self.tier)
        if self.order.archives or not self._compatible():
            self.tables.create(definition)
            self._overwrite(definition, self._with_archive(self._fresh()), "changes")
            return self._fresh().count()
        evolve.ensure(self.tables, definition, rewrite=not self.tier.deletion_vectors)
        fresh, count = self._fresh(), self._count_of_changes()
        remove_changes(self.tables, self.live.changes, self._stale())
        stored = self.tables.read(self.live.changes).where(F.col(GDDL)["batch_id"] != self.plan.batch_id)
        lacking = lacking_rows(fresh, self._known(stored), self.table_schema, rows=count)
        self.tables.append(lacking, self.live.changes, self.app("changes"), version_of(self.plan))
        return self.tables.metrics(self.live.changes, self.app("changes"), version_of(self.plan)).get(
            "numOutputRows", 0
        )

    def _stale(self) -> DataFrame:
        """Stored changes that their files, rewritten or now read with other settings, no longer hold.

        Those of another generation than the file's stay: what the file held then is part of the history.
        """
        read = self._known(self._stored().where(F.col(_READ)))
        return changes_in(lacking_rows(read, self._fresh(), self.table_schema, rows=self._count_of_changes()))

    def source(self) -> DataFrame:
        return self._known(self.tables.read(self.live.changes))

    def _known(self, rows: DataFrame) -> DataFrame:
        """Rows with the change table's columns and types; without columns that the metadata no longer selects."""
        wanted = row_types.change_rows(self.table_schema).fields
        return rows.select(*(retyped(rows, field.name, field.dataType) for field in wanted))

    def _count_of_changes(self) -> int:
        """Approximate number of changes for a rule."""
        paths = (*(() if self.order.shadow is None else (self.order.shadow.changes,)), self.live.changes)
        return sum(self.tables.count(path) for path in paths if self.tables.exists(path))

    def _of_keys(self, source: DataFrame, rule: RowRule, schema: T.StructType) -> DataFrame:
        """A rule about all events of a key."""
        return by_events(source, self.table_schema, rule, schema, rows=self._count_of_changes())

    def _state(self, source: DataFrame) -> DataFrame:
        table_schema, swept = self.table_schema, self.order.swept
        schema = row_types.net_rows(table_schema, partial=table_schema.partial)
        return self._of_keys(source, lambda happened: newest_state(happened, table_schema, swept), schema)

    def tombstones(self, source: DataFrame) -> None:
        rows = tombstones_of(self._state(source), self.table_schema)
        definition = table_definition.tombstones(self.table_schema, self.live.tombstones)
        self.tables.create(definition)
        self._overwrite(definition, rows, TOMBSTONES)

    def _rows(self, source: DataFrame) -> DataFrame:
        """The new replica's."""
        table_schema, swept, gddl = self.table_schema, self.order.swept, F.col(GDDL)
        if table_schema.keys:
            schema = row_types.replica_rows(table_schema)
            return self._of_keys(source, lambda happened: rebuilt_rows(happened, table_schema, swept), schema)
        rows = source.where(gddl["generation"] >= max(swept, 1))
        soft = table_schema.spec.delete == "soft"
        return rows.withColumn(GDDL, gddl.withField("deleted", F.lit(False))) if soft else rows

    def replica(self, source: DataFrame) -> int:
        rows = self._rows(source)
        path = self.live.replica
        definition = table_definition.replica(self.table_schema, path, self.tier)
        if not self.tables.exists(path):
            self.tables.create(definition)
        if definition.partition_by and self.tables.clustering(path):
            self.tables.sql(path, "ALTER TABLE {table} CLUSTER BY NONE")
        self._overwrite(definition, rows, MERGE)
        return self.tables.count(path)

    def history(self, source: DataFrame) -> None:
        until = Generations(self.order.generation_low_watermarks, self.order.swept)
        derived = versions_of(source, self.table_schema, until, rows=self._count_of_changes())
        definition = table_definition.history(self.table_schema, self.live.history, self.tier)
        if not self.tables.exists(definition.path):
            self.tables.create(definition)
        self._overwrite(definition, derived, HISTORY)

    def _overwrite(self, definition: TableDefinition, rows: DataFrame, step: str) -> None:
        overwrite(self.tables, definition, rows, (self.app(step), version_of(self.plan)))

    def errors(self) -> None:
        """Replace the quarantined rows of the files by the current ones."""
        path = self.live.errors
        shadow = None if self.order.shadow is None else self.order.shadow.errors
        fresh = self.tables.read(shadow) if shadow and self.tables.exists(shadow) else None
        if self.order.archives and self.tables.exists(path):
            older = F.col("resolved_at").isNull() & (F.col("batch_id") != self.plan.batch_id)
            now = F.lit(self.plan.planned_at).cast("timestamp")
            with self.tables.transaction(self.app("resolve"), version_of(self.plan)):
                self.tables.handle(path).update(older, {"resolved_at": now})
        elif self.tables.exists(path) and self.order.landed:
            files = self.tables.spark.createDataFrame([(f,) for f in self.order.landed], "f string")
            stale = F.col("t.resolved_at").isNull() & (F.col("t.batch_id") != self.plan.batch_id)
            builder = (
                self.tables.handle(path)
                .alias("t")
                .merge(files.alias("s"), (F.col("t.source_file") == F.col("s.f")) & stale)
            )
            with self.tables.transaction(self.app("resolve"), version_of(self.plan)):
                builder.whenMatchedUpdate(set={"resolved_at": F.lit(self.plan.planned_at).cast("timestamp")}).execute()
        if self.order.reselected and self.tables.exists(path):
            older = F.col("record").isNotNull() & (F.col("batch_id") != self.plan.batch_id)
            nothing: Assignments = {name: F.lit(None).cast("string") for name in ("record", "record_schema")}
            self.tables.handle(path).update(older, nothing)
        if fresh is not None:
            self.tables.create(table_definition.errors(path))
            ids = F.concat_ws("/", F.lit(self.plan.batch_id), F.col("id"))
            stamped = fresh.withColumn("batch_id", F.lit(self.plan.batch_id)).withColumn("id", ids)
            self.tables.append(stamped, path, self.app("quarantine"), version_of(self.plan))
