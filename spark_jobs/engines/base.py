"""What the pipeline asks of an engine. Engines differ in how, never in what the tables hold (docs/semantics.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.batch_steps import AppendedWork, BatchWork, TableWork
from spark_jobs.ledger.erasures import ErasureRegister
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.columns import Column, Schema
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.table_schema import RESCUED, TableSchema
from spark_jobs.rules.batch_schema import Stored
from spark_jobs.rules.figures import ChangesErased, Compacted, Rebuilt, Verdict
from spark_jobs.rules.key_rows import KeyRows


class DeclinedError(Exception):
    """The engine can't take this table or batch as it is; another engine can. Nothing is half done.

    Attributes:
        reason: for the warning, e.g. `the table has deletion vectors`.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True)
class RebuildRequest:
    """What the swap of a full refresh needs; the tables of `living` are replaced by what `beside` folds to.

    Attributes:
        generation_low_watermarks: greatest sequence ingested before each generation.
        swept: rows of generations from this one on stand in the replica.
        landed: paths of all files that are there now.
        read: those of them that could be read, whether or not any of their rows was kept.
        reselected: the living tables hold values that the metadata now masks or keeps out of the lake.
        resequenced: the living change table writes the same sequences otherwise, so that the two don't compare.
    """

    living: TableContext
    beside: Layout
    plan: BatchPlan
    table_schema: TableSchema
    generation_low_watermarks: tuple[str | None, ...]
    swept: int
    landed: tuple[str, ...]
    read: tuple[str, ...]
    resequenced: bool = False
    reselected: bool = False


class RebuildWork(Protocol):
    """See `RebuildRequest`."""

    def drops_changes(self) -> bool:
        """Whether `swap` would have to drop changes of files that are gone, since types or order part."""
        ...

    def rows(self, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """As `Engine.live_rows`, of the replica that `swap` would make; nothing is written."""
        ...

    def swap(self, report: Callable[[str], None]) -> Rebuilt:
        """Carry it out; `report` gets each durable step. A repeated swap gives the same."""
        ...


class Maintenance(Protocol):
    """What keeps tables small and quick. Rows stay as they are but where it is said; repeated, nothing is left to do.

    `dry_run`: only tell.
    """

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        """Join small files; transactions and statistics stay."""
        ...

    def rewrite_timestamps(self, path: str, *, dry_run: bool) -> int:
        """Rewrite files of an earlier release, which may hold timestamps as INT96; how many files.

        pyarrow can't read such times before 1677 and after 2262.
        """
        ...

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        """Remove files that no version of the last `hours` needs, also those of writers that died; how many."""
        ...

    def checkpoint(self, path: str) -> None:
        """Make a commit that changes nothing, and a checkpoint of it."""
        ...

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        """Remove deletes applied before a time; how many."""
        ...

    def cut_changes(
        self, context: TableContext, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool
    ) -> int:
        """Remove changes applied before a time on which the state of no key depends; how many.

        Args:
            swept: rows of generations before this one have vanished.
        """
        ...


class Eraser(Protocol):
    """Takes one key out of tables. Repeated, it finds nothing; counts are of rows.

    `key`: its parts as `erased_keys.key_text` writes them, in the order of `table_schema.keys`.
    """

    def remove_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> int: ...

    def remove_changes(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> ChangesErased:
        """The same of the change table, in one commit.

        An update that moved a row to this key becomes the delete of its old key, which it was too: without it the old
        row would be back. Before images of rows that were of this key before are emptied.
        """
        ...

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        """Rows of the errors table whose record, JSON text, `holds` the key."""
        ...


class Engine(Protocol):
    """One table's Delta tables, by path, and the steps of its batches."""

    def suited(self, *, few_rows: bool) -> Engine:
        """The same, set up for few rows or many."""
        ...

    def exists(self, path: str) -> bool: ...

    def version(self, path: str) -> int | None: ...

    def foreign_rows(self, path: str) -> int:
        """Rows without `_gddl`: this project writes none."""
        ...

    def last_transaction(self, path: str, app: str) -> int:
        """Greatest transaction version that `app` committed to the table; -1 when none."""
        ...

    def recorded_files(self, path: str) -> list[RecordedFile]:
        """What a change table holds of each file and generation."""
        ...

    def columns(self, path: str) -> tuple[Column, ...]:
        """Columns but `_gddl`, as the table has them."""
        ...

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        """Decode a plan's files; with them, those that can't be read. None when no file can."""
        ...

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedWork:
        """The batch as its rows in the change table give it, because its files have changed since."""
        ...

    def table_work(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> TableWork:
        """A batch without rows, which only sweeps or brings tables to what the metadata row says now."""
        ...

    def quarantine_files(self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
        """Write files that can't be read to the errors table, creating it."""
        ...

    def forget_errors(self, path: str, batch_id: str) -> None:
        """Remove what a batch that is dropped has left in the errors table."""
        ...

    def maintenance(self) -> Maintenance: ...

    def eraser(self) -> Eraser: ...

    def rebuild(self, order: RebuildRequest) -> RebuildWork:
        """The swap of a full refresh; nothing is written yet."""
        ...

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        """Compare the replica with the fold of its change table; rows of generations before `swept` have vanished."""
        ...

    def live_rows(self, path: str, columns: Sequence[str]) -> Iterable[tuple[Any, ...]]:
        """Rows of the replica, without those that are marked deleted; times in UTC, as values or ISO 8601 text."""
        ...

    def rows_of_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int) -> KeyRows:
        """Rows of a change table, replica or tombstones that have a key; of changes also those that had it before.

        Args:
            key: as for `Eraser`.
            limit: see `key_rows.highest`.
        """
        ...

    def unresolved(self, path: str, limit: int) -> tuple[int, list[Mapping[str, Any]]]:
        """How many rows of the errors table are unresolved, and the oldest of them; times as ISO 8601 text."""
        ...


@dataclass(frozen=True, kw_only=True)
class TableContext:
    """All that concerns one table in one run.

    Attributes:
        begun: an earlier run may have written something of the batch at hand.
    """

    dialect: Dialect
    tier: TierSpec
    layout: Layout
    storage: Storage
    engine: Engine
    begun: bool = True

    @property
    def spec(self) -> TableSpec:
        return self.dialect.spec

    @property
    def erasures(self) -> ErasureRegister:
        return ErasureRegister(self.storage, self.layout.erased, self.spec.table, self.spec.keys, self.spec.mask)

    def stored_columns(self) -> Stored:
        """Columns of the change table now, before images apart."""
        if not self.engine.exists(self.layout.changes):
            return Stored(data=None, before=None)
        columns = [c for c in self.engine.columns(self.layout.changes) if c.name != RESCUED]
        prefix = self.spec.before_image_prefix
        images = [c for c in columns if prefix and c.name.lower().startswith(prefix.lower())]
        data = tuple(c for c in columns if c not in images)
        return Stored(data=Schema(data), before=Schema(tuple(images)), prefer_rewrite=not self.tier.deletion_vectors)
