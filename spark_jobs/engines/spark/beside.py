"""Batches of changes that need not go through the JVM: the engine without Spark decodes, appends and merges them.

Spark's tasks find the rows of the replica with the batch's keys; its Delta creates, alters and maintains the tables.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime

from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import parts
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
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.rules.fold import refolds

MOST_BYTES = 64 * 1024**2
"""Of a batch's files, which are in the driver's memory together."""
_MOST_TOMBSTONES = 256 * 1024**2
_TYPES_OF_FEATURES = {"timestamp_ntz", "variant"}


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
        if refolds(schema) or _adds_features(found.decoded_batch.schema):
            return None
        others = _TablesOfSpark(self.context.engine.table_work(self.context, plan, schema), tables)
        return replace(found, batch_context=replace(found.batch_context, others=others)), unreadable

    def _suits(self, plan: BatchPlan, state: TableState) -> bool:
        """Whether the batch fits into memory, and needs of the tables, as they are, no more than its keys' rows."""
        spec = self.context.spec
        if state.applied != settings_of(spec):
            return False
        if (
            not deletion_vectors.are_known()
            or state.keys is None
            or spec.shard is not None
            or spec.history
            or plan.source != "files"
        ):
            return False
        return all(f.kind == "change" for f in plan.files) and sum(f.size for f in plan.files) <= MOST_BYTES

    def _are_suited(self, tables: Tables) -> bool:
        """Whether deleted rows of the replica are named by vectors, and its tombstones fit into memory."""
        layout = self.context.layout
        replica, tombstones = tables.snapshot(layout.replica), tables.snapshot(layout.tombstones)
        if replica is None or not replica.writes_vectors or replica.feeds_changes:
            return False
        return tombstones is None or tombstones.size <= _MOST_TOMBSTONES


def _adds_features(schema: BatchSchema) -> bool:
    """Whether types are widened, or columns have types, for which Spark gives the tables features."""
    plans = (schema.plan, schema.before)
    types = [column.type for column in schema.new_technical]
    types += [added.type for plan in plans for added in plan.additions]
    scalars = {str(part) for kind in types for part in parts(kind)}
    return bool(scalars & _TYPES_OF_FEATURES) or any(plan.widenings for plan in plans)


@dataclass(frozen=True)
class _TablesOfSpark(TablesOfAnother):
    """Spark's steps; `tables` sees what they have changed."""

    tables: Tables

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        warnings = super().ensure_tables()
        self.tables.forget_all()
        return warnings
