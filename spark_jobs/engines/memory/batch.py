"""The steps of a batch on tables in memory: each applies its rule and commits the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.result import MainCounts, RunWarning
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines import table_definition
from spark_jobs.engines.base import TableContext
from spark_jobs.engines.memory.tables import MemoryTable, MemoryTables
from spark_jobs.engines.transactions import APPEND, HISTORY, MERGE, QUARANTINE, SWEEP, TOMBSTONES, app_of, version_of
from spark_jobs.engines.whole_batch import WholeBatch
from spark_jobs.plan.batch import BatchPlan
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows, sweep
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.changes import change_schema
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import Appended, Applied, Overlap
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.history import versions
from spark_jobs.rules.merge import ACTION, AT, StoredState
from spark_jobs.rules.order import events
from spark_jobs.rules.outcome import Outcome, outcome_of, replaced, warnings_of
from spark_jobs.rules.quarantine import Chosen, good_again, of_earlier_versions, resolved
from spark_jobs.rules.redelivery import TIED, new_changes, tie_warnings


@dataclass(frozen=True, kw_only=True)
class MemoryTableWork:
    """See `TableWork`."""

    memory: MemoryTables
    context: TableContext
    plan: BatchPlan
    table_schema: TableSchema

    def of(self, app: str) -> tuple[str, int]:
        """The batch's transaction of a step."""
        return app_of(app, self.plan.shard), version_of(self.plan)

    def changes(self) -> pa.Table:
        """All rows of the change table."""
        return by_name(self.memory.rows(self.context.layout.changes), change_schema(self.table_schema))

    def of_others(self, rows: pa.Table) -> pa.Table:
        """Rows of other batches."""
        return rows.filter(pc.not_equal(pc.struct_field(rows.column(GDDL), "batch_id"), self.plan.batch_id))

    def resolve(self, chosen: Chosen) -> None:
        """Set `resolved_at` of the chosen unresolved rows of the errors table."""
        path = self.context.layout.errors
        found = resolved(self.memory.rows(path), chosen, self.plan.planned_at)
        if found is not None:
            self.memory.replace_rows(path, found)

    def ensure_tables(self) -> tuple[RunWarning, ...]:
        for definition in table_definition.definitions(self.table_schema, self.context.layout, self.context.tier):
            self.memory.ensure(definition)
        tombstones = table_definition.tombstones(self.table_schema, self.context.layout.tombstones)
        if self.memory.get(tombstones.path) is not None:
            self.memory.ensure(tombstones)
        return ()

    def sweepable(self) -> tuple[int, int]:
        rows = self.memory.rows(self.context.layout.replica)
        return sweep.sweepable(rows, self.plan.generation, self.table_schema)

    def sweep(self) -> MainCounts:
        def swept(table: MemoryTable) -> tuple[pa.Table, MainCounts]:
            left, count = sweep.swept(table.rows, self.plan.generation, self.table_schema)
            return left, MainCounts(deleted=count)

        return self.memory.commit(self.context.layout.replica, self.of(SWEEP), swept)

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        def derived(_: MemoryTable) -> tuple[pa.Table, MainCounts]:
            happened = events(self.changes(), self.table_schema)
            return versions(happened, self.table_schema, generation_low_watermarks, swept), MainCounts()

        self.memory.commit(self.context.layout.history, self.of(HISTORY), derived)


@dataclass(frozen=True, kw_only=True)
class MemoryBatchWork:
    """See `BatchWork`."""

    tables: MemoryTableWork
    decoded: WholeBatch

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        tables, path, stamp = self.tables, self.tables.context.layout.errors, Stamp.of(self.tables.plan)
        rows = [*(error_rows.of_rows(group, stamp) for group in self.decoded.groups), error_rows.of_files(files, stamp)]
        bad = pa.concat_tables(rows)
        if bad.num_rows:
            tables.memory.ensure(table_definition.errors(path))
            tables.memory.append(path, tables.of(QUARANTINE), bad)
        if again and tables.memory.get(path) is not None:
            tables.resolve(of_earlier_versions(again, stamp.batch_id))

    def append(self, overlap: Overlap) -> MemoryAppendedWork:
        tables, figures, schema = self.tables, self.decoded_batch.figures, self.tables.table_schema
        stored = None if overlap.disjoint else tables.of_others(tables.changes())
        found = new_changes(self.decoded.good, stored, schema)
        new = found.drop_columns([TIED])
        written = tables.memory.append(tables.context.layout.changes, tables.of(APPEND), new).inserted
        appended = figures.appended(new.num_rows, written, tie_warnings(found, schema), batch=tables.plan.number)
        return MemoryAppendedWork(tables=tables, decoded=self.decoded, changes=new, appended=appended)


@dataclass(frozen=True, kw_only=True)
class MemoryAppendedWork:
    """See `AppendedWork`; `changes`: the batch's rows of the change table."""

    tables: MemoryTableWork
    decoded: WholeBatch
    changes: pa.Table
    appended: Appended

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    def resolve_rows(self) -> None:
        self.tables.resolve(good_again(self.decoded.good))

    def tombstones(self) -> MemoryMergeWork:
        tables, schema = self.tables, self.tables.table_schema
        partial = schema.carries_parts(self.decoded_batch.change_schemas)
        net = net_changes(events(self.changes, schema), schema, partial=partial)
        outcome = outcome_of(net, self._stored(), schema, self._refold, partial=partial)
        if outcome.deletes.num_rows:
            path = tables.context.layout.tombstones
            tables.memory.ensure(table_definition.tombstones(schema, path))
            tables.memory.append(path, tables.of(TOMBSTONES), outcome.deletes)
        return MemoryMergeWork(tables=tables, outcome=outcome)

    def _stored(self) -> StoredState:
        memory, layout = self.tables.memory, self.tables.context.layout
        tombstones = memory.get(layout.tombstones)
        return StoredState(
            replica=memory.rows(layout.replica),
            tombstones=None if tombstones is None else self.tables.of_others(tombstones.rows),
        )

    def _refold(self, _: pa.Table) -> pa.Table:
        """`order.events` of all changes of the table."""
        return events(self.tables.changes(), self.tables.table_schema)

    def append_only(self) -> Applied:
        schema = self.tables.table_schema
        rows = sweep.appended(self.changes, schema)
        tables = self.tables
        main = tables.memory.append(tables.context.layout.replica, tables.of(MERGE), rows)
        return Applied(main=main, late=self.changes.num_rows - rows.num_rows)


@dataclass(frozen=True, kw_only=True)
class MemoryMergeWork:
    """See `MergeWork`."""

    tables: MemoryTableWork
    outcome: Outcome

    def merge(self) -> Applied:
        tables, outcome = self.tables, self.outcome

        def merged(table: MemoryTable) -> tuple[pa.Table, MainCounts]:
            touched = outcome.rows.filter(outcome.rows.column(AT).is_valid())
            left = replaced(table.rows, touched.column(AT).to_numpy(), touched, table.schema)
            inserts = outcome.rows.filter(pc.equal(outcome.rows.column(ACTION), "insert"))
            return pa.concat_tables([left, by_name(inserts, table.schema)]), outcome.counts

        main = tables.memory.commit(tables.context.layout.replica, tables.of(MERGE), merged)
        warnings = warnings_of(outcome, tables.table_schema)
        return Applied(main=main, warnings=warnings, late=outcome.late)

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        self.tables.history(generation_low_watermarks, swept=swept)
