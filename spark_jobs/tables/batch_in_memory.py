"""A batch in this process: decoded as a whole, appended to the change table, merged into the replica."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.errors import GddlError, QuarantinableError
from airflow_gddl.contract.result import MainCounts, Warnings
from airflow_gddl.contract.sql_types import SqlType, StructType, parse_type
from airflow_gddl.stores.readers import READ_AHEAD
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor, TableState
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rooms.dialects.contents import ReadOnce
from spark_jobs.rooms.dialects.probe import probe_all, reading
from spark_jobs.rooms.dialects.protocol import (
    InputOpener,
    Probed,
    Unreadable,
    begin_a_table,
    groups,
    that_wait,
    with_keys,
)
from spark_jobs.rules import quarantine
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.decode import DecodedGroup, Stamp, are_deletes
from spark_jobs.rules.figures import Appended, DecodedBatch, Figures, combined, distinct, measure
from spark_jobs.rules.file_groups import FileGroup
from spark_jobs.rules.file_rows import FileRows, RawGroup, grouped, read_file
from spark_jobs.rules.fold import net_changes, refolds
from spark_jobs.rules.order import events, is_of_batch
from spark_jobs.rules.outcome import Applied, Outcome, StoredState, outcome_of, sampled, warnings_of
from spark_jobs.rules.quarantine import good_again, to_replay
from spark_jobs.rules.redelivery import TIED, Doubts, Overlap, new_changes
from spark_jobs.rules.stale_rows import suspects
from spark_jobs.rules.stored_columns import change_schema, told
from spark_jobs.rules.sweep import appended
from spark_jobs.tables import table_definition, whole_tables
from spark_jobs.tables.decoding import Decoding, landed, resumed_batch, resumed_schema
from spark_jobs.tables.delta_log import APPEND, MERGE, QUARANTINE, TOMBSTONES, main_counts, merge_metrics
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.places import DeclinedError
from spark_jobs.tables.small_files import with_smallest
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_rows import FindRows, KeyMatches, find, find_stored, search
from spark_jobs.tables.whole_tables import BatchContext, TableWriter, changes_of_keys, update_history


@dataclass(frozen=True, kw_only=True)
class WholeBatch:
    """A batch's rows.

    Attributes:
        groups: decoded groups with bad rows; empty for a batch that resumes from the change table.
        good: columns of `change_schema`.
    """

    decoded_batch: DecodedBatch
    groups: tuple[DecodedGroup, ...]
    good: pa.Table


@dataclass(frozen=True, kw_only=True)
class WholeBatchReader:
    """Reads and decodes the files or records of one batch.

    Attributes:
        most_bytes: of the rows of its files in memory; None: as many as there are.
    """

    context: TableContext
    plan: BatchPlan
    state: TableState
    most_bytes: int | None = None

    def decode(self, errors: pa.Table | None) -> tuple[WholeBatch | None, tuple[Unreadable, ...]]:
        """See `Engine.decode_files`.

        Args:
            errors: the errors table, for a batch that replays its records; None where there is none.

        Raises:
            MemoryError: its files hold more than `most_bytes`.
        """
        return (self._decode_records(errors), ()) if self.plan.source == "quarantine" else self._decode_files()

    def _decode_files(self) -> tuple[WholeBatch | None, tuple[Unreadable, ...]]:
        storage: InputOpener = self.context.storage
        if self.plan.size <= READ_AHEAD:
            storage = ReadOnce(storage)
        probed, unreadable = probe_all(storage, self.plan.files, self.context.dialect)
        probed, keyless = with_keys(probed, self.context.spec, is_new=self.state.keys is None)
        unreadable = (*unreadable, *keyless)
        read = self._read(storage, probed)
        bad = tuple(r for r in read.values() if isinstance(r, Unreadable))
        readable = {path: r for path, r in read.items() if isinstance(r, FileRows)}
        unreadable = (*unreadable, *bad)
        files = [p for p in probed if p.file.path in readable]
        if not files or (self.state.keys is None and not begin_a_table(files)):
            return None, (*unreadable, *that_wait(files))
        try:
            return self._decode_all(files, readable), unreadable
        except (GddlError, DeclinedError, MemoryError):
            raise
        except Exception:
            damaged = self._damaged(files, readable)
            if not damaged:
                raise
        good = [p for p in files if p.file.path not in {u.file.path for u in damaged}]
        return (self._decode_all(good, readable) if good else None), (*unreadable, *damaged)

    def _read(self, storage: InputOpener, probed: Sequence[Probed]) -> dict[str, FileRows | Unreadable]:
        """By path; repeated values make rows of many times the size of their file."""
        read: dict[str, FileRows | Unreadable] = {}
        size = 0
        for one in probed:
            rows = read[one.file.path] = read_file(storage, one)
            size += sum(column.nbytes for column in rows.columns) if isinstance(rows, FileRows) else 0
            if self.most_bytes is not None and size > self.most_bytes:
                raise MemoryError(f"the batch has more than {self.most_bytes} bytes in memory")
        return read

    def _damaged(self, files: Sequence[Probed], readable: Mapping[str, FileRows]) -> tuple[Unreadable, ...]:
        """Decode every file separately, to find those whose values can be read but not decoded."""
        bad = []
        for probed in files:
            try:
                with reading(probed.file):
                    self._decode_all([probed], readable)
            except QuarantinableError as error:
                bad.append(Unreadable(probed.file, error.code, error.what))
        return tuple(bad)

    def _decode_all(self, files: Sequence[Probed], readable: Mapping[str, FileRows]) -> WholeBatch:
        ordinals = {file.path: i for i, file in enumerate(self.plan.files)}
        alike = groups(files)
        raws = [grouped(group, readable, ordinals) for group in alike]
        return self._decode_groups([(raw, self._landed(raw)) for raw in raws], alike)

    def _decode_groups(
        self, raws: Sequence[tuple[RawGroup, FileGroup]], files: Sequence[Sequence[Probed]] = ()
    ) -> WholeBatch:
        """Plan the schema for groups of raw rows and decode them."""
        decoding = Decoding.planned(self.context, self.plan, self.state, [like for _, like in raws],
                                    [file for group in files for file in group])  # fmt: skip
        parts = [decoding.decoder.part(number, raw) for number, (raw, _) in enumerate(raws)]
        good = pa.concat_tables([group.good for group, _ in parts])
        table_schema = decoding.schema.table_schema
        whole = combined([figures for _, figures in parts], table_schema)
        return WholeBatch(
            decoded_batch=decoding.batch(whole, distinct(good, table_schema), files),
            groups=tuple(group for group, _ in parts),
            good=good,
        )

    def _landed(self, raw: RawGroup) -> FileGroup:
        return landed(self.context, raw.files[0], lambda op: are_deletes(raw.columns[op]))

    def _decode_records(self, errors: pa.Table | None) -> WholeBatch | None:
        """Decode the unresolved rows of the errors table again; None when there are none."""
        label = f"quarantine of {self.context.spec.table}"
        if errors is not None and self.context.spec.shard is not None:
            errors = errors.filter(pc.starts_with(errors.column("source_file"), f"{self.context.layout.landing}/"))
        waiting = [] if errors is None else to_replay(errors, self.plan.planned_at, self.plan.codes)
        dialect = self.context.dialect
        raws = [(w.raw, FileGroup(kind=w.kind, columns=w.columns, label=label, dialect=dialect)) for w in waiting]
        return self._decode_groups(raws) if raws else None

    def resume(self, rows: pa.Table) -> WholeBatch:
        """See `Engine.resume_from_changes`; `rows`: the batch's rows of the change table."""
        schema = resumed_schema(self.context, self.plan, self.state)
        table_schema = schema.table_schema
        rows = by_name(rows, change_schema(table_schema))
        gddl = rows.column(GDDL)
        loads = pc.equal(pc.struct_field(gddl, "op"), "R")
        parts = [DecodedGroup(kind="load", rows=rows.filter(loads)),
                 DecodedGroup(kind="change", rows=rows.filter(pc.invert(loads)))]  # fmt: skip
        whole = combined([measure(p, table_schema) for p in parts], table_schema)
        identities, keys = distinct(rows, table_schema)
        figures = replace(whole, identities=identities, keys=keys)
        origins = {(g["source_file"], g["schema"], g["op"] != "R") for g in gddl.to_pylist()}
        return WholeBatch(decoded_batch=resumed_batch(schema, figures, origins), groups=(), good=rows)


def needed_of_replica(snapshot: TableSnapshot, schema: TableSchema, *, partial: bool) -> list[str] | None:
    """Columns of stored rows that a merge needs (None: all), for rows that are deleted by their number."""
    if partial or refolds(schema) or snapshot.feeds_changes:
        return None
    needed, written = {*schema.keys, GDDL, *schema.forcing}, {*schema.columns, GDDL}
    return [name for name in snapshot.whole_rows.names if name in needed or name not in written]


@dataclass(kw_only=True)
class BatchInMemory:
    """See `BatchWork`.

    Attributes:
        changes: its rows of the change table, once they are appended.
        keys: of the batch, once decided; of a table with keys.
        matches: rows of the replica that may have these keys.
    """

    batch_context: BatchContext
    decoded: WholeBatch
    changes: pa.Table = field(init=False)
    appended: Appended = field(init=False)
    keys: pa.Table = field(init=False)
    matches: KeyMatches = field(init=False)
    outcome: Outcome = field(init=False)

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.decoded.decoded_batch

    @property
    def tables(self) -> TableWriter:
        return TableWriter(self.batch_context)

    @property
    def table_schema(self) -> TableSchema:
        return self.batch_context.table_schema

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:
        batch_context = self.batch_context
        errors = ErrorsTable(batch_context.tables, batch_context.layout.errors)
        if self.decoded_batch.figures.quarantined or files:
            stamp = Stamp.of(batch_context.plan)
            rows = [quarantine.of_rows(group, stamp) for group in self.decoded.groups]
            rows.append(quarantine.of_files(files, stamp))
            errors.append(pa.concat_tables(rows), QUARANTINE, batch_context.transaction)
        errors.resolve_earlier(batch_context.plan, again)

    def discard(self) -> None:
        """Decoded rows are in memory."""

    def append(self, overlap: Overlap) -> None:
        figures, good = self.decoded_batch.figures, self.decoded.good
        table_schema, stored = self.table_schema, self._stored(overlap)
        warnings: Warnings = ()
        if figures.may_repeat(table_schema) or (stored is not None and stored.num_rows):
            fresh = new_changes(good, stored, table_schema)
            warnings = Doubts.of(good, fresh, table_schema).warnings(table_schema)
            good = fresh.drop_columns([TIED])
        number = self.batch_context.plan.number
        self.appended = figures.appended(good.num_rows, self._write(good), warnings, batch=number)
        self.changes = good

    def _write(self, good: pa.Table) -> int:
        """Number of rows that the batch appended, in this attempt or an earlier one."""
        batch_context, path = self.batch_context, self.batch_context.layout.changes
        if batch_context.has_made(path, APPEND):
            counted = batch_context.metrics(path, APPEND).get("numOutputRows")
            if counted is None:
                counted = batch_rows(batch_context.tables, path, batch_context.plan.batch_id).num_rows
            return counted
        batch_context.join_small_files(path)
        batch_context.commit(
            path, APPEND, {"numOutputRows": good.num_rows}, [told(good, self.batch_context.table_schema)]
        )
        return int(good.num_rows)

    def _stored(self, overlap: Overlap) -> pa.Table | None:
        """Rows of the change table that may equal rows of this batch; None: none can."""
        batch_context, schema = self.batch_context, self.batch_context.table_schema
        known = may_repeat(batch_context, self.decoded_batch.figures, overlap)
        if known is None:
            return None
        snapshot = batch_context.changes
        keys = self.decoded.good.select(schema.keys) if schema.keys else None
        work = FindRows(table=snapshot.path, keys=keys, schema=snapshot.schema.arrow, keep=known)
        matches = search(batch_context.tables, work, [file for file in snapshot.files if known.may_be_in(file)])
        return by_name(matches.rows, change_schema(schema))

    def decide(self) -> None:
        schema = self.table_schema
        if not schema.keys:
            return
        partial = schema.carries_parts(self.decoded_batch.change_schemas)
        net = net_changes(events(self.changes, schema), schema, partial=partial)
        self.keys = net.select(schema.keys)
        self.matches = self._stored_rows(net, partial=partial)
        merged = self.batch_context.has_made(self.batch_context.layout.replica, MERGE)
        stored = StoredState(replica=self.matches.rows, tombstones=self._stored_tombstones(), merged=merged)
        self.outcome = outcome_of(net, stored, schema, self._refold, partial=partial)

    def _stored_rows(self, net: pa.Table, *, partial: bool) -> KeyMatches:
        tables, schema = self.batch_context.tables, self.table_schema
        snapshot = self.batch_context.to_search(self.batch_context.layout.replica)
        columns = needed_of_replica(snapshot, schema, partial=partial)
        # Rows of a load have no sequence; only another one of a load can tie with them. Places of changes that went
        # through the quarantine (below zero) are compared with those of all stored rows.
        lacks_sequence = pc.struct_field(net.column(GDDL), "sequence").null_count > 0
        was_replayed = pc.any(pc.less(pc.struct_field(net.column(GDDL), "position"), 0)).as_py()
        ties = columns is None or lacks_sequence or bool(was_replayed)
        return find(tables, snapshot, net.select(schema.keys), schema.keys, columns, ties=ties)

    def _stored_tombstones(self) -> pa.Table | None:
        """Tombstones of earlier batches of the batch's keys, and possibly of others."""
        batch_context = self.batch_context
        snapshot = batch_context.tables.snapshot(batch_context.layout.tombstones)
        if snapshot is None:
            return None
        rows = find_stored(batch_context.tables, snapshot, self.keys, self.table_schema.keys).rows
        return rows.filter(pc.invert(is_of_batch(rows, batch_context.plan.batch_id)))

    def _refold(self, keys: pa.Table) -> pa.Table:
        """`order.events` of all changes of these keys, and possibly of others."""
        return events(changes_of_keys(self.batch_context, keys), self.table_schema)

    def tombstones(self) -> None:
        if not self.outcome.deletes.num_rows:
            return
        batch_context, path = self.batch_context, self.batch_context.layout.tombstones
        whole_tables.retype_sequence(batch_context.tables, path, batch_context.table_schema)
        whole_tables.ensure(batch_context.tables, table_definition.tombstones(batch_context.table_schema, path))
        if batch_context.has_made(path, TOMBSTONES):
            return
        snapshot = batch_context.tables.existing(path)
        deletes = by_name(self.outcome.deletes, snapshot.schema.arrow)
        whole, removed = with_smallest(batch_context.tables, snapshot, deletes)
        batch_context.commit(path, TOMBSTONES, {}, [whole], removed)

    def replica(self) -> Applied:
        if not self.table_schema.keys:
            return self._append_only()
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        outcome, schema = self.outcome, self.table_schema
        warnings = warnings_of(sampled(outcome.unknown_keys, schema), sampled(outcome.lost_moves, schema))
        done = batch_context.has_made(path, MERGE)
        main = main_counts(batch_context.metrics(path, MERGE)) if done else self._put()
        return Applied(main=main, warnings=warnings, late=self.outcome.late)

    def _append_only(self) -> Applied:
        batch_context, path = self.batch_context, self.batch_context.layout.replica
        rows = appended(self.changes, self.table_schema)
        if not batch_context.has_made(path, MERGE):
            batch_context.join_small_files(path)
            batch_context.commit(path, MERGE, {"numTargetRowsInserted": rows.num_rows}, [rows])
        late = self.changes.num_rows - rows.num_rows
        return Applied(main=main_counts(batch_context.metrics(path, MERGE)), late=late)

    def _put(self) -> MainCounts:
        batch_context, counts = self.batch_context, self.outcome.counts
        snapshot = batch_context.replica
        batch_context.put(snapshot, MERGE, merge_metrics(counts), self.matches, self.outcome.rows)
        return counts

    def stale_rows(self) -> Warnings:
        rows = suspects(self.decoded.groups, self.table_schema)
        return whole_tables.stale_rows(self.batch_context, rows)

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        update_history(self.batch_context, self.keys, floors, swept)

    def resolve_rows(self) -> None:
        batch_context, chosen = self.batch_context, good_again(self.decoded.good)
        ErrorsTable(batch_context.tables, batch_context.layout.errors).resolve(chosen, batch_context.plan.planned_at)


@dataclass(frozen=True)
class MayRepeat:
    """See `Keep`; changes of other batches that may equal some of a batch.

    Attributes:
        generation: of the full-load rows that may; None: none.
        span: lowest and highest sequence of the changes that may; None: none.
        sequence_type: of the table.
        baseline: batch of the rows that the replica had before its first batch; they stand for changes of any
            operation, with which none can be compared. Empty: there was none.
    """

    generation: int | None
    span: tuple[Any, Any] | None
    sequence_type: SqlType
    batch_id: str
    baseline: str = ""

    def may_be_in(self, file: DataFile) -> bool:
        """By its statistics."""
        low, high = file.low.get(GDDL) or {}, file.high.get(GDDL) or {}
        if self.generation is not None and (low.get("op") is None or low["op"] <= "R" <= high["op"]):
            return True
        if self.span is None or low.get("sequence") is None or not isinstance(low["sequence"], type(self.span[0])):
            return self.span is not None
        return bool(low["sequence"] <= self.span[1] and self.span[0] <= high["sequence"])

    def __call__(self, rows: pa.Table) -> pa.ChunkedArray:
        gddl = rows.column(GDDL)
        wanted = pa.chunked_array([pa.repeat(False, rows.num_rows)])
        if self.generation is not None:
            wanted = pc.and_(
                pc.equal(pc.struct_field(gddl, "op"), "R"),
                pc.equal(pc.struct_field(gddl, "generation"), self.generation),
            )
        if self.span is not None:
            inside = self._inside(pc.struct_field(gddl, "sequence"), self.span)
            wanted = pc.or_kleene(wanted, inside)
        not_meant = pa.array([self.batch_id, self.baseline])
        return pc.and_(wanted, pc.invert(pc.is_in(pc.struct_field(gddl, "batch_id"), value_set=not_meant)))

    def _inside(self, sequence: pa.ChunkedArray, span: tuple[Any, Any]) -> pa.ChunkedArray:
        if isinstance(self.sequence_type, StructType):
            sequence = pc.struct_field(sequence, self.sequence_type.fields[0].name)
        if pt.is_floating(sequence.type) or pt.is_boolean(sequence.type):
            return sequence.is_valid()
        low, high = (_typed(end, sequence.type) for end in span)
        return pc.and_(pc.greater_equal(sequence, low), pc.less_equal(sequence, high))


def may_repeat(batch_context: BatchContext, figures: Figures, overlap: Overlap) -> MayRepeat | None:
    """Which rows of the change table may equal rows of a batch; None: none can."""
    span = figures.sequence_span if overlap.changes else None
    generation = batch_context.plan.generation if overlap.loads else None
    if span is None and generation is None:
        return None
    kind = parse_type(batch_context.table_schema.sequence_type)
    stored = batch_context.replica.stored_baseline
    baseline = "" if stored is None else stored.baseline.batch_id
    return MayRepeat(generation, span, kind, batch_context.plan.batch_id, baseline)


def files_of_batch(snapshot: TableSnapshot, batch_id: str) -> tuple[DataFile, ...]:
    """Files of the change table that may have rows of a batch."""
    ends = ((file, file.low.get(GDDL) or {}, file.high.get(GDDL) or {}) for file in snapshot.files)
    return tuple(
        f for f, low, high in ends if not low.get("batch_id") or low["batch_id"] <= batch_id <= high["batch_id"]
    )


def batch_rows(tables: Tables, path: str, batch_id: str) -> pa.Table:
    """Rows of the change table that a batch appended."""
    snapshot = tables.existing(path)
    rows = tables.read_files(snapshot, files_of_batch(snapshot, batch_id))
    return rows.filter(is_of_batch(rows, batch_id))


def _typed(value: Any, kind: pa.DataType) -> pa.Scalar:
    if pt.is_temporal(kind) and isinstance(value, str):
        return pa.scalar(value.removesuffix("Z")).cast(pa.timestamp("us")).cast(kind)
    return pa.scalar(value).cast(kind) if not pt.is_decimal(kind) else pa.scalar(Decimal(value), kind)
