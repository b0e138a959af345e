"""Port of an engine: steps of a batch, and what else is done with a table.

Both engines write the same table contents (docs/semantics.md); they differ in the places where they work (`places`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.names import is_before_image
from airflow_gddl.contract.result import CommitMethod, MainCounts, RunWarning
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.dialects.protocol import Dialect, Unreadable
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import RESCUED, Column, Schema, TableSchema
from spark_jobs.rules.baseline_rows import BaselineFigures
from spark_jobs.rules.batch_schema import Stored, plan_batch
from spark_jobs.rules.erasure import KeyRows
from spark_jobs.rules.figures import DecodedBatch
from spark_jobs.rules.other_table import OtherTableFindings, OtherTableRule
from spark_jobs.rules.quarantine import Unresolved
from spark_jobs.rules.rewrite import Rewrite
from spark_jobs.rules.step_results import (
    Appended,
    Applied,
    Archived,
    ChangesErased,
    Compacted,
    Overlap,
    Rebuilt,
    Replaced,
)
from spark_jobs.rules.verify import SharedKeys, Verdict
from spark_jobs.tables.delta_log import APPEND, DeltaCommit, version_of
from spark_jobs.tables.replayed_log import ReplayedLog


class TableWork(Protocol):
    """Steps on whole tables, which need none of the batch's rows."""

    @property
    def commit_method(self) -> CommitMethod:
        """How the batch's tables are committed."""
        ...

    def ensure_tables(self) -> None:
        """Create, evolve or reconcile change table, replica and history with the metadata."""
        ...

    def sweepable(self) -> tuple[int, int]:
        """How many rows the newest full load lacks, and of how many live rows of the replica."""
        ...

    def sweep(self) -> MainCounts:
        """Remove rows of older generations, or mark them deleted."""
        ...

    def truncate(self) -> MainCounts:
        """Remove rows before truncates, or mark them deleted."""
        ...

    def fold_again(self) -> int:
        """Take from rows after late truncates the columns from before these, by the changes of earlier batches.

        Returns:
            the number of rows that differ.
        """
        ...

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        """Update the history of all keys.

        Args:
            swept: rows of generations before this one have vanished.
        """
        ...


class BatchWork(Protocol):
    """A planned batch, decoded. Every write is idempotent.

    Types enforce the order of steps: only `append` returns an `AppendedWork`, and only its `decide` returns a
    `Decision`.
    """

    @property
    def decoded_batch(self) -> DecodedBatch: ...

    @property
    def tables(self) -> TableWork: ...

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write bad rows and files to the errors table; resolve what earlier versions of files (`again`) left there."""
        ...

    def discard(self) -> None:
        """Remove what decoding has written, for a batch that is left."""
        ...

    def append(self, overlap: Overlap) -> AppendedWork:
        """Append the changes that are new to the change table.

        Raises:
            FatalError: `BATCH_UNBALANCED`.
        """
        ...


class AppendedWork(Protocol):
    """A batch whose changes are in the change table."""

    @property
    def decoded_batch(self) -> DecodedBatch: ...

    @property
    def appended(self) -> Appended: ...

    @property
    def tables(self) -> TableWork: ...

    def resolve_rows(self) -> None:
        """Mark quarantined rows that are valid now as resolved."""
        ...

    def stale_rows(self) -> tuple[RunWarning, ...]:
        """After the merge: rows of the replica that are older than changes that the batch has quarantined."""
        ...

    def decide(self) -> Decision:
        """Compare the batch's net changes with the stored rows of their keys; nothing of it is visible yet."""
        ...


class Decision(Protocol):
    """What a batch changes in the tables after the change table; each method commits a part of it, in this order.

    A table without keys has no tombstones and no history: each of its changes becomes a row of the replica.
    """

    def tombstones(self) -> None:
        """Write tombstones of the batch's net deletes, so that no late change can restore a deleted row."""
        ...

    def replica(self) -> Applied:
        """Apply net changes to the replica."""
        ...

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        """Update the history of the batch's keys; see `TableWork.history`."""
        ...


@dataclass(frozen=True, kw_only=True)
class RebuildRequest:
    """Input of the swap of a rebuild or a reload: tables of `live` get the state that their changes lead to.

    Attributes:
        shadow: where files were read into; None: no file was read, the live change table says all.
        archives: how changes that the shadow table lacks are archived (`order.ARCHIVED`); None: they still count.
        floors: what was ingested before each generation.
        swept: first generation whose rows are in the replica.
        landed: paths of all existing files.
        read: generations of the readable ones, whether or not any of their rows was kept.
        reselected: the live tables hold values that the metadata now masks or excludes.
        resequenced: the live change table has another form of the same sequences, so the two don't compare.
    """

    live: TableContext
    shadow: Layout | None
    plan: BatchPlan
    table_schema: TableSchema
    floors: tuple[GenerationFloor, ...]
    swept: int
    landed: tuple[str, ...] = ()
    read: Mapping[str, int] = field(default_factory=dict)
    resequenced: bool = False
    reselected: bool = False
    archives: Rewrite | None = None


class RebuildWork(Protocol):
    """Executes the swap of a rebuild or a reload; see `RebuildRequest` for its input."""

    def drops_changes(self) -> bool:
        """Whether `swap` would drop changes of removed files, since types or order are incompatible."""
        ...

    def rows(self, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As `Contents.live_rows`, of the replica that `swap` would make; nothing is written."""
        ...

    def compared(self, columns: Sequence[str] | None) -> Replaced:
        """The replica that `swap` would make against the live one; nothing is written.

        Args:
            columns: to compare, those of the key among them; None: the tables share no key, and the new rows are
                counted alone.
        """
        ...

    def archived(self) -> Archived:
        """Changes that `swap` would archive."""
        ...

    def swap(self, report: Callable[[str], None]) -> Rebuilt:
        """Run the swap; `report` gets each durable step. Idempotent."""
        ...


class Maintenance(Protocol):
    """Table maintenance. Rows are unchanged unless stated; all methods are idempotent.

    `dry_run`: only report.
    """

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        """Compact small files; transactions and statistics are kept."""
        ...

    def keep_readable_statistics(self, path: str) -> None:
        """Drop columns from the indexed ones whose bounds some reader can't read."""
        ...

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of the last `hours` needs, also of failed writers; returns their number."""
        ...

    def checkpoint(self, path: str) -> None:
        """Write an empty commit and its checkpoint."""
        ...

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        """Remove tombstones applied before a time; returns their number."""
        ...

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        """Remove superseded changes applied before a time; returns their number.

        Args:
            swept: rows of generations before this one have vanished.
        """
        ...


class Eraser(Protocol):
    """Removes one key from tables. Idempotent; counts are rows, and `counted` gets them before they go.

    `key`: its parts as `erasure.key_text` writes them, in the order of `table_schema.keys`.
    """

    def remove_key(
        self, path: str, table_schema: TableSchema, key: tuple[str, ...], counted: Callable[[int], None] = ...
    ) -> int: ...

    def remove_changes(
        self, path: str, table_schema: TableSchema, key: tuple[str, ...], counted: Callable[[ChangesErased], None]
    ) -> ChangesErased:
        """Remove a key's rows from the change table, in one commit.

        An update that moved a row to this key becomes the delete of its old key: without it the old
        row would reappear. Before images of rows that had this key are set to null.
        """
        ...

    def remove_records(self, path: str, holds: Callable[[str], bool], counted: Callable[[int], None]) -> int:
        """Rows of the errors table whose record, JSON text, `holds` the key."""
        ...


@dataclass(frozen=True, kw_only=True)
class MarkedFiles:
    """Data files of a replica that have `_gddl`, of so many.

    Attributes:
        soft: rows may be marked deleted.
    """

    files: int
    bytes: int
    of: int
    soft: bool


class BaselineWork(Protocol):
    """Makes the rows that a replica has before its first batch the baseline of the table, without writing them again.

    Both writes are idempotent by the plan's time.
    """

    def baseline(self) -> Baseline | None:
        """What the rows without `_gddl` of the replica stand for, as its property says; None: it says nothing."""
        ...

    def figures(self, keys: Sequence[str], baseline: Baseline, sequence_type: str) -> BaselineFigures:
        """What the rows are like; nothing is written.

        Args:
            baseline: only what tells the sequences.
            sequence_type: SQL type of `_gddl.sequence`.
        """
        ...

    def append(self, plan: BatchPlan, schema: TableSchema, baseline: Baseline) -> int:
        """Append the rows to the change table, which is created; returns their number."""
        ...

    def mark(self, plan: BatchPlan, schema: TableSchema, baseline: Baseline, version: int) -> int:
        """Give the replica `_gddl`, and the property, in one commit of metadata after a version; returns that commit's.

        Raises:
            RetriableError: `DELTA_CONFLICT`: another writer has changed the table since that version.
        """
        ...

    def marked(self) -> MarkedFiles:
        """Which data files of the replica have `_gddl`."""
        ...

    def unmark(self) -> None:
        """Write these files again without it, and remove it and our properties, in one commit; idempotent.

        Raises:
            RetriableError: `DELTA_CONFLICT`.
        """
        ...


class TableLogs(Protocol):
    """What the logs of Delta tables say, by path."""

    def exists(self, path: str) -> bool: ...

    def version(self, path: str) -> int | None: ...

    def recall(self, path: str, log: ReplayedLog | None) -> None:
        """Take over what the last run knew of the table's log, so that less of it is read; None: there was no table."""
        ...

    def known_log(self, path: str) -> ReplayedLog | None:
        """What the next run may take over; None: it reads the log itself."""
        ...

    def commits_since(self, path: str, version: int) -> list[DeltaCommit] | None:
        """Commits after a version, oldest first; None where the log lacks that commit and all later ones."""
        ...

    def forget_all(self) -> None:
        """Drop what is known of tables that another writer may have changed."""
        ...

    def last_transaction(self, path: str, app: str) -> int:
        """Highest transaction version that `app` committed to the table; -1 when none."""
        ...

    def data_columns(self, path: str) -> tuple[Column, ...]:
        """Columns of a table without `_gddl`."""
        ...

    def tells_events(self, path: str) -> bool:
        """Whether `_gddl` of a table has the fields that only change tables have."""
        ...


class Quarantine(Protocol):
    """Rows and files that could not be applied, in a table's errors table; none where there is no such table."""

    def append_files(self, plan: BatchPlan, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        """Write files that can't be read to the errors table, creating it; `again` as in `BatchWork.quarantine`."""
        ...

    def forget(self, plan: BatchPlan) -> None:
        """Undo a dropped batch: what it has resolved is unresolved again, and its rows leave the errors table."""
        ...

    def counts(self) -> tuple[int, int]:
        """Number of unresolved rows and files of the errors table, and how many of them are whole files."""
        ...

    def unresolved(self, limit: int, codes: Collection[str] = ()) -> Unresolved:
        """Unresolved rows of the errors table, of these codes (empty: all)."""
        ...

    def dismiss(self, codes: Collection[str], files: Collection[str], now: str) -> int:
        """Mark unresolved rows of these codes and files (empty: all) as resolved; returns how many."""
        ...

    def dismissed_files(self) -> frozenset[str]:
        """Files that could not be read and are in quarantine no longer."""
        ...


class Contents(Protocol):
    """What the stored rows of a table's replica and change table say."""

    def foreign_rows(self, path: str, added: Collection[str] | None = None) -> int:
        """Number of rows without `_gddl`, which other writers added; `added`: only in these files; None: in all."""
        ...

    def is_ours(self, path: str) -> bool:
        """Whether there is a table that has `_gddl`."""
        ...

    def recorded_files(self) -> list[RecordedFile]:
        """Files and generations of the change table."""
        ...

    def refused_values(self, how: Rewrite) -> dict[tuple[str, str], int]:
        """Values of the change table that a rewrite would lose: (problem, column) to their number."""
        ...

    def live_rows(self, columns: Sequence[str], since: tuple[str, datetime] | None = None) -> Iterable[tuple[Any, ...]]:
        """Rows of the replica, without those that are marked deleted; times in UTC, as values or ISO 8601 text.

        Args:
            since: only rows with a time in this column at or after a moment; None: all.
        """
        ...

    def rows_of_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
        """Rows of a change table, replica or tombstones that have a key; of changes also those that had it before.

        Args:
            key: as for `Eraser`.
            limit: see `erasure.highest`.
        """
        ...

    def verify(self, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        """Compare the replica with the state computed from its change table, without generations before `swept`."""
        ...

    def compared_with(self, path: str, rule: OtherTableRule) -> OtherTableFindings:
        """Compare the replica with another table by key."""
        ...

    def shared_keys(self) -> SharedKeys:
        """Rows of the replica that share their key with others."""
        ...


class Engine(Protocol):
    """One table's Delta tables, by path, and the steps of its batches."""

    @property
    def tables(self) -> TableLogs:
        """Their logs."""
        ...

    def suited(self, *, few_rows: bool) -> Engine:
        """The engine, configured for few rows or many."""
        ...

    def of_shard(self, shard: str) -> Engine:
        """This engine with transaction ids of that source, one of several that the table is loaded from."""
        ...

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        """Decode a plan's files; also returns the unreadable ones. None when no file is readable."""
        ...

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedWork:
        """The batch from its rows in the change table, because its files have changed since."""
        ...

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWork:
        """A batch without rows, which only sweeps or reconciles tables with the metadata row."""
        ...

    def quarantine(self, context: TableContext) -> Quarantine: ...

    def contents(self, context: TableContext) -> Contents: ...

    def maintenance(self, context: TableContext) -> Maintenance: ...

    def eraser(self, context: TableContext) -> Eraser: ...

    def baseline_work(self, context: TableContext) -> BaselineWork:
        """See `BaselineWork`."""
        ...

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
        """Replace the change table by its `rewritten` rows, in one commit; once for each plan."""
        ...

    def rebuild(self, request: RebuildRequest) -> RebuildWork:
        """Prepare the swap of a rebuild or a reload; writes nothing."""
        ...


@dataclass(frozen=True, kw_only=True)
class TableContext:
    """Read-only context of one table during a run.

    Attributes:
        resumed: an earlier run may have written part of the current batch.
        begins_with: columns that the tables have from the first, where they don't exist yet; None: those of the files.
        replaces: data columns of the tables that these replace, with which policies compare; None: they replace none.
    """

    dialect: Dialect
    tier: TierSpec
    layout: Layout
    storage: Storage
    engine: Engine
    resumed: bool = True
    begins_with: Stored | None = None
    replaces: Schema | None = None

    @property
    def spec(self) -> TableSpec:
        return self.dialect.spec

    @property
    def erasures(self) -> ErasureRegister:
        return ErasureRegister.of(self.storage, self.layout, self.spec)

    def has_appended(self, plan: BatchPlan) -> bool:
        """Whether the change table has the changes of a batch."""
        return self.engine.tables.last_transaction(self.layout.changes, APPEND) >= version_of(plan)

    def stored_schema(self, state: TableState) -> TableSchema:
        """The schema that the table was last written with, as its change table and the ledger state it."""
        return plan_batch(self.dialect, (), self.stored_columns(), state).table_schema

    def stored_columns(self) -> Stored:
        """Current columns of the change table, split into data and before images."""
        if not self.engine.tables.exists(self.layout.changes):
            return self.begins_with or Stored(data=None, before=None, live=self.replaces)
        all_columns = self.engine.tables.data_columns(self.layout.changes)
        columns = [c for c in all_columns if c.name != RESCUED]
        prefix = self.spec.before_image_prefix
        images = tuple(c for c in columns if is_before_image(c.name, prefix))
        data = tuple(c for c in columns if not is_before_image(c.name, prefix))
        return Stored(data=Schema(data), before=Schema(images), rescued=len(columns) < len(all_columns),
            event_fields=self.engine.tables.tells_events(self.layout.changes), live=self.replaces,
        )  # fmt: skip
