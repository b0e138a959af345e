"""A batch of any size: tasks write its changes as data files, and compare and merge them by ranges of keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.result import MainCounts, Warnings
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules import quarantine, sweep
from spark_jobs.rules.arrays import by_name, fields_of
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import Appended, DecodedBatch
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.order import (
    as_events,
    identity_columns,
    is_of_batch,
    least_keys,
    sample_keys,
    with_identity,
)
from spark_jobs.rules.outcome import Applied, KeySample, StoredState, outcome_of, warnings_of
from spark_jobs.rules.redelivery import TIED, Doubts, Overlap, new_changes, skipped
from spark_jobs.rules.stored_columns import change_schema, key_schema, told
from spark_jobs.tables import table_definition, whole_tables
from spark_jobs.tables.batch_in_memory import files_of_batch, may_repeat, needed_of_replica
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import APPEND, MERGE, QUARANTINE, TOMBSTONES, main_counts, merge_metrics
from spark_jobs.tables.delta_tables import DataFile, Tables, Written
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.file_parts import CHANGES, ERRORS, PartsReader, WrittenParts, file_path
from spark_jobs.tables.file_rules import Output, written
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import (
    Source,
    as_they_are,
    by_key,
    by_row,
    changes_by_key,
    keys_of,
    matches_of,
    without_places,
)
from spark_jobs.tables.whole_tables import BatchContext, TableWriter

_FRESH, _STORED, _REPLICA, _TOMBSTONES, _EVERY = "fresh", "stored", "replica", "tombstones", "every"
"""Names of tables for rules: changes of the batch, changes before it, and all changes."""
_APPENDED, _MERGED = "appended.json", "merged.json"
_MOST_KEYS, _MOST_KEY_BYTES = 4_000_000, 128 * 1024**2
"""Changes of a batch, and bytes of its keys, up to which each task that reads stored rows has all of these keys."""


def read_large(
    tables: Tables, context: TableContext, plan: BatchPlan, state: TableState
) -> tuple[LargeBatch | None, tuple[Unreadable, ...]]:
    """See `Engine.decode_files`."""

    def targets(schema: TableSchema) -> dict[str, Target]:
        changes = table_definition.changes(schema, context.layout.changes, context.tier)
        errors = table_definition.errors(context.layout.errors)
        return {CHANGES: tables.target_of(changes), ERRORS: tables.target_of(errors)}

    place = tables.place_for(plan.size)
    parts, unreadable = PartsReader(context=context, plan=plan, state=state, place=place, targets_of=targets).read()
    if parts is None:
        return None, unreadable
    batch_context = BatchContext.of(context, tables, plan, parts.batch.schema.table_schema)
    return LargeBatch(batch_context=batch_context, parts=parts), unreadable


@dataclass(kw_only=True)
class PartsWork:
    """What `BatchWork` is of a batch whose rows are written as data files."""

    batch_context: BatchContext
    parts: WrittenParts

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.parts.batch

    @property
    def tables(self) -> PartsTables:
        return PartsTables(self.batch_context, self.parts)

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        context, path, added = self.batch_context, self.batch_context.layout.errors, list(self.parts.files[ERRORS])
        if added or files:
            context.tables.create(table_definition.errors(path))
            rows = quarantine.of_files(files, Stamp.of(context.plan))
            added += context.tables.target(path).write(context.tables.storage, rows, context.transaction // 1000)
            count = self.decoded_batch.figures.quarantined + len(files)
            context.tables.add_files(path, (QUARANTINE, context.transaction), added, {"numOutputRows": count})
        ErrorsTable(context.tables, path).resolve_earlier(context.plan, again)

    def discard(self) -> None:
        self.parts.discard()

    def resolve_rows(self) -> None:
        """Files leave nothing to resolve: records of the quarantine are replayed in memory."""

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        self.tables.history(floors, swept=swept)


@dataclass(frozen=True)
class PartsTables(TableWriter):
    """Steps on whole tables; the history of all keys is the last of the batch."""

    parts: WrittenParts

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        super().history(floors, swept=swept)
        self.parts.forget()


@dataclass(kw_only=True)
class LargeBatch(PartsWork):
    """See `BatchWork`.

    Attributes:
        totals: of a table with keys.
        written: reports of tasks by step, once decided; no commit names their data files yet. None: replica and
            tombstones are committed.
    """

    appended: Appended = field(init=False)
    totals: Applied = field(init=False)
    written: Mapping[str, Sequence[Mapping[str, Any]]] | None = field(init=False, default=None)

    def append(self, overlap: Overlap) -> None:
        context, figures = self.batch_context, self.decoded_batch.figures
        path, number = context.layout.changes, context.plan.number
        if context.has_made(path, APPEND):
            doubts = self.parts.remembered(_APPENDED, Doubts) or Doubts()
        elif figures.may_repeat(context.table_schema) or not overlap.disjoint:
            doubts = self._append_new(overlap)
        else:
            doubts = Doubts()
            context.put_files(path, APPEND, Written(files=self.parts.files[CHANGES]), {"numOutputRows": figures.good})
        count = context.metrics(path, APPEND).get("numOutputRows")
        if count is None:  # the log no longer has the commit
            count = sum(by_row(context.tables, _of_batch(context, as_they_are), lambda _, rows: rows.num_rows))
        self.appended = figures.appended(count, count, doubts.warnings(context.table_schema), batch=number)

    def _append_new(self, overlap: Overlap) -> Doubts:
        """Append the changes that did not arrive before."""
        context, path = self.batch_context, self.batch_context.layout.changes
        tables, schema = context.tables, context.table_schema
        output = context.output(path)
        known = may_repeat(context, self.decoded_batch.figures, overlap)
        kind = change_schema(schema)

        def prepared(rows: pa.Table) -> pa.Table:
            return with_identity(by_name(rows, kind), schema)

        def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
            stored = by_name(rows[_STORED], kind) if _STORED in rows else None
            fresh = by_name(rows[_FRESH], kind)
            changes = new_changes(fresh, stored, schema)
            tied = changes.filter(pc.fill_null(changes.column(TIED), False))
            report = output.report(storage, told(changes.drop_columns([TIED]), schema))
            sample, left_out = least_keys(tied, schema), skipped(fresh, changes, schema)
            return {**report, "tied": tied.num_rows, "skipped": left_out, "sample": sample}

        snapshot, target = tables.existing(path), self.parts.targets[CHANGES]
        # The change table has no partitions.
        fresh = tuple(DataFile(one["add"]["path"], one["add"]["size"]) for one in self.parts.files[CHANGES])
        sources = {_FRESH: Source(table=target.path, files=fresh, schema=target.schema, prepare=prepared)}
        if known is not None:
            files = tuple(file for file in snapshot.files if known.may_be_in(file))
            before = Source(
                table=snapshot.path, files=files, schema=snapshot.schema.arrow,
                prepare=lambda rows: prepared(rows.filter(known(rows))),
            )  # fmt: skip
            sources[_STORED] = before
        kinds = sources[_FRESH].none.schema
        keys = fields_of(kinds, identity_columns(schema))
        reports = by_key(tables, sources, keys, rule)
        written_files, rows = written(reports)
        doubts = Doubts(
            sum(r["tied"] for r in reports), sum(r["skipped"] for r in reports),
            sample_keys(pa.concat_tables([r["sample"] for r in reports]), schema),
        )  # fmt: skip
        self.parts.remember(_APPENDED, doubts)
        context.put_files(path, APPEND, written_files, {"numOutputRows": rows})
        tables.storage.delete(*self.parts.paths(CHANGES))
        return doubts

    def decide(self) -> None:
        context = self.batch_context
        if not context.table_schema.keys:
            return
        if context.has_made(context.layout.replica, MERGE):
            self.totals = self._remembered()
            return
        partial = context.table_schema.carries_parts(self.decoded_batch.change_schemas)
        merging = _Merging(context, self.appended.written, partial=partial)
        reports = merging.reports(every=False)
        if any(report["again"] for report in reports):
            merging.discard(reports)
            reports = merging.reports(every=True)
        self.totals = _applied(reports, context.table_schema)
        self.parts.remember(_MERGED, self.totals)
        self.written = {name: [one[name] for one in reports if one[name]] for name in (TOMBSTONES, MERGE)}

    def _remembered(self) -> Applied:
        """Without counts, which the commit has."""
        return self.parts.remembered(_MERGED, Applied) or Applied(main=MainCounts())

    def tombstones(self) -> None:
        if self.written is None:
            return
        context, path = self.batch_context, self.batch_context.layout.tombstones
        files, rows = written(self.written[TOMBSTONES])
        if rows:
            context.tables.create(table_definition.tombstones(context.table_schema, path))
            context.put_files(path, TOMBSTONES, files, {})

    def replica(self) -> Applied:
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.table_schema.keys:
            return self._append_only()
        if self.written is not None:
            source = Source.of(context.tables.existing(path))
            context.put_written(path, MERGE, self.written[MERGE], source, merge_metrics(self.totals.main))
        if not context.table_schema.spec.history:
            self.parts.forget()
        main = main_counts(context.metrics(path, MERGE)) if self.written is None else self.totals.main
        return replace(self.totals, main=main)

    def _append_only(self) -> Applied:
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.has_made(path, MERGE):
            output, schema = context.output(path), context.table_schema

            def rule(storage: Storage, rows: pa.Table) -> dict[str, Any]:
                kept = sweep.appended(rows, schema)
                return {**output.report(storage, kept), "late": rows.num_rows - kept.num_rows}

            source = _of_batch(context, partial(by_name, schema=change_schema(schema)))
            reports = by_row(context.tables, source, rule)
            written_files, rows = written(reports)
            self.parts.remember(_MERGED, Applied(main=MainCounts(), late=sum(report["late"] for report in reports)))
            context.put_files(path, MERGE, written_files, {"numTargetRowsInserted": rows})
        known = self._remembered()
        self.parts.forget()
        return replace(known, main=main_counts(context.metrics(path, MERGE)))

    def stale_rows(self) -> Warnings:
        return whole_tables.stale_rows(self.batch_context, self.parts.suspects)


def _of_batch(context: BatchContext, prepare: Any) -> Source:
    """The batch's rows of the change table."""
    snapshot, batch_id = context.changes, context.plan.batch_id
    return Source(
        table=snapshot.path, files=files_of_batch(snapshot, batch_id), schema=snapshot.schema.arrow,
        prepare=lambda rows: prepare(rows.filter(is_of_batch(rows, batch_id))),
    )  # fmt: skip


@dataclass(frozen=True)
class _Merging:
    """Ranges of keys of the batch, the replica and the tombstones.

    Attributes:
        changes: number of the batch's changes.
    """

    context: BatchContext
    changes: int
    partial: bool

    def reports(self, *, every: bool) -> list[dict[str, Any]]:
        """What the rule has written and found for each range.

        Args:
            every: whether it gets all changes of its keys, too.
        """
        context, schema, partly = self.context, self.context.table_schema, self.partial
        tables = context.tables
        replica, tombstones = context.output(context.layout.replica), self._tombstones()

        def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
            stored = matches_of(rows[_REPLICA])
            net = net_changes(as_events(rows[_FRESH], schema), schema, partial=partly)
            asked: list[pa.Table] = []

            def refold(keys: pa.Table) -> pa.Table:
                asked.append(keys)
                return as_events(rows.get(_EVERY, rows[_FRESH].slice(0, 0)), schema)

            known = StoredState(replica=stored.rows, tombstones=rows.get(_TOMBSTONES))
            outcome = outcome_of(net, known, schema, refold, partial=partly)
            if asked and _EVERY not in rows:
                return {"again": True, MERGE: None, TOMBSTONES: None}
            return {
                "again": False, MERGE: replica.report_of(storage, stored, outcome.rows),
                "counts": vars(outcome.counts), "late": outcome.late,
                "unknown": (outcome.unknown_keys.num_rows, least_keys(outcome.unknown_keys, schema)),
                "lost": (outcome.lost_moves.num_rows, least_keys(outcome.lost_moves, schema)),
                TOMBSTONES: None if tombstones is None else tombstones.report(storage, outcome.deletes),
            }  # fmt: skip

        prepare = partial(changes_by_key, schema=schema)
        fresh = _of_batch(context, prepare)
        sources = {_FRESH: fresh, **self._stored(fresh)}
        if every:
            sources[_EVERY] = Source.of(context.changes, prepare)
        return by_key(tables, sources, key_schema(schema), rule)

    def _stored(self, fresh: Source) -> dict[str, Source]:
        """Stored rows and tombstones: those of the batch's keys alone, where tasks can have all of these."""
        batch_id = self.context.plan.batch_id

        def of_other_batches(rows: pa.Table) -> pa.Table:
            return without_places(rows).filter(pc.invert(is_of_batch(rows, batch_id)))

        stored = {_REPLICA: self._replica()}
        if (tombstones := self.context.tables.snapshot(self.context.layout.tombstones)) is not None:
            stored[_TOMBSTONES] = Source.of(tombstones, of_other_batches)
        kinds = key_schema(self.context.table_schema)
        is_small = sum(source.size for source in stored.values()) < fresh.size
        if is_small or self.changes > _MOST_KEYS or any(pt.is_nested(key.type) for key in kinds):
            return stored
        keys = keys_of(self.context.tables, fresh, self.context.table_schema.keys)
        if keys.nbytes > _MOST_KEY_BYTES:
            return stored
        return {name: replace(source, wanted=keys) for name, source in stored.items()}

    def _replica(self) -> Source:
        snapshot = self.context.replica
        columns = needed_of_replica(snapshot, self.context.table_schema, partial=self.partial)
        return Source.of(snapshot, columns=columns, to_write=True)

    def _tombstones(self) -> Output | None:
        context, path = self.context, self.context.layout.tombstones
        whole_tables.retype_sequence(context.tables, path, context.table_schema)
        if context.has_made(path, TOMBSTONES):
            return None
        definition = table_definition.tombstones(context.table_schema, path)
        if context.tables.exists(path):
            whole_tables.ensure(context.tables, definition)
        return Output(target=context.tables.target_of(definition), now=context.transaction // 1000, keys=None)

    def discard(self, reports: Sequence[Mapping[str, Any]]) -> None:
        """Remove what a rule has written that lacked changes."""
        made = [report[name] for report in reports for name in (MERGE, TOMBSTONES) if report[name]]
        files = [(one["at"], action) for one in made for action in (*one["files"], *one["feed"])]
        self.context.tables.storage.delete(*(file_path(folder, action) for folder, action in files))


def _applied(reports: Sequence[Mapping[str, Any]], schema: TableSchema) -> Applied:
    """What happened to the keys of all ranges together."""

    def keys(name: str) -> KeySample:
        numbers, samples = zip(*(report[name] for report in reports), strict=True)
        return sum(numbers), sample_keys(pa.concat_tables(samples), schema) if sum(numbers) else ()

    counts = {name: sum(report["counts"][name] for report in reports) for name in ("inserted", "updated", "deleted")}
    late = sum(report["late"] for report in reports)
    return Applied(main=MainCounts(**counts), warnings=warnings_of(keys("unknown"), keys("lost")), late=late)
