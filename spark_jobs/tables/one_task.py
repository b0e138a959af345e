"""A table in one task: no JVM, tables of its memory. And what both engines do alike, maintenance included.

Compaction is done here and not by `deltalake`, which writes no statistics of `_gddl`
(docs/decisions/delta-and-ledger.md).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from airflow_gddl.contract.layout import join as join_path
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import Appended
from spark_jobs.tables.batch_in_memory import BatchInMemory, WholeBatch, WholeBatchReader, batch_rows
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.engine import BatchWork, Compacted, Engine, Maintenance
from spark_jobs.tables.file_parts import PartBounds
from spark_jobs.tables.first_load import first_load
from spark_jobs.tables.places import DeclinedError, InProcess, LargeBatchError
from spark_jobs.tables.small_files import bins, join
from spark_jobs.tables.swap import Swap, SwapRequest
from spark_jobs.tables.vacuum import own_hours, unneeded
from spark_jobs.tables.whole_tables import BatchContext, TableWriter


class OneTaskMaintenance(Maintenance):
    """See `Maintenance`."""

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        snapshot = self.tables.existing(path)
        before, joined, made = len(snapshot.files), 0, 0
        for files in list(bins(snapshot.files)):
            joined, made = joined + len(files), made + 1
            if not dry_run:
                join(self.tables, path, files)
        return Compacted(files_before=before, files_after=before - joined + made)

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        snapshot = self.tables.existing(path)
        hours, delta = max(hours, own_hours(snapshot.properties, path)), snapshot.opened()
        files = delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        if snapshot.has_vectors:  # `deltalake` removes those in use
            files = unneeded(self.context.storage, snapshot, files, self.tables.moment / 1000, hours)
            if not dry_run:
                self.context.storage.delete(*(join_path(path, name) for name in files))
        elif files and not dry_run:
            self.tables.forget(path)
            delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(files)

    def checkpoint(self, path: str) -> None:
        self.tables.commit(path, Write(rearranged=True))
        self.tables.existing(path).opened().create_checkpoint()

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        size, most = self.tables.existing(self.context.layout.changes).size, self.context.tier.task_max_bytes
        if size > most:
            raise DeclinedError(f"the change table has {size} bytes, more than its tier's task_max_bytes ({most})")
        return super().cut_changes(table_schema, before, swept, dry_run=dry_run)


@dataclass(frozen=True, kw_only=True)
class OneTaskEngine(Engine):
    """See `Engine`.

    Attributes:
        reads_whole: tables are read whole, so that they have to fit into memory.
        most_bytes: see `WholeBatchReader`.
        parts: how the files of a first load are divided.
    """

    tables: Tables
    reads_whole: bool = True
    most_bytes: int | None = None
    parts: PartBounds = field(default_factory=PartBounds)

    def suited(self, *, few_rows: bool) -> OneTaskEngine:  # noqa: ARG002 - nothing is set up either way
        return self

    def tables_of(self, *paths: str) -> Tables:  # noqa: ARG002 - it knows all tables
        return self.tables

    def whole_tables_of(self, *paths: str) -> Tables:
        self._require_small_tables(*paths)
        return self.tables

    def purge(self, path: str) -> None:
        """Files without vectors were written again without removed rows; those with one are written again now."""
        snapshot = self.tables.existing(path)
        for file in [file for file in snapshot.files if file.vector is not None]:
            join(self.tables, path, [file])

    def decode_files(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        size = plan.size
        if self.reads_whole:
            self._require_small("the batch", size)
        self._require_small_tables(self.layout.replica, self.layout.history)
        if size > self.parts.together:
            first = first_load(self, plan, state, self.tables, InProcess(self.storage), self.parts)
            if first is not None:
                return first
            if self.reads_whole and state.keys is None:
                self._require_usual_batch(plan)
        path = self.layout.errors
        errors = self.tables.read(path) if plan.source == "quarantine" and self.tables.exists(path) else None
        reader = WholeBatchReader(context=self, plan=plan, state=state, most_bytes=self.most_bytes)
        decoded, unreadable = reader.decode(errors)
        return None if decoded is None else self._work(plan, decoded), unreadable

    def _require_usual_batch(self, plan: BatchPlan) -> None:
        """Check that the rows of a batch fit into memory together; one that has appended rows is finished anyway.

        Raises:
            LargeBatchError: the batch is a first load that is larger than batches whose rows are in memory together.
        """
        most = BatchLimits.of(self.tier, in_one_task=True).max_bytes
        is_usual = len(plan.files) == 1 or plan.size <= most
        if not is_usual and not self.has_appended(plan):
            raise LargeBatchError

    def resume_from_changes(self, plan: BatchPlan, state: TableState) -> BatchInMemory:
        self._require_small_tables(self.layout.replica, self.layout.history)
        rows = batch_rows(self.tables, self.layout.changes, plan.batch_id)
        work = self._work(plan, WholeBatchReader(context=self, plan=plan, state=state).resume(rows))
        work.changes = work.decoded.good
        work.appended = Appended(written=work.changes.num_rows, redelivered=0)
        return work

    def _work(self, plan: BatchPlan, decoded: WholeBatch) -> BatchInMemory:
        table_schema = decoded.decoded_batch.schema.table_schema
        return BatchInMemory(batch_context=BatchContext.of(self, self.tables, plan, table_schema), decoded=decoded)

    def _require_small_tables(self, *paths: str) -> None:
        """Require that tables fit into a task's memory.

        Raises:
            DeclinedError: one of them is too large for a process's memory.
        """
        for path in paths:
            snapshot = self.tables.snapshot(path)
            if snapshot is not None and self.reads_whole:
                self._require_small(f"the table {path.rpartition('/')[2]}", snapshot.size)

    def _require_small(self, what: str, size: int) -> None:
        if size > self.tier.task_max_bytes:
            limit = f"more than its tier's task_max_bytes ({self.tier.task_max_bytes})"
            raise DeclinedError(f"{what} has {size} bytes, {limit}")

    def table_work(self, plan: BatchPlan, table_schema: TableSchema) -> TableWriter:
        tables = self.whole_tables_of(self.layout.replica, self.layout.history)
        return TableWriter(BatchContext.of(self, tables, plan, table_schema))

    @property
    def maintenance(self) -> OneTaskMaintenance:
        return OneTaskMaintenance(self.tables, self)

    def swap(self, request: SwapRequest) -> Swap:
        shadow = () if request.shadow is None else (request.shadow.changes,)
        return Swap(self, self.whole_tables_of(*shadow, self.layout.changes), request)
