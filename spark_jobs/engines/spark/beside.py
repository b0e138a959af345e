"""Batches of changes that need not go through the JVM: the engine without Spark decodes, appends and merges them.

Spark's tasks find the rows of the replica with the batch's keys; its Delta creates, alters and maintains the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_gddl.contract.result import RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.base import DeclinedError, TableContext
from spark_jobs.engines.batch_steps import BatchWork, TablesOfAnother
from spark_jobs.engines.delta_rs import deletion_vectors
from spark_jobs.engines.delta_rs.change_table import ChangeTableWriter
from spark_jobs.engines.delta_rs.engine import DeltaRsEngine
from spark_jobs.engines.delta_rs.features import BESIDE_SPARK
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.places import Place
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.settings import settings_of

MOST_BYTES = 64 * 1024**2
"""Of a batch's files, which are in the driver's memory together."""
_MOST_TOMBSTONES = 256 * 1024**2


@dataclass(frozen=True)
class BatchesBesideSpark:
    """Attributes:
    place: where the replica's files are read.
    """

    context: TableContext
    place: Place

    def decode_files(
        self, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]] | None:
        """See `Engine.decode_files`; None: the batch is one for Spark, and nothing was written."""
        tables = Tables(self.context.storage, lambda: datetime.now(UTC), features=BESIDE_SPARK)
        tables = tables.worked_on_at(self.place)
        try:
            if not (self._suits(plan, state) and self._are_suited(tables)):
                return None
            found, unreadable = DeltaRsEngine(tables, reads_whole=False).decode_files(self.context, plan, state)
        except DeclinedError:
            return None
        if not isinstance(found, ChangeTableWriter):
            return found, unreadable
        schema = found.batch_context.table_schema
        others = _TablesOfSpark(self.context.engine.table_work(self.context, plan, schema), tables)
        return replace(found, batch_context=replace(found.batch_context, others=others)), unreadable

    def _suits(self, plan: BatchPlan, state: TableState) -> bool:
        """Whether the batch fits into memory, and needs of the tables, as they are, no more than its keys' rows."""
        spec = self.context.spec
        if state.applied != settings_of(spec) or state.keys is None or spec.shard is not None:
            return False
        if not state.keys and any(file.kind != "change" for file in plan.files):
            return False
        return sum(file.size for file in plan.files) <= MOST_BYTES

    def _are_suited(self, tables: Tables) -> bool:
        """Whether this engine knows all features of the tables, and the tombstones fit into memory."""
        layout = self.context.layout
        found = [tables.snapshot(path) for path in (layout.replica, layout.changes, layout.history, layout.errors)]
        if found[0] is None or (any(s and s.has_vectors for s in found) and not deletion_vectors.are_known()):
            return False
        tombstones = tables.snapshot(layout.tombstones)
        return tombstones is None or tombstones.size <= _MOST_TOMBSTONES


@dataclass(frozen=True)
class _TablesOfSpark(TablesOfAnother):
    """Spark's steps; `tables` sees what they have changed."""

    tables: Tables

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        warnings = super().ensure_tables()
        self.tables.forget_all()
        return warnings
