"""Batches of changes that need not go through the JVM: the engine without Spark decodes, appends and merges them.

Spark's tasks find the rows of the batch's keys; its Delta creates and maintains the tables, and changes their types.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import TableSpec, TierSpec
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import skipping, table_definition
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.batch_steps import AppendedWork, BatchWork, TablesOfAnother
from spark_jobs.engines.delta_rs import deletion_vectors, evolve
from spark_jobs.engines.delta_rs.batch_context import BatchContext
from spark_jobs.engines.delta_rs.change_table import ChangeTableWriter
from spark_jobs.engines.delta_rs.engine import DeltaRsEngine
from spark_jobs.engines.delta_rs.features import BESIDE_SPARK, is_settable, missing_features
from spark_jobs.engines.delta_rs.large_batch import LargeBatch, read_large
from spark_jobs.engines.delta_rs.table_writer import TableWriter
from spark_jobs.engines.delta_rs.tables import Tables, TableSnapshot
from spark_jobs.engines.places import Place
from spark_jobs.engines.spark import evolve as spark_evolve
from spark_jobs.engines.spark.indexing import prepare_overwrite
from spark_jobs.engines.spark.merged_tables import MergedTables
from spark_jobs.engines.spark.table_writer import ensure_tables
from spark_jobs.engines.spark.tables import Tables as SparkTables
from spark_jobs.engines.table_definition import TableDefinition, new_comments
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.settings import settings_of
from spark_jobs.plan.table_schema import TableSchema

MOST_BYTES = 64 * 1024**2
"""Of a batch's files, which are in the driver's memory together."""
_INFLATION = 10
"""How many times its size the content of a compressed text is taken to have."""
_MOST_TOMBSTONES = 256 * 1024**2


def hides_commits() -> bool:
    """Whether Spark's Delta doesn't see commits that others make: that of Databricks, on S3."""
    return "DATABRICKS_RUNTIME_VERSION" in os.environ


def tables_of(context: TableContext, spark: SparkTables, place: Place, paths: Sequence[str] = ()) -> Tables:
    """Tables whose files are worked on at a place: written by commits of ours, or by Spark's where it has to.

    That is so where one of them has a feature that is not known here, or will have, and where Spark `hides_commits`.

    Args:
        paths: of tables that are looked at first; there need not be one.
    """
    tables = Tables(context.storage, lambda: datetime.now(UTC), spark.shard, BESIDE_SPARK).worked_on_at(place)
    if hides_commits() or not _suits(context) or not _are_known(tables, paths):
        return MergedTables(spark, lambda: datetime.now(UTC), context.layout, place)
    return tables


def _suits(context: TableContext) -> bool:
    """Whether new tables of this row have no features that aren't known here."""
    vectors = context.tier.deletion_vectors
    return is_settable(context.spec.table_properties) and (deletion_vectors.are_known() or not vectors)


def _are_known(tables: Tables, paths: Sequence[str]) -> bool:
    try:
        with_vectors = [s for s in map(tables.snapshot, paths) if s and s.has_vectors]
        for snapshot in with_vectors:
            snapshot.require_vectors()
    except DeclinedError:
        return False
    return not with_vectors or deletion_vectors.are_known()


@dataclass(frozen=True)
class TablesWork:
    """See `TableWork`: Spark creates and evolves the tables, and nothing else goes through the JVM."""

    own: TableWriter
    spark: SparkTables

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        context = self.own.batch_context
        ensure_tables(self.spark, context.table_schema, context.layout, context.tier)
        context.tables.forget_all()
        return ()

    def sweepable(self) -> tuple[int, int]:
        return self._current().sweepable()

    def sweep(self) -> MainCounts:
        return self._current().sweep()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        self._current().history(generation_low_watermarks, swept=swept)

    def _current(self) -> TableWriter:
        self.own.batch_context.tables.forget_all()  # Spark may have changed them in earlier steps
        return self.own


@dataclass(frozen=True)
class SparkMade:
    """See `Definer`: tables that Spark creates and evolves; `tables` sees what it has changed.

    Attributes:
        rewrite: see `evolve.ensure`.
    """

    spark: SparkTables
    tables: Tables
    rewrite: bool

    def check(self, spec: TableSpec, tier: TierSpec) -> None:
        """Spark creates all."""

    def ensure(self, definition: TableDefinition) -> None:
        spark_evolve.ensure(self.spark, definition, rewrite=self.rewrite)
        self.tables.forget_all()

    def prepare_replacement(self, definition: TableDefinition) -> None:
        if not self.tables.exists(definition.path):
            self.spark.create(definition)
        elif not self.tables.arranges_files:
            prepare_overwrite(self.spark, definition)
        elif definition.partition_by and self.spark.clustering(definition.path):
            self.spark.sql(definition.path, "ALTER TABLE {table} CLUSTER BY NONE")
        self.tables.forget_all()


@dataclass(frozen=True)
class BatchesBesideSpark:
    """Batches whose rows don't go through the JVM.

    Attributes:
        spark: creates the tables.
    """

    context: TableContext
    tables: Tables
    spark: SparkTables

    def decode_files(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`."""
        found, unreadable = self._decoded(plan, state)
        if not isinstance(found, ChangeTableWriter | LargeBatch):
            return found, unreadable
        return replace(found, batch_context=self._completed(found.batch_context, state)), unreadable

    def resume_from_changes(self, plan: BatchPlan, state: TableState) -> AppendedWork:
        """See `Engine.resume_from_changes`."""
        found = self._engine.resume_from_changes(self.context, plan, state)
        return replace(found, batch_context=self._completed(found.batch_context, state))

    @property
    def _engine(self) -> DeltaRsEngine:
        return DeltaRsEngine(self.tables, reads_whole=False)

    def _completed(self, context: BatchContext, state: TableState) -> BatchContext:
        """The context of a batch with Spark's steps on whole tables."""
        schema = context.table_schema
        others = _TablesOfSpark(
            TablesWork(TableWriter(context), self.spark), self.tables, self.spark, schema,
            table_definition.definitions(schema, self.context.layout, self.context.tier),
            table_definition.tombstones(schema, self.context.layout.tombstones),
            changed=state.applied != settings_of(self.context.spec),
        )  # fmt: skip
        return replace(context, others=others)

    def _decoded(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        context = replace(self.context, engine=self._engine)
        if plan.source != "files" or self._is_small(plan, state):
            try:
                return self._engine.decode_files(context, plan, state)
            except MemoryError:  # a file may be larger than it looks
                if plan.source != "files":
                    raise
                self.tables.forget_all()
        return read_large(self.tables, context, plan, state)

    def _is_small(self, plan: BatchPlan, state: TableState) -> bool:
        """Whether the batch and the tombstones fit into memory, and it needs no more of the tables than its keys'."""
        tombstones = self.tables.snapshot(self.context.layout.tombstones)
        if tombstones is not None and tombstones.size > _MOST_TOMBSTONES:
            return False
        if not state.keys and any(file.kind != "change" for file in plan.files):
            return False
        sizes = (file.size * (_INFLATION if file.path.endswith(".gz") else 1) for file in plan.files)
        return sum(sizes) <= MOST_BYTES


@dataclass(frozen=True)
class _TablesOfSpark(TablesOfAnother):
    """Spark's steps, where there is something to do; `tables` sees what they have changed.

    Attributes:
        changed: the row has settings that the tables don't have yet.
    """

    tables: Tables
    spark: SparkTables
    schema: TableSchema
    definitions: tuple[TableDefinition, ...]
    tombstones: TableDefinition
    changed: bool

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        kept = [self.tombstones] if self.tables.exists(self.tombstones.path) else []
        found = [(definition, self._missing(definition)) for definition in (*self.definitions, *kept)]
        if not self.changed and all(missing is not None for _, missing in found):
            for definition, missing in found:
                if missing:
                    self.tables.add_columns(definition.path, missing)
            return ()
        for definition in self.definitions if self.tables.arranges_files else ():
            self.spark.create_around(definition)
        warnings = super().ensure_tables()
        self.tables.forget_all()
        return warnings

    def _missing(self, definition: TableDefinition) -> list[Column] | None:
        """Columns to add to a table; None where more has to be done, or the columns need a feature that it lacks."""
        if not self.tables.arranges_files or not self.tables.exists(definition.path):
            return None
        evolve.retype_without_rows(self.tables, definition.path, self.schema, definition.bounds)
        table = self.tables.existing(definition.path)
        if not _is_met(table, definition):
            return None
        new = [column for column in definition.columns if column.name not in table.schema.types]
        return None if missing_features(table.delta, new) else new


def _is_met(table: TableSnapshot, definition: TableDefinition) -> bool:
    """Whether a table needs nothing but new columns; settings of the row that a batch has applied are not compared."""
    stored, properties = table.schema.types, table.properties
    indexed = properties.get(skipping.COLUMNS)
    if indexed is None and definition.skipping:
        return False
    if skipping.left_readable(indexed, table.schema.columns) is not None:
        return False
    return (
        all(stored.get(column.name, column.type) == column.type for column in definition.columns)
        and all(properties.get(name) == value for name, value in definition.properties.items())
        and not new_comments(definition, table.comments)
        and definition.description in ("", table.delta.metadata().description)
    )
