"""Batches of changes that need not go through the JVM: the engine without Spark decodes, appends and merges them.

Spark's tasks find the rows of the batch's keys; its Delta creates and maintains the tables, and changes their types.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.batch_steps import AppendedWork, BatchWork
from spark_jobs.engines.delta_rs import deletion_vectors
from spark_jobs.engines.delta_rs.engine import DeltaRsEngine
from spark_jobs.engines.delta_rs.features import is_settable
from spark_jobs.engines.delta_rs.large_batch import read_large
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.places import Place
from spark_jobs.engines.spark.merged_tables import MaintainedTables, MergedTables
from spark_jobs.engines.spark.tables import Tables as SparkTables
from spark_jobs.plan.batch import BatchPlan, TableState

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

    That is so where one of them has a feature that is not known here, or will have, where Spark `hides_commits`, and
    where the tier says so (`delta_merge`).

    Args:
        paths: of tables that are looked at first; there need not be one.
    """
    tables = MaintainedTables(spark, _now, place)
    if hides_commits() or context.tier.delta_merge or not _suits(context) or not _are_known(tables, paths):
        return MergedTables(spark, _now, context.layout, place)
    return tables


def _now() -> datetime:
    return datetime.now(UTC)


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
class BatchesBesideSpark:
    """Batches whose rows don't go through the JVM."""

    context: TableContext
    tables: Tables

    @property
    def _engine(self) -> DeltaRsEngine:
        return DeltaRsEngine(self.tables, reads_whole=False)

    def resume_from_changes(self, plan: BatchPlan, state: TableState) -> AppendedWork:
        """See `Engine.resume_from_changes`."""
        return self._engine.resume_from_changes(self.context, plan, state)

    def decode_files(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`."""
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
