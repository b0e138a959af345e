"""What both engines do alike, and the delta-rs engine: one process, no JVM, tables that fit into its memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from spark_jobs.delta.commits import QUARANTINE, version_of
from spark_jobs.delta.tables import Tables
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.engines import file_rules
from spark_jobs.engines.batch_context import BatchContext
from spark_jobs.engines.batches import ChangeTableWriter, ReplicaWriter, WholeBatchReader, batch_rows
from spark_jobs.engines.file_rules import TablesEraser
from spark_jobs.engines.first_load import FirstLoadReader
from spark_jobs.engines.maintenance import DeltaRsMaintenance
from spark_jobs.engines.places import InProcess
from spark_jobs.engines.port import BatchWork, DeclinedError, RebuildRequest, TableContext
from spark_jobs.engines.rebuild import Rebuild, rewrite_changes, verify
from spark_jobs.engines.whole_tables import TableWriter
from spark_jobs.plan.columns import Column
from spark_jobs.plan.discover import RecordedFile
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import quarantine
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.erasure import KeyRows
from spark_jobs.rules.measure import Appended, Verdict
from spark_jobs.rules.rewrite import Rewrite

_IN_MEMORY = 8 * 1024**2
"""Bytes up to which the files of a first load are decoded together: that takes fewer requests."""


class TablesEngine(Protocol):
    """Steps that both engines take alike, on tables that are worked on where the engine says; see `Engine`."""

    def tables_of(self, context: TableContext, *paths: str) -> Tables:
        """The tables of these paths."""
        ...

    def purge(self, path: str) -> None:
        """Make sure that no current file of a table holds removed rows."""
        ...

    def foreign_rows(self, context: TableContext, path: str) -> int:
        return file_rules.foreign_rows(self.tables_of(context, path), path)

    def recorded_files(self, context: TableContext) -> list[RecordedFile]:
        path = context.layout.changes
        return file_rules.files_of_changes(self.tables_of(context, path), path)

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        path, rows = context.layout.errors, quarantine.of_files(files, Stamp.of(plan))
        file_rules.append(self.tables_of(context, path), path, rows, QUARANTINE, version_of(plan))

    def forget_errors(self, context: TableContext, batch_id: str) -> None:
        path = context.layout.errors
        file_rules.forget(self.tables_of(context, path), path, batch_id)

    def eraser(self, context: TableContext) -> TablesEraser:
        layout = context.layout
        paths = (layout.changes, layout.replica, layout.history, layout.tombstones, layout.errors)
        return TablesEraser(self.tables_of(context, *paths), self.purge)

    def refused_values(self, context: TableContext, how: Rewrite) -> dict[tuple[str, str], int]:
        path = context.layout.changes
        return file_rules.values_refused(self.tables_of(context, path), path, how)

    def live_rows(self, context: TableContext, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        path = context.layout.replica
        return file_rules.live_rows(self.tables_of(context, path), path, columns)

    def rows_of_key(
        self, context: TableContext, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int
    ) -> KeyRows:
        return file_rules.rows_of_key(self.tables_of(context, path), path, table_schema, key, limit)

    def in_quarantine(self, context: TableContext) -> tuple[int, int]:
        path = context.layout.errors
        return file_rules.in_quarantine(self.tables_of(context, path), path)

    def unresolved(self, context: TableContext, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        path = context.layout.errors
        return file_rules.unresolved(self.tables_of(context, path), path, limit)


@dataclass(frozen=True)
class DeltaRsEngine(TablesEngine):
    """See `Engine`.

    Attributes:
        reads_whole: tables are read whole, so that they have to fit into memory.
    """

    tables: Tables
    reads_whole: bool = True

    def tables_of(self, context: TableContext, *paths: str) -> Tables:  # noqa: ARG002 - it knows all tables
        return self.tables

    def purge(self, path: str) -> None:
        """Files are written again without removed rows."""

    def suited(self, *, few_rows: bool) -> DeltaRsEngine:  # noqa: ARG002 - nothing is set up either way
        return self

    def of_shard(self, shard: str) -> DeltaRsEngine:
        return replace(self, tables=self.tables.of_shard(shard))

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.tables.existing(path).schema.columns if c.name != GDDL)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        if self.reads_whole:
            self._require_small(context, "the batch", sum(f.size for f in plan.files))
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        if sum(file.size for file in plan.files) > _IN_MEMORY and not context.tier.deletion_vectors:
            place = InProcess(context.storage)
            first = FirstLoadReader(context=context, plan=plan, state=state, tables=self.tables, place=place)
            if first.suits() and (found := first.decode_files()) is not None:
                return found
        path = context.layout.errors
        errors = self.tables.read(path) if plan.source == "quarantine" and self.exists(path) else None
        decoded, unreadable = WholeBatchReader(context=context, plan=plan, state=state).decode(errors)
        if decoded is None:
            return None, unreadable
        batch_context = self._batch_context(context, plan, decoded.decoded_batch.schema.table_schema)
        return ChangeTableWriter(batch_context=batch_context, decoded=decoded), unreadable

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> ReplicaWriter:
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        rows = batch_rows(self.tables, context.layout.changes, plan.batch_id)
        decoded = WholeBatchReader(context=context, plan=plan, state=state).resume(rows)
        batch_context = self._batch_context(context, plan, decoded.decoded_batch.schema.table_schema)
        appended = Appended(written=decoded.good.num_rows, redelivered=0)
        return ReplicaWriter(batch_context=batch_context, decoded=decoded, changes=decoded.good, appended=appended)

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWriter:
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        return TableWriter(self._batch_context(context, plan, table_schema))

    def _require_small_tables(self, context: TableContext, *paths: str) -> None:
        """
        Raises:
            DeclinedError: one of them is too large for a process's memory.
        """
        for path in paths:
            snapshot = self.tables.snapshot(path)
            if snapshot is not None and self.reads_whole:
                self._require_small(context, f"the table {path.rpartition('/')[2]}", snapshot.size)

    def _require_small(self, context: TableContext, what: str, size: int) -> None:
        if size > context.tier.delta_rs_max_bytes:
            limit = f"more than its tier's delta_rs_max_bytes ({context.tier.delta_rs_max_bytes})"
            raise DeclinedError(f"{what} has {size} bytes, {limit}")

    def _batch_context(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> BatchContext:
        return BatchContext(
            tables=self.tables, layout=context.layout, tier=context.tier, plan=plan, table_schema=table_schema,
            resumed=context.resumed,
        )  # fmt: skip

    def maintenance(self, context: TableContext) -> DeltaRsMaintenance:
        return DeltaRsMaintenance(self.tables, context)

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
        self._require_small_tables(context, context.layout.changes)
        rewrite_changes(self.tables, context, plan, how)

    def rebuild(self, order: RebuildRequest) -> Rebuild:
        shadow = () if order.shadow is None else (order.shadow.changes,)
        self._require_small_tables(order.live, *shadow, order.live.layout.changes)
        return Rebuild(self.tables, order)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        self._require_small_tables(context, context.layout.replica, context.layout.changes)
        return verify(self.tables, context.layout, table_schema, swept=swept, limit=limit)
