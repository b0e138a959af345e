"""The engine for tests: Arrow tables in this process and the rules, without Delta and Spark.

It reads landed files as the other engines do and runs the pipeline's steps in a few milliseconds. It has no files, so
a full refresh, which builds shadow tables in storage, and erasure, which rewrites files, are declined.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.base import DeclinedError, RebuildRequest, TableContext
from spark_jobs.engines.memory.batch import MemoryAppendedWork, MemoryBatchWork, MemoryTableWork
from spark_jobs.engines.memory.tables import MemoryTables
from spark_jobs.engines.transactions import QUARANTINE, app_of, version_of
from spark_jobs.engines.whole_batch import WholeBatch, WholeBatchReader
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import Appended, Compacted, Verdict
from spark_jobs.rules.key_rows import KeyRows, highest, with_key
from spark_jobs.rules.order import events
from spark_jobs.rules.quarantine import in_quarantine, unresolved
from spark_jobs.rules.recorded import recorded_files
from spark_jobs.rules.rewrite import Rewrite
from spark_jobs.rules.superseded import applied_before, are_superseded, needed_changes
from spark_jobs.rules.sweep import unmarked
from spark_jobs.rules.verify import verdict


@dataclass(frozen=True)
class MemoryEngine:
    """See `Engine`."""

    tables: MemoryTables = field(default_factory=MemoryTables)
    shard: str = ""

    def suited(self, *, few_rows: bool) -> MemoryEngine:  # noqa: ARG002 - nothing is set up either way
        return self

    def of_shard(self, shard: str) -> MemoryEngine:
        return replace(self, shard=shard)

    def exists(self, path: str) -> bool:
        return self.tables.get(path) is not None

    def version(self, path: str) -> int | None:  # noqa: ARG002 - there is no log whose versions could be compared
        return None

    def foreign_rows(self, path: str) -> int:
        return int(self.tables.rows(path).column(GDDL).null_count)

    def last_transaction(self, path: str, app: str) -> int:
        table = self.tables.get(path)
        return -1 if table is None else table.transactions.get(app_of(app, self.shard), -1)

    def recorded_files(self, path: str) -> list[RecordedFile]:
        table = self.tables.existing(path)
        kinds = {c.name: c.type for c in table.columns}
        return recorded_files([table.rows.select([GDDL])], kinds[GDDL])

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.tables.existing(path).columns if c.name != GDDL)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[MemoryBatchWork | None, tuple[Unreadable, ...]]:
        reader = WholeBatchReader(context=context, plan=plan, state=state)
        errors = self.tables.get(context.layout.errors)
        decoded, unreadable = reader.decode(None if errors is None else errors.rows)
        if decoded is None:
            return None, unreadable
        return MemoryBatchWork(tables=self._of(context, plan, decoded), decoded=decoded), unreadable

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> MemoryAppendedWork:
        rows = self.tables.rows(context.layout.changes)
        mine = rows.filter(pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), plan.batch_id))
        decoded = WholeBatchReader(context=context, plan=plan, state=state).resume(mine)
        appended = Appended(written=mine.num_rows, redelivered=0)
        tables = self._of(context, plan, decoded)
        return MemoryAppendedWork(tables=tables, decoded=decoded, changes=decoded.good, appended=appended)

    def _of(self, context: TableContext, plan: BatchPlan, decoded: WholeBatch) -> MemoryTableWork:
        return self.table_work(context, plan, decoded.decoded_batch.schema.table_schema)

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> MemoryTableWork:
        return MemoryTableWork(memory=self.tables, context=context, plan=plan, table_schema=table_schema)

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        path = context.layout.errors
        self.tables.ensure(table_definition.errors(path))
        self.tables.append(
            path, (app_of(QUARANTINE, plan.shard), version_of(plan)), error_rows.of_files(files, Stamp.of(plan))
        )

    def forget_errors(self, path: str, batch_id: str) -> None:
        rows = self.tables.rows(path)
        self.tables.replace_rows(path, rows.filter(pc.not_equal(rows.column("batch_id"), batch_id)))

    def maintenance(self) -> MemoryMaintenance:
        return MemoryMaintenance(self.tables)

    def eraser(self) -> NoReturn:
        raise DeclinedError("tables in memory have no files, which erasure needs")

    def refused_values(self, path: str, how: Rewrite) -> NoReturn:
        del path, how
        raise DeclinedError("tables in memory have no files, which a rebuild needs")

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> NoReturn:
        del context, plan, how
        raise DeclinedError("tables in memory have no files, which a rebuild needs")

    def rebuild(self, order: RebuildRequest) -> NoReturn:
        del order
        raise DeclinedError("tables in memory have no files, which a full refresh needs")

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        replica, changes = (self.tables.rows(path) for path in (context.layout.replica, context.layout.changes))
        return verdict(replica, changes, table_schema, swept=swept, limit=limit)

    def live_rows(self, path: str, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        rows = unmarked(self.tables.rows(path))
        return zip(*(rows.column(name).to_pylist() for name in columns), strict=True)

    def rows_of_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
        return highest(with_key(self.tables.rows(path), table_schema, key), limit)

    def in_quarantine(self, path: str) -> tuple[int, int]:
        return in_quarantine(self.tables.rows(path))

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        return unresolved(self.tables.rows(path), limit)


@dataclass(frozen=True)
class MemoryMaintenance:
    """See `Maintenance`; a table in memory has neither files nor a log."""

    tables: MemoryTables

    def compact(self, path: str, *, dry_run: bool) -> Compacted:  # noqa: ARG002 - there are no files
        return Compacted(files_before=0, files_after=0)

    def keep_readable_statistics(self, path: str) -> None:
        pass

    def rewrite_timestamps(self, path: str, *, dry_run: bool) -> int:  # noqa: ARG002 - there are no files
        return 0

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:  # noqa: ARG002 - there are no files
        return 0

    def checkpoint(self, path: str) -> None:
        pass

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        rows = self.tables.rows(path)
        return self._keep(path, rows.filter(pc.invert(applied_before(rows, before))), dry_run=dry_run)

    def cut_changes(
        self, context: TableContext, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool
    ) -> int:
        path = context.layout.changes
        rows = self.tables.rows(path)
        needed = needed_changes(events(rows, table_schema), table_schema, before)
        gone = are_superseded(rows, needed, table_schema, before, swept)
        return self._keep(path, rows.filter(pc.invert(gone)), dry_run=dry_run)

    def _keep(self, path: str, left: pa.Table, *, dry_run: bool) -> int:
        gone: int = self.tables.rows(path).num_rows - left.num_rows
        if not dry_run:
            self.tables.replace_rows(path, left)
        return gone
