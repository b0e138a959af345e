"""A batch of any size: tasks write its changes as data files, and compare and merge them by ranges of keys."""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules import quarantine, sweep
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.figures import Appended, DecodedBatch
from spark_jobs.rules.fold import net_changes
from spark_jobs.rules.order import (
    as_events,
    for_both_keys,
    identity_columns,
    is_of_batch,
    least_keys,
    sample_keys,
    with_identity,
)
from spark_jobs.rules.outcome import Applied, KeySample, Outcome, StoredState, outcome_of, warnings_of
from spark_jobs.rules.redelivery import TIED, Doubts, Overlap, new_changes, skipped
from spark_jobs.rules.stored_columns import change_schema, key_schema, told
from spark_jobs.tables import table_definition, whole_tables
from spark_jobs.tables.batch_in_memory import files_of_batch, may_repeat, needed_of_replica
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import APPEND, MERGE, QUARANTINE, TOMBSTONES, main_counts, merge_metrics
from spark_jobs.tables.delta_tables import DataFile, Tables, Written
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.file_parts import CHANGES, ERRORS, PartsReader, WrittenParts, file_path
from spark_jobs.tables.file_rules import Output, output_of, written
from spark_jobs.tables.places import stream_of, stream_rows
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import Source, by_key, by_row, keys_of, matches_of, without_places
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

    place = tables.place_for(sum(file.size for file in plan.files))
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
        written: data files that tasks have written, once decided; None: replica and tombstones are committed.
    """

    appended: Appended = field(init=False)
    totals: _Totals = field(init=False)
    written: _MergedParts | None = field(init=False, default=None)

    def append(self, overlap: Overlap) -> None:
        context, figures = self.batch_context, self.decoded_batch.figures
        path, number = context.layout.changes, context.plan.number
        if context.has_made(path, APPEND):
            known = self.parts.remembered(_APPENDED) or {}
        elif figures.may_repeat(context.table_schema) or not overlap.disjoint:
            known = self._append_new(overlap)
        else:
            known = {}
            context.put_files(path, APPEND, Written(files=self.parts.files[CHANGES]), {"numOutputRows": figures.good})
        count = context.metrics(path, APPEND).get("numOutputRows")
        if count is None:  # the log no longer has the commit
            source = _of_batch(context, lambda rows: rows)
            count = sum(int(report) for report in by_row(context.tables, {_FRESH: source}, _Count()))
        doubts = Doubts(known.get("ties", 0), known.get("skipped", 0), tuple(known.get("sample", ())))
        warnings = doubts.warnings(context.table_schema)
        self.appended = figures.appended(count, count, warnings, batch=number)

    def _append_new(self, overlap: Overlap) -> dict[str, Any]:
        """Append the changes that did not arrive before; number and sample of those that are tied."""
        context, path = self.batch_context, self.batch_context.layout.changes
        tables, schema = context.tables, context.table_schema
        output = output_of(tables, path, schema.keys, context.transaction)
        known = may_repeat(context, self.decoded_batch.figures, overlap)
        rule = _NewChanges(schema, output)
        snapshot, target = tables.existing(path), self.parts.targets[CHANGES]
        # The change table has no partitions.
        fresh = tuple(DataFile(one["add"]["path"], one["add"]["size"]) for one in self.parts.files[CHANGES])
        sources = {_FRESH: Source(table=target.path, files=fresh, schema=target.schema, prepare=rule.prepare)}
        if known is not None:
            files = tuple(file for file in snapshot.files if known.may_be_in(file))
            before = Source(
                table=snapshot.path, files=files, schema=snapshot.schema.arrow,
                prepare=lambda rows: rule.prepare(rows.filter(known(rows))),
            )  # fmt: skip
            sources[_STORED] = before
        kinds = sources[_FRESH].none.schema
        keys = pa.schema([kinds.field(name) for name in identity_columns(schema)])
        reports = [json.loads(report) for report in by_key(tables, sources, keys, rule)]
        written_files, rows = written(reports)
        ties = {
            "ties": sum(r["tied"] for r in reports), "skipped": sum(r["skipped"] for r in reports),
            "sample": _sample(schema, [r["sample"] for r in reports]),
        }  # fmt: skip
        self.parts.remember(_APPENDED, ties)
        context.put_files(path, APPEND, written_files, {"numOutputRows": rows})
        tables.storage.delete(*self.parts.paths(CHANGES))
        return ties

    def decide(self) -> None:
        context = self.batch_context
        if not context.table_schema.keys:
            return
        if context.has_made(context.layout.replica, MERGE):
            self.totals = _Totals.of_json(self.parts.remembered(_MERGED) or {})
            return
        partial = context.table_schema.carries_parts(self.decoded_batch.change_schemas)
        merging = _Merging(context, self.appended.written, partial=partial)
        reports = merging.reports(every=False)
        if any(report["again"] for report in reports):
            merging.discard(reports)
            reports = merging.reports(every=True)
        self.totals = _Totals.of_reports(reports, context.table_schema)
        self.parts.remember(_MERGED, self.totals.to_json())
        self.written = _MergedParts(
            *([one[name] for one in reports if one[name]] for name in ("tombstones", "replica"))
        )

    def tombstones(self) -> None:
        if self.written is None:
            return
        context, path = self.batch_context, self.batch_context.layout.tombstones
        files, rows = written(self.written.tombstones)
        if rows:
            context.tables.create(table_definition.tombstones(context.table_schema, path))
            context.put_files(path, TOMBSTONES, files, {})

    def replica(self) -> Applied:
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.table_schema.keys:
            return self._append_only()
        if self.written is not None:
            source = Source.of(context.tables.existing(path), lambda rows: rows)
            context.put_written(path, MERGE, self.written.replica, source, merge_metrics(self.totals.counts))
        if not context.table_schema.spec.history:
            self.parts.forget()
        main = main_counts(context.metrics(path, MERGE)) if self.written is None else self.totals.counts
        return Applied(main=main, warnings=self.totals.warnings, late=self.totals.late)

    def _append_only(self) -> Applied:
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.has_made(path, MERGE):
            output = output_of(context.tables, path, (), context.transaction)
            rule = _AppendOnly(context.table_schema, output)
            reports = [json.loads(r) for r in by_row(context.tables, {_FRESH: _of_batch(context, rule.prepare)}, rule)]
            written_files, rows = written(reports)
            self.parts.remember(_MERGED, {"late": sum(report["late"] for report in reports)})
            context.put_files(path, MERGE, written_files, {"numTargetRowsInserted": rows})
        late = (self.parts.remembered(_MERGED) or {}).get("late", 0)
        self.parts.forget()
        return Applied(main=main_counts(context.metrics(path, MERGE)), late=late)

    def stale_rows(self) -> tuple[RunWarning, ...]:
        return whole_tables.stale_rows(self.batch_context, self.parts.suspects)


@dataclass(frozen=True)
class _Count:
    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        return str(rows[_FRESH].num_rows).encode()


@dataclass(frozen=True)
class _NewChanges:
    """Writes the changes that did not arrive before; sent to tasks."""

    schema: TableSchema
    output: Output

    def prepare(self, rows: pa.Table) -> pa.Table:
        return with_identity(by_name(rows, change_schema(self.schema)), self.schema)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        kind = change_schema(self.schema)
        stored = by_name(rows[_STORED], kind) if _STORED in rows else None
        fresh = by_name(rows[_FRESH], kind)
        changes = new_changes(fresh, stored, self.schema)
        tied = changes.filter(pc.fill_null(changes.column(TIED), False))
        report: dict[str, Any] = dict(self.output.report(storage, told(changes.drop_columns([TIED]), self.schema)))
        report |= {
            "tied": tied.num_rows,
            "skipped": skipped(fresh, changes, self.schema),
            "sample": _text_of(tied, self.schema),
        }
        return json.dumps(report).encode()


def _of_batch(context: BatchContext, prepare: Any) -> Source:
    """The batch's rows of the change table."""
    snapshot, batch_id = context.tables.existing(context.layout.changes), context.plan.batch_id
    return Source(
        table=snapshot.path, files=files_of_batch(snapshot, batch_id), schema=snapshot.schema.arrow,
        prepare=lambda rows: prepare(rows.filter(is_of_batch(rows, batch_id))),
    )  # fmt: skip


@dataclass(frozen=True)
class _AppendOnly:
    """Rows of a table without keys; sent to tasks."""

    schema: TableSchema
    output: Output

    def prepare(self, rows: pa.Table) -> pa.Table:
        return by_name(rows, change_schema(self.schema))

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        kept = sweep.appended(rows[_FRESH], self.schema)
        late = rows[_FRESH].num_rows - kept.num_rows
        return json.dumps({**self.output.report(storage, kept), "late": late}).encode()


@dataclass
class _Refold:
    """Changes of keys that are folded again; `lacking`: they would be needed, and are not at hand."""

    rows: pa.Table | None
    schema: TableSchema
    lacking: bool = field(default=False, init=False)

    def __call__(self, keys: pa.Table) -> pa.Table:  # noqa: ARG002 - there are all of the range
        self.lacking = self.rows is None
        if self.rows is None:
            return as_events(for_both_keys(change_schema(self.schema).empty_table(), self.schema), self.schema)
        return as_events(self.rows, self.schema)


@dataclass(frozen=True, kw_only=True)
class _Merge:
    """The outcome of a batch for the keys of a range; sent to tasks.

    Attributes:
        tombstones: None: they are written already.
    """

    schema: TableSchema
    batch_id: str
    partial: bool
    replica: Output
    tombstones: Output | None

    def changes(self, rows: pa.Table) -> pa.Table:
        return for_both_keys(by_name(rows, change_schema(self.schema)), self.schema)

    def stored_tombstones(self, rows: pa.Table) -> pa.Table:
        """Those of other batches."""
        return without_places(rows).filter(pc.invert(is_of_batch(rows, self.batch_id)))

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        schema, stored = self.schema, matches_of(rows[_REPLICA])
        net = net_changes(as_events(rows[_FRESH], schema), schema, partial=self.partial)
        refold = _Refold(rows.get(_EVERY), schema)
        known = StoredState(replica=stored.rows, tombstones=rows.get(_TOMBSTONES))
        outcome = outcome_of(net, known, schema, refold, partial=self.partial)
        if refold.lacking:
            return json.dumps({"again": True, "replica": None, "tombstones": None}).encode()
        report = {
            "again": False, "replica": self.replica.report_of(storage, stored, outcome.rows),
            **_figures(outcome, schema),
            "tombstones": None if self.tombstones is None else self.tombstones.report(storage, outcome.deletes),
        }  # fmt: skip
        return json.dumps(report).encode()


def _figures(outcome: Outcome, schema: TableSchema) -> dict[str, Any]:
    counts = outcome.counts
    return {
        "counts": [counts.inserted, counts.updated, counts.deleted], "late": outcome.late,
        "unknown": [outcome.unknown_keys.num_rows, _text_of(outcome.unknown_keys, schema)],
        "lost": [outcome.lost_moves.num_rows, _text_of(outcome.lost_moves, schema)],
    }  # fmt: skip


def _text_of(rows: pa.Table, schema: TableSchema) -> str:
    """A few keys, for a report."""
    return b64encode(stream_of(least_keys(rows, schema))).decode()


def _sample(schema: TableSchema, texts: Sequence[str]) -> list[str]:
    """The least of the keys of several reports, see `order.sample_keys`."""
    return list(sample_keys(pa.concat_tables([stream_rows(b64decode(text)) for text in texts]), schema))


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
        context, schema = self.context, self.context.table_schema
        tables, path = context.tables, context.layout.replica
        rule = _Merge(
            schema=schema, batch_id=context.plan.batch_id, partial=self.partial,
            replica=output_of(tables, path, schema.keys, context.transaction), tombstones=self._tombstones(),
        )  # fmt: skip
        fresh = _of_batch(context, rule.changes)
        sources = {_FRESH: fresh, **self._stored(rule, fresh)}
        if every:
            sources[_EVERY] = Source.of(tables.existing(context.layout.changes), rule.changes)
        return [json.loads(report) for report in by_key(tables, sources, key_schema(schema), rule)]

    def _stored(self, rule: _Merge, fresh: Source) -> dict[str, Source]:
        """Stored rows and tombstones: those of the batch's keys alone, where tasks can have all of these."""
        stored = {_REPLICA: self._replica()}
        if (tombstones := self.context.tables.snapshot(self.context.layout.tombstones)) is not None:
            stored[_TOMBSTONES] = Source.of(tombstones, rule.stored_tombstones)
        kinds = key_schema(self.context.table_schema)
        is_small = sum(source.size for source in stored.values()) < fresh.size
        if is_small or self.changes > _MOST_KEYS or any(pt.is_nested(key.type) for key in kinds):
            return stored
        keys = keys_of(self.context.tables, fresh, self.context.table_schema.keys)
        if keys.nbytes > _MOST_KEY_BYTES:
            return stored
        return {name: replace(source, wanted=keys) for name, source in stored.items()}

    def _replica(self) -> Source:
        snapshot = self.context.tables.existing(self.context.layout.replica)
        columns = needed_of_replica(snapshot, self.context.table_schema, partial=self.partial)
        return Source.of(snapshot, lambda rows: rows, columns, to_write=True)

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
        made = [report[name] for report in reports for name in ("replica", "tombstones") if report[name]]
        files = [(one["at"], action) for one in made for action in (*one["files"], *one["feed"])]
        self.context.tables.storage.delete(*(file_path(folder, action) for folder, action in files))


@dataclass(frozen=True, kw_only=True)
class _Totals:
    """Counts of all ranges of keys together.

    Attributes:
        unknown, lost: number and sample of keys, see `Outcome`.
    """

    counts: MainCounts = field(default_factory=MainCounts)
    late: int = 0
    unknown: KeySample = (0, ())
    lost: KeySample = (0, ())

    @classmethod
    def of_reports(cls, reports: Sequence[Mapping[str, Any]], schema: TableSchema) -> _Totals:
        def keys(name: str) -> KeySample:
            reported = [report[name] for report in reports]
            return sum(n for n, _ in reported), tuple(_sample(schema, [text for _, text in reported]))

        inserted, updated, removed = (sum(report["counts"][at] for report in reports) for at in range(3))
        counts = MainCounts(inserted=inserted, updated=updated, deleted=removed)
        late = sum(report["late"] for report in reports)
        return cls(counts=counts, late=late, unknown=keys("unknown"), lost=keys("lost"))

    def to_json(self) -> dict[str, Any]:
        return {"late": self.late, "unknown": self.unknown, "lost": self.lost}

    @classmethod
    def of_json(cls, remembered: Mapping[str, Any]) -> _Totals:
        """Without counts, which the commit has."""
        unknown, lost = (
            (n, tuple(keys)) for n, keys in (remembered.get(name, (0, ())) for name in ("unknown", "lost"))
        )
        return cls(late=remembered.get("late", 0), unknown=unknown, lost=lost)

    @property
    def warnings(self) -> tuple[RunWarning, ...]:
        return warnings_of(self.unknown, self.lost)


@dataclass(frozen=True)
class _MergedParts:
    """Reports of tasks on the files that they have written, by table; no commit names these files yet."""

    tombstones: Sequence[Mapping[str, Any]]
    replica: Sequence[Mapping[str, Any]]
