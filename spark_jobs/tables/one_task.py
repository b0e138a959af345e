"""A table in one task: no JVM, tables of its memory. And what both engines do alike, maintenance included.

Compaction is done here and not by `deltalake`, which writes no statistics of `_gddl`
(docs/decisions/delta-files-and-commits.md).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

import pyarrow as pa

from airflow_gddl.stores import Storage
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.plan.baseline import Baseline
from spark_jobs.plan.generations import RecordedFile
from spark_jobs.plan.identity import own_hours
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.rules import quarantine
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.erasure import KeyRows
from spark_jobs.rules.fold import applied_before, are_superseded, needed_changes
from spark_jobs.rules.order import as_events, for_both_keys
from spark_jobs.rules.other_table import OtherTableFindings, OtherTableRule
from spark_jobs.rules.rewrite import Rewrite
from spark_jobs.rules.step_results import Appended, Compacted
from spark_jobs.rules.stored_columns import change_schema, key_schema
from spark_jobs.rules.verify import Reference, Verdict, Violations
from spark_jobs.tables import file_rules, table_definition
from spark_jobs.tables.baseline_writer import BaselineWriter
from spark_jobs.tables.batch_context import BatchContext
from spark_jobs.tables.batch_in_memory import AppendedInMemory, BatchInMemory, WholeBatchReader, batch_rows
from spark_jobs.tables.delta_log import QUARANTINE, DeltaCommit, version_of
from spark_jobs.tables.delta_tables import Tables, Write
from spark_jobs.tables.engine import BaselineWork, BatchWork, RebuildRequest, TableContext
from spark_jobs.tables.file_rules import TablesEraser, remove_rows
from spark_jobs.tables.first_load import FirstLoadReader
from spark_jobs.tables.places import DeclinedError, InProcess
from spark_jobs.tables.rebuild import Rebuild, rewrite_changes
from spark_jobs.tables.replayed_log import ReplayedLog, replayed
from spark_jobs.tables.small_files import bins, join
from spark_jobs.tables.table_comparison import compared_with, verify
from spark_jobs.tables.table_rows import Source, by_key
from spark_jobs.tables.whole_tables import TableWriter, keep_readable, violations

_CHANGES = "changes"


@dataclass(frozen=True)
class OneTaskMaintenance:
    """See `Maintenance`."""

    tables: Tables
    context: TableContext

    def compact(self, path: str, *, dry_run: bool) -> Compacted:
        snapshot = self.tables.existing(path)
        before, joined, made = len(snapshot.files), 0, 0
        for files in list(bins(snapshot.files)):
            joined, made = joined + len(files), made + 1
            if not dry_run:
                join(self.tables, path, files)
        return Compacted(files_before=before, files_after=before - joined + made)

    def keep_readable_statistics(self, path: str) -> None:
        keep_readable(self.tables, path)

    def vacuum(self, path: str, hours: int, *, dry_run: bool) -> int:
        snapshot = self.tables.existing(path)
        hours, delta = max(hours, own_hours(snapshot.properties, path)), snapshot.opened()
        files = delta.vacuum(hours, dry_run=True, enforce_retention_duration=False, full=True)
        if files and not dry_run:
            self.tables.forget(path)
            delta.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        return len(files)

    def checkpoint(self, path: str) -> None:
        self.tables.commit(path, Write(rearranged=True))
        self.tables.existing(path).opened().create_checkpoint()

    def forget_tombstones(self, path: str, before: datetime, *, dry_run: bool) -> int:
        return remove_rows(self.tables, path, lambda rows: applied_before(rows, before), dry_run=dry_run)

    def cut_changes(self, table_schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
        path = self.context.layout.changes
        size, most = self.tables.existing(path).size, self.context.tier.task_max_bytes
        if size > most:
            raise DeclinedError(f"the change table has {size} bytes, more than its tier's task_max_bytes ({most})")
        return cut_changes(self.tables, path, table_schema, before, swept, dry_run=dry_run)


def cut_changes(tables: Tables, path: str, schema: TableSchema, before: datetime, swept: int, *, dry_run: bool) -> int:
    """See `Maintenance.cut_changes`."""
    rule = _Needed(schema, before)
    sources = {_CHANGES: Source.of(tables.existing(path), rule.prepare)}
    reports = by_key(tables, sources, key_schema(schema), rule) if schema.keys else []
    needed = frozenset((batch, position) for report in reports for batch, position in json.loads(report))
    return remove_rows(tables, path, lambda rows: are_superseded(rows, needed, schema, before, swept), dry_run=dry_run)


@dataclass(frozen=True)
class _Needed:
    """See `needed_changes`; sent to tasks."""

    schema: TableSchema
    before: datetime

    def prepare(self, rows: pa.Table) -> pa.Table:
        return for_both_keys(by_name(rows, change_schema(self.schema)), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        happened = as_events(rows[_CHANGES], self.schema)
        return json.dumps(sorted(needed_changes(happened, self.schema, self.before))).encode()


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

    def foreign_rows(self, context: TableContext, path: str, added: Collection[str] | None = None) -> int:
        return file_rules.foreign_rows(self.tables_of(context, path), path, added)

    def is_ours(self, context: TableContext, path: str) -> bool:
        log = replayed(context.storage, path)
        return log is not None and any(column["name"] == GDDL for column in json.loads(log.schema)["fields"])

    def baseline(self, context: TableContext, path: str) -> Baseline | None:
        stored = self.tables_of(context, path).existing(path).stored_baseline
        return None if stored is None else stored.baseline

    def baseline_work(self, context: TableContext) -> BaselineWork:
        layout = context.layout
        return BaselineWriter(self.tables_of(context, layout.replica, layout.changes), layout, context.tier)

    def recorded_files(self, context: TableContext) -> list[RecordedFile]:
        path = context.layout.changes
        return file_rules.files_of_changes(self.tables_of(context, path), path)

    def quarantine_files(
        self, context: TableContext, plan: BatchPlan, files: Sequence[Unreadable], again: Sequence[str]
    ) -> None:
        path, rows = context.layout.errors, quarantine.of_files(files, Stamp.of(plan))
        tables = self.tables_of(context, path)
        file_rules.append(tables, path, rows, QUARANTINE, version_of(plan))
        file_rules.resolve_earlier(tables, path, plan, again)

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

    def live_rows(
        self, context: TableContext, columns: Sequence[str], since: tuple[str, datetime] | None = None
    ) -> Iterator[tuple[Any, ...]]:
        path = context.layout.replica
        return file_rules.live_rows(self.tables_of(context, path), path, columns, since)

    def rows_of_key(
        self, context: TableContext, path: str, table_schema: TableSchema, key: tuple[str, ...], limit: int
    ) -> KeyRows:
        return file_rules.rows_of_key(self.tables_of(context, path), path, table_schema, key, limit)

    def in_quarantine(self, context: TableContext) -> tuple[int, int]:
        path = context.layout.errors
        return file_rules.in_quarantine(self.tables_of(context, path), path)

    def unresolved(self, context: TableContext, limit: int, codes: Collection[str] = ()) -> quarantine.Unresolved:
        path = context.layout.errors
        return file_rules.unresolved(self.tables_of(context, path), path, limit, codes)

    def dismiss(self, context: TableContext, codes: Collection[str], files: Collection[str], now: str) -> int:
        path, chosen = context.layout.errors, quarantine.of_codes_and_files(codes, files)
        return file_rules.resolve(self.tables_of(context, path), path, chosen, now)

    def dismissed_files(self, context: TableContext) -> frozenset[str]:
        path = context.layout.errors
        return file_rules.dismissed_files(self.tables_of(context, path), path)


@dataclass(frozen=True)
class OneTaskEngine(TablesEngine):
    """See `Engine`.

    Attributes:
        reads_whole: tables are read whole, so that they have to fit into memory.
        most_bytes: see `WholeBatchReader`.
    """

    tables: Tables
    reads_whole: bool = True
    most_bytes: int | None = None

    def tables_of(self, context: TableContext, *paths: str) -> Tables:  # noqa: ARG002 - it knows all tables
        return self.tables

    def purge(self, path: str) -> None:
        """Files are written again without removed rows."""

    def suited(self, *, few_rows: bool) -> OneTaskEngine:  # noqa: ARG002 - nothing is set up either way
        return self

    def of_shard(self, shard: str) -> OneTaskEngine:
        return replace(self, tables=self.tables.of_shard(shard))

    def exists(self, path: str) -> bool:
        return self.tables.exists(path)

    def version(self, path: str) -> int | None:
        return self.tables.version(path)

    def last_transaction(self, path: str, app: str) -> int:
        return self.tables.last_transaction(path, app)

    def recall(self, path: str, log: ReplayedLog | None) -> None:
        self.tables.recall(path, log)

    def known_log(self, path: str) -> ReplayedLog | None:
        return self.tables.known_log(path)

    def commits_since(self, path: str, version: int) -> list[DeltaCommit] | None:
        return self.tables.commits_since(path, version)

    def columns(self, path: str) -> tuple[Column, ...]:
        return tuple(c for c in self.tables.existing(path).schema.columns if c.name != GDDL)

    def tells_events(self, path: str) -> bool:
        return table_definition.tells_events(self.tables.existing(path).schema.columns)

    def decode_files(
        self, context: TableContext, plan: BatchPlan, state: TableState
    ) -> tuple[BatchWork | None, tuple[Unreadable, ...]]:
        if self.reads_whole:
            self._require_small(context, "the batch", sum(f.size for f in plan.files))
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        if sum(file.size for file in plan.files) > _IN_MEMORY and not context.tier.deletion_vectors:
            place = InProcess(context.storage)
            first = FirstLoadReader(context=context, plan=plan, state=state, tables=self.tables, place=place)
            if first.suits() and (work := first.decode_files()) is not None:
                return work
        path = context.layout.errors
        errors = self.tables.read(path) if plan.source == "quarantine" and self.exists(path) else None
        reader = WholeBatchReader(context=context, plan=plan, state=state, most_bytes=self.most_bytes)
        decoded, unreadable = reader.decode(errors)
        if decoded is None:
            return None, unreadable
        batch_context = self._batch_context(context, plan, decoded.decoded_batch.schema.table_schema)
        return BatchInMemory(batch_context=batch_context, decoded=decoded), unreadable

    def resume_from_changes(self, context: TableContext, plan: BatchPlan, state: TableState) -> AppendedInMemory:
        self._require_small_tables(context, context.layout.replica, context.layout.history)
        rows = batch_rows(self.tables, context.layout.changes, plan.batch_id)
        decoded = WholeBatchReader(context=context, plan=plan, state=state).resume(rows)
        batch_context = self._batch_context(context, plan, decoded.decoded_batch.schema.table_schema)
        appended = Appended(written=decoded.good.num_rows, redelivered=0)
        return AppendedInMemory(batch_context=batch_context, decoded=decoded, changes=decoded.good, appended=appended)

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
        if size > context.tier.task_max_bytes:
            limit = f"more than its tier's task_max_bytes ({context.tier.task_max_bytes})"
            raise DeclinedError(f"{what} has {size} bytes, {limit}")

    def _batch_context(self, context: TableContext, plan: BatchPlan, table_schema: TableSchema) -> BatchContext:
        return BatchContext(
            tables=self.tables, layout=context.layout, tier=context.tier, plan=plan, table_schema=table_schema,
            resumed=context.resumed,
            before_commit=context.before_commit,
        )  # fmt: skip

    def maintenance(self, context: TableContext) -> OneTaskMaintenance:
        return OneTaskMaintenance(self.tables, context)

    def rewrite_changes(self, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
        self._require_small_tables(context, context.layout.changes)
        rewrite_changes(self.tables, context, plan, how)

    def rebuild(self, request: RebuildRequest) -> Rebuild:
        shadow = () if request.shadow is None else (request.shadow.changes,)
        self._require_small_tables(request.live, *shadow, request.live.layout.changes)
        return Rebuild(self.tables, request)

    def verify(self, context: TableContext, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
        self._require_small_tables(context, context.layout.replica, context.layout.changes)
        return verify(self.tables, context.layout, table_schema, swept=swept, limit=limit)

    def compared_with(self, context: TableContext, path: str, rule: OtherTableRule) -> OtherTableFindings:
        self._require_small_tables(context, context.layout.replica, context.layout.changes, path)
        return compared_with(self.tables, context.layout, path, rule)

    def violations(
        self, context: TableContext, columns: Sequence[str], reference: Reference | None, most: int
    ) -> Violations:
        path = context.layout.replica
        self._require_small_tables(context, path, *(() if reference is None else (reference.path,)))
        return violations(self.tables, path, columns, reference, most)
