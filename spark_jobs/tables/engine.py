"""What is done with the tables of one row, where its tier works on them: in one task, or in many.

Both engines write the same table contents (docs/semantics.md); they differ in the places where they work (`places`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Protocol, Self

import pyarrow as pa

from airflow_gddl.contract.result import Warnings
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import Appended, DecodedBatch
from spark_jobs.rules.fold import applied_before, are_superseded, needed_changes
from spark_jobs.rules.order import as_events
from spark_jobs.rules.outcome import Applied
from spark_jobs.rules.redelivery import Overlap
from spark_jobs.rules.rewrite import Rewrite
from spark_jobs.rules.stored_columns import key_schema
from spark_jobs.tables.baseline_writer import BaselineWriter
from spark_jobs.tables.delta_tables import Tables
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.file_rules import Eraser, remove_rows
from spark_jobs.tables.stored_rows import StoredRows
from spark_jobs.tables.swap import Swap, SwapRequest, rewrite_changes
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import Source, by_key, changes_by_key
from spark_jobs.tables.whole_tables import TableWriter, keep_readable

_CHANGES = "changes"


@dataclass(frozen=True, kw_only=True)
class Compacted:
    """Data files of a table before small ones were joined and after."""

    files_before: int
    files_after: int


class BatchWork(Protocol):
    """The steps of a planned batch, decoded; called in this order. Every write is idempotent.

    A table without keys has no tombstones and no history: each of its changes becomes a row of the replica.
    """

    @property
    def decoded_batch(self) -> DecodedBatch: ...

    @property
    def tables(self) -> TableWriter: ...

    @property
    def appended(self) -> Appended:
        """What `append` has done."""
        ...

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write bad rows and files to the errors table; resolve what earlier versions of files (`again`) left there."""
        ...

    def discard(self) -> None:
        """Remove what decoding has written, for a batch that is left."""
        ...

    def append(self, overlap: Overlap) -> None:
        """Append the changes that are new to the change table.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        ...

    def decide(self) -> None:
        """Compare the batch's net changes with the stored rows of their keys; nothing of it is visible yet."""
        ...

    def tombstones(self) -> None:
        """Write tombstones of the batch's net deletes, so that no late change can restore a deleted row."""
        ...

    def replica(self) -> Applied:
        """Apply net changes to the replica."""
        ...

    def stale_rows(self) -> Warnings:
        """Rows of the replica that are older than changes that the batch has quarantined."""
        ...

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        """Update the history of the batch's keys; see `TableWriter.history`."""
        ...

    def resolve_rows(self) -> None:
        """Mark quarantined rows that are valid now as resolved."""
        ...


@dataclass(frozen=True)
class Maintenance(ABC):
    """Table maintenance. Rows are unchanged unless stated; all methods are idempotent.

    `dry_run`: only report.
    """

    tables: Tables
    context: TableContext

    @abstractmethod
    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        """Compact small files; transactions and statistics are kept."""

    def keep_readable_statistics(self, path: str) -> None:
        """Drop columns from the indexed ones whose bounds some reader can't read."""
        keep_readable(self.tables, path)

    @abstractmethod
    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of the last `hours` needs, also of failed writers; returns their number."""

    @abstractmethod
    def checkpoint(self, path: str) -> None:
        """Write an empty commit and its checkpoint."""

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        """Remove tombstones applied before a time; returns their number."""
        return remove_rows(self.tables, path, lambda rows: applied_before(rows, before), dry_run=dry_run)

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        """Remove superseded changes applied before a time; returns their number.

        Args:
            swept: rows of generations before this one have vanished.
        """
        schema, path = table_schema, self.context.layout.changes

        def rule(_: Storage, rows: Mapping[str, pa.Table]) -> list[tuple[str, int]]:
            return sorted(needed_changes(as_events(rows[_CHANGES], schema), schema, before))

        sources = {_CHANGES: Source.of(self.tables.existing(path), partial(changes_by_key, schema=schema))}
        reports = by_key(self.tables, sources, key_schema(schema), rule) if schema.keys else []
        needed = frozenset((batch, position) for report in reports for batch, position in report)
        return remove_rows(
            self.tables, path, lambda rows: are_superseded(rows, needed, schema, before, swept), dry_run=dry_run
        )


@dataclass(frozen=True, kw_only=True)
class Engine(TableContext, ABC):
    """Context of one table, and what is done with its Delta tables."""

    @abstractmethod
    def suited(self, *, few_rows: bool) -> Self:
        """The engine, configured for few rows or many."""

    @abstractmethod
    def tables_of(self, *paths: str) -> Tables:
        """The tables of these paths."""

    @abstractmethod
    def whole_tables_of(self, *paths: str) -> Tables:
        """The tables of these paths, for rules that compare the rows of all their files.

        Raises:
            DeclinedError: they are too large for one task.
        """

    @abstractmethod
    def purge(self, path: str) -> None:
        """Make sure that no current file of a table holds removed rows."""

    @abstractmethod
    def decode_files(self, plan: BatchPlan, state: TableState) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        """Decode a plan's files; also returns the unreadable ones. None when no file is readable."""

    @abstractmethod
    def resume_from_changes(self, plan: BatchPlan, state: TableState) -> BatchWork:
        """The batch from its rows in the change table, because its files have changed since."""

    @abstractmethod
    def table_work(self, plan: BatchPlan, table_schema: TableSchema) -> TableWriter:
        """A batch without rows, which only sweeps or reconciles tables with the metadata row."""

    @abstractmethod
    def swap(self, request: SwapRequest) -> Swap:
        """Prepare the swap of a rebuild or a reload; writes nothing."""

    @property
    @abstractmethod
    def maintenance(self) -> Maintenance: ...

    @property
    def quarantine(self) -> ErrorsTable:
        return ErrorsTable(self.tables_of(self.layout.errors), self.layout.errors)

    @property
    def stored(self) -> StoredRows:
        return StoredRows(self, self.tables_of, self.whole_tables_of)

    @property
    def baseline(self) -> BaselineWriter:
        return BaselineWriter(self.tables_of(self.layout.replica, self.layout.changes), self.layout, self.tier)

    @property
    def eraser(self) -> Eraser:
        layout = self.layout
        paths = (layout.changes, layout.replica, layout.history, layout.tombstones, layout.errors)
        return Eraser(self.tables_of(*paths), self.purge)

    def rewrite_changes(self, plan: BatchPlan, how: Rewrite) -> None:
        """Replace the change table by its `rewritten` rows, in one commit; once for each plan."""
        rewrite_changes(self.whole_tables_of(self.layout.changes), self, plan, how)
