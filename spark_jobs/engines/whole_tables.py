"""Steps on whole tables: created, loaded for the first time, evolved, reconciled with the row, swept, checked.

A first load is one pass: tasks write the data files of all tables, see `written_parts`. The history of all keys is
derived here, too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from airflow_gddl.contract.result import CommitMethod, MainCounts, RunWarning
from airflow_gddl.contract.sql_types import SqlType, StructField, StructType, is_complex, parse_type
from airflow_gddl.stores import Storage
from spark_jobs.delta import table_definition
from spark_jobs.delta.data_files import Target, has_sequences
from spark_jobs.delta.log import APPEND, HISTORY, MERGE, QUARANTINE, SWEEP, TRUNCATE, Action, main_counts, version_of
from spark_jobs.delta.snapshots import missing_features
from spark_jobs.delta.table_definition import TableDefinition, marks_deletes, new_comments
from spark_jobs.delta.tables import Tables, TableSnapshot
from spark_jobs.dialects.protocol import Unreadable
from spark_jobs.engines.batch_context import BatchContext
from spark_jobs.engines.file_rules import Output, output_of, rewrite
from spark_jobs.engines.port import Place, TableContext, TablesOfAnother, TableWork
from spark_jobs.engines.table_rows import FindRows, Source, by_file, by_key, find, search
from spark_jobs.engines.written_parts import CHANGES, ERRORS, REPLICA, PartsReader, WrittenParts
from spark_jobs.plan.planned_batch import BatchPlan, TableState
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.plan.types import are_of_one_kind, grown, widens
from spark_jobs.rules import quarantine, sweep
from spark_jobs.rules.arrays import DeltaSchema, by_name, table_codes
from spark_jobs.rules.batch_schema import change_schema
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.decode import Stamp
from spark_jobs.rules.history import differences, retyped_bounds, versions
from spark_jobs.rules.measure import Appended, Applied, DecodedBatch, Overlap
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.order import as_events, events, for_both_keys
from spark_jobs.rules.sweep import stale_keys, stale_warning, truncated, undeleted, unmarked
from spark_jobs.rules.verify import (
    CHILD,
    PARENT,
    BrokenConstraint,
    CheckedValues,
    Reference,
    Violations,
    not_checked,
    violations_of,
)


def keep_readable(tables: Tables, path: str) -> bool:
    """Drop columns from the indexed ones whose bounds some reader can't read; returns whether there were any.

    Spark may have written such bounds, and may again. Readers ignore what the log has of columns that the property
    doesn't name, so no file's statistics change.
    """
    left = table_definition.left_readable(
        tables.properties(path).get(table_definition.COLUMNS), tables.existing(path).schema.columns
    )
    if left is None:
        return False
    tables.set_properties(path, {table_definition.COLUMNS: left})
    return True


def ensure(tables: Tables, definition: TableDefinition) -> None:
    """Create the table, or bring an existing one to the definition's columns."""
    if not tables.exists(definition.path):
        tables.create(definition)
        return
    stored = tables.existing(definition.path).schema.types
    new = [c for c in definition.columns if c.name not in stored]
    if new:
        tables.add_columns(definition.path, new)
    changed = {c.name: grown(stored[c.name], c.type) for c in definition.columns if c.name in stored}
    changed = {name: kind for name, kind in changed.items() if kind != stored[name]}
    left = tables.grow(definition.path, changed) if changed else {}
    if left:
        schema = tables.existing(definition.path).schema
        rewrite(tables, definition.path, schema.retyped(left), _Retyped(stored, left))


@dataclass(frozen=True)
class _Retyped:
    """Rows with the text of their values in columns that become text; sent to tasks."""

    stored: Mapping[str, SqlType]
    wanted: Mapping[str, SqlType]

    def __call__(self, rows: pa.Table) -> pa.Table:
        return with_texts(rows, self.stored, self.wanted)


def retype_sequence(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> None:
    """Give `_gddl.sequence` its type while all stored sequences are null, and `bounds` of the history with it.

    `ensure` widens it.
    """
    if not tables.exists(path) or retype_without_rows(tables, path, table_schema, bounds):
        return
    snapshot = tables.existing(path)
    changed: dict[str, SqlType] = {GDDL: _wanted(snapshot, table_schema)}
    changed |= dict.fromkeys(bounds, parse_type(table_schema.sequence_type))
    schema = snapshot.schema.retyped(changed)
    rewrite(tables, path, schema, _Resequenced(schema, bounds))


@dataclass(frozen=True)
class _Resequenced:
    """Rows whose sequence and bounds have the types of a schema; sent to tasks."""

    schema: DeltaSchema
    bounds: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        for name in self.bounds:
            values = retyped_bounds(rows.column(name), self.schema.types[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        kind = self.schema.arrow.field(GDDL).type
        gddl = rows.column(GDDL).combine_chunks()
        parts = [pa.nulls(rows.num_rows, kind.field(0).type), *gddl.flatten()[1:]]
        emptied = pa.StructArray.from_arrays(parts, fields=list(kind), mask=gddl.is_null())
        return rows.set_column(rows.schema.get_field_index(GDDL), GDDL, emptied)


def retype_without_rows(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> bool:
    """Do what `retype_sequence` does where no row has to be written for it; returns whether nothing is left to do.

    That is so where no file has the field, since `data_files` leaves it out, and the type needs no table feature.
    """
    snapshot = tables.existing(path)
    wanted = _wanted(snapshot, table_schema)
    if wanted == snapshot.schema.types[GDDL]:
        return True
    if not tables.arranges_files or missing_features(snapshot.delta, [Column(GDDL, wanted)]):
        return False
    if bounds or any(has_sequences(tables.storage, path, file) for file in snapshot.files):
        return False
    tables.retype(path, {GDDL: wanted})
    return True


def _wanted(snapshot: TableSnapshot, table_schema: TableSchema) -> SqlType:
    """The type of `_gddl` with a sequence of the schema's kind."""
    kind, stored = parse_type(table_schema.sequence_type), snapshot.schema.types[GDDL]
    if not isinstance(stored, StructType) or are_of_one_kind(stored.fields[0].type, kind):
        return stored
    return StructType((StructField("sequence", kind), *stored.fields[1:]))


def settle_deletes(tables: Tables, definition: TableDefinition) -> None:
    """`_gddl.deleted` as the row asks: added, false in every row; or removed, with the rows that it marks."""
    wanted = next((c.type for c in definition.columns if c.name == GDDL), None)
    if not tables.exists(definition.path) or not isinstance(wanted, StructType):
        return
    snapshot = tables.existing(definition.path)
    stored = snapshot.schema.types[GDDL]
    if marks_deletes(stored) == marks_deletes(wanted):
        return
    schema = snapshot.schema.retyped({GDDL: wanted})
    rewrite(tables, definition.path, schema, unmarked if marks_deletes(stored) else undeleted)


def settle_comments(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's comments; others, also those that users wrote, are kept."""
    if not definition.description and not definition.descriptions:
        return
    table = tables.existing(definition.path)
    comments = new_comments(definition, table.comments)
    if comments or definition.description not in ("", table.delta.metadata().description):
        tables.set_comments(definition.path, definition.description, comments)


def settle_properties(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's properties and order of rows; properties that it no longer names are kept.

    Raises:
        DeclinedError: one of them requires more than this engine supports.
    """
    path, stored = definition.path, tables.properties(definition.path)
    changed = {name: value for name, value in definition.properties.items() if stored.get(name) != value}
    names = tables.existing(path).schema.names
    moved = definition.cluster_by != tables.clustering(path) and set(definition.cluster_by) <= set(names)
    if moved and definition.cluster_by and stored.get(table_definition.COLUMNS):
        changed |= definition.skipping
    if {name.lower() for name in changed} & {table_definition.COLUMNS.lower(), table_definition.COUNT.lower()}:
        tables.reindex(path, changed)
    elif changed:
        tables.set_properties(path, changed)
    if moved:
        tables.cluster(path, definition.cluster_by)


_CHANGES, _STORED = "changes", "stored"
"""Names of tables for rules."""


def changes_of_keys(batch_context: BatchContext, keys: pa.Table) -> pa.Table:
    """All changes of these keys, by new key or by the before image's old key; possibly also of others."""
    snapshot, table_schema = batch_context.tables.existing(batch_context.layout.changes), batch_context.table_schema
    work = FindRows(
        table=snapshot.path, keys=keys.select(table_schema.keys), schema=snapshot.schema.arrow,
        moved=table_schema if table_schema.before_of_key else None,
    )  # fmt: skip
    return by_name(search(batch_context.tables, work, snapshot.files).rows, change_schema(table_schema))


def stale_rows(batch_context: BatchContext, suspects: pa.Table | None) -> tuple[RunWarning, ...]:
    """See `AppendedWork.stale_rows`.

    Args:
        suspects: see `stale_rows.suspects`.
    """
    snapshot = batch_context.tables.snapshot(batch_context.layout.replica)
    if suspects is None or snapshot is None:
        return ()
    schema = batch_context.table_schema
    stored = find(batch_context.tables, snapshot, suspects.select(schema.keys), schema.keys, [GDDL]).rows
    return stale_warning(stale_keys(suspects, stored, schema), schema)


def update_history(
    batch_context: BatchContext, touched: pa.Table | None, generation_low_watermarks: Sequence[str | None], swept: int
) -> None:
    """Make the history of `touched` keys (null: of all) equal to the versions derived from their changes.

    Args:
        swept: rows of generations before this one have vanished.
    """
    path, table_schema = batch_context.layout.history, batch_context.table_schema
    if batch_context.has_made(path, HISTORY):
        return
    if touched is None:
        _update_all(batch_context, tuple(generation_low_watermarks), swept)
        return
    snapshot = batch_context.tables.existing(path)
    happened = events(changes_of_keys(batch_context, touched), table_schema)
    happened = happened.take(pa.array(with_keys(happened, touched, table_schema)))
    derived = versions(happened, table_schema, generation_low_watermarks, swept)
    found = find(batch_context.tables, snapshot, touched, table_schema.keys)
    mine = with_keys(found.rows, touched, table_schema)
    missing, extra = differences(derived, found.rows.take(pa.array(mine)), table_schema)
    gone = mine[extra]
    deleted = pa.table({ACTION: pa.repeat("delete", len(gone)), AT: pa.array(gone, pa.int64())})
    fresh = by_name(missing, snapshot.schema.arrow).append_column(ACTION, pa.repeat("insert", missing.num_rows))
    outcome = pa.concat_tables([fresh, deleted], promote_options="default")
    batch_context.put(snapshot, HISTORY, {}, found, outcome)


@dataclass(frozen=True)
class _Versions:
    """The versions of all keys, of a table with several sources of those of the batch's; sent to tasks."""

    schema: TableSchema
    generation_low_watermarks: tuple[str | None, ...]
    swept: int
    output: Output

    def prepare(self, rows: pa.Table) -> pa.Table:
        own = sweep.of_shard(by_name(rows, change_schema(self.schema)), self.schema.spec.shard)
        return for_both_keys(own, self.schema)

    def stored(self, rows: pa.Table) -> pa.Table:
        return sweep.of_shard(rows, self.schema.spec.shard)

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        happened, stored = as_events(rows[_CHANGES], self.schema), rows[_STORED]
        derived = versions(happened, self.schema, self.generation_low_watermarks, self.swept)
        missing, extra = differences(derived, stored, self.schema)
        gone = stored.take(pa.array(extra))
        return json.dumps(self.output.report(storage, missing, gone, gone)).encode()


def _update_all(batch_context: BatchContext, generation_low_watermarks: tuple[str | None, ...], swept: int) -> None:
    tables, layout, schema = batch_context.tables, batch_context.layout, batch_context.table_schema
    output = output_of(tables, layout.history, schema.keys, batch_context.transaction)
    rule = _Versions(schema, generation_low_watermarks, swept, output)
    sources = {
        _CHANGES: Source.of(tables.existing(layout.changes), rule.prepare),
        _STORED: Source.of(tables.existing(layout.history), rule.stored),
    }
    kinds = change_schema(schema)
    keys = pa.schema([kinds.field(name) for name in schema.keys])
    reports = [json.loads(report) for report in by_key(tables, sources, keys, rule)]
    batch_context.put_written(layout.history, HISTORY, reports, sources[_STORED], {})


def with_keys(rows: pa.Table, keys: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Numbers of the rows that have one of these keys."""
    mine, wanted = table_codes((rows, keys), table_schema.keys)
    return np.flatnonzero(np.isin(mine, wanted))


@dataclass(frozen=True)
class TableWriter:
    """See `TableWork`."""

    batch_context: BatchContext

    @property
    def commit_method(self) -> CommitMethod:
        return self.batch_context.tables.commit_method

    def ensure_tables(self) -> None:
        tables, layout, tier = self.batch_context.tables, self.batch_context.layout, self.batch_context.tier
        schema = self.batch_context.table_schema
        definitions = table_definition.definitions(schema, layout, tier)
        if any(not tables.exists(d.path) for d in definitions):
            tables.require_creatable(schema.spec, tier)
        for definition in definitions:
            retype_sequence(tables, definition.path, schema, definition.bounds)
            settle_deletes(tables, definition)
            ensure(tables, definition)
            settle_properties(tables, definition)
            settle_comments(tables, definition)
        tombstones = table_definition.tombstones(schema, layout.tombstones)
        if tables.exists(tombstones.path):  # whose keys and sequences are compared with those of the other tables
            ensure(tables, tombstones)
        for path in (*(d.path for d in definitions), tombstones.path, layout.errors):
            if tables.exists(path):
                keep_readable(tables, path)

    def sweepable(self) -> tuple[int, int]:
        context = self.batch_context
        rule = _CountVanishing(context.table_schema, context.plan.generation)
        replica = Source.of(self._replica, _as_they_are, sweep.needed(context.table_schema))
        found = [json.loads(report) for report in by_file(context.tables, {REPLICA: replica}, rule)]
        return sum(old for old, _ in found), sum(live for _, live in found)

    @property
    def _replica(self) -> TableSnapshot:
        return self.batch_context.tables.existing(self.batch_context.layout.replica)

    def sweep(self) -> MainCounts:
        return self._remove(SWEEP, partial(_Sweep, self.batch_context.table_schema, self.batch_context.plan.generation))

    def truncate(self) -> MainCounts:
        return self._remove(TRUNCATE, partial(_Truncate, self.batch_context.table_schema))

    def _remove(self, step: str, rule_of: Callable[[Output], _Sweep | _Truncate]) -> MainCounts:
        """Rows that are deleted, or written again marked deleted, by one commit of a step."""
        context, path = self.batch_context, self.batch_context.layout.replica
        if not context.has_made(path, step):
            rule = rule_of(output_of(context.tables, path, context.table_schema.keys, context.transaction))
            replica = Source.of(self._replica, _as_they_are)
            reports = [json.loads(report) for report in by_file(context.tables, {REPLICA: replica}, rule)]
            metric = "numUpdatedRows" if sweep.marks(context.table_schema) else "numDeletedRows"
            context.put_written(path, step, reports, replica, {metric: sum(r["count"] for r in reports)})
        return main_counts(context.metrics(path, step))

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        update_history(self.batch_context, None, generation_low_watermarks, swept)


@dataclass(frozen=True)
class _CountVanishing:
    """Live rows of older generations, and all live rows; sent to tasks."""

    schema: TableSchema
    generation: int

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:  # noqa: ARG002 - writes nothing
        return json.dumps(sweep.sweepable(rows[REPLICA], self.generation, self.schema)).encode()


@dataclass(frozen=True)
class _Sweep:
    """Deletes rows of older generations, or writes them again, marked deleted; sent to tasks."""

    schema: TableSchema
    generation: int
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        found = rows[REPLICA]
        old = found.filter(sweep.vanishing(found, self.generation, self.schema))
        report = self.output.report(storage, sweep.instead(old, self.schema), old, old)
        return json.dumps({**report, "count": old.num_rows}).encode()


@dataclass(frozen=True)
class _Truncate:
    """Deletes rows before a truncate, or writes them again, marked deleted by it; sent to tasks."""

    schema: TableSchema
    output: Output

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> bytes:
        found = truncated(rows[REPLICA], self.schema)
        report = self.output.report(storage, found.instead, found.rows, found.rows)
        return json.dumps({**report, "count": found.live}).encode()


def _as_they_are(rows: pa.Table) -> pa.Table:
    return rows


def violations(
    tables: Tables, path: str, columns: Sequence[str], reference: Reference | None, most: int
) -> Violations:  # fmt: skip
    """See `Engine.violations`."""
    child = tables.existing(path)
    mine = _columns_of(child, columns)
    parent = None if reference is None else tables.existing(reference.path)
    theirs = mine if parent is None or reference is None else _columns_of(parent, reference.columns)
    kinds = [_comparable_type(own, other) for own, other in zip(mine, theirs, strict=True)]
    rule = BrokenConstraint(columns=tuple(Column(c.name, kind) for c, kind in zip(mine, kinds, strict=True)), most=most)
    sources = {CHILD: _values(child, mine, rule)}
    if parent is not None:
        sources[PARENT] = _values(parent, theirs, rule)
    return violations_of(by_key(tables, sources, rule.schema, rule), most)


def _columns_of(snapshot: TableSnapshot, columns: Sequence[str]) -> list[Column]:
    """
    Raises:
        FatalError: `CONSTRAINT_NOT_CHECKED`.
    """
    spelled = {name.lower(): name for name in snapshot.schema.names}
    if lacking := [column for column in columns if column.lower() not in spelled]:
        where = "/".join(snapshot.path.rsplit("/", 2)[1:])
        raise not_checked(f"{where} has no column {lacking[0]!r}", "correct the name, or wait until files bring it")
    names = [spelled[column.lower()] for column in columns]
    return [Column(name, snapshot.schema.types[name]) for name in names]


def _comparable_type(own: Column, other: Column) -> SqlType:
    """
    Raises:
        FatalError: `CONSTRAINT_NOT_CHECKED`.
    """
    mine, theirs = own.type, other.type
    if is_complex(mine) or not (mine == theirs or widens(mine, theirs) or widens(theirs, mine)):
        what = f"values of {own.name} ({mine}) and {other.name} ({theirs}) don't compare"
        raise not_checked(what, "give both columns one type (options.types), or remove the constraint")
    return theirs if widens(mine, theirs) else mine


def _values(snapshot: TableSnapshot, columns: Sequence[Column], rule: BrokenConstraint) -> Source:
    names = tuple(column.name for column in columns)
    marks = (GDDL,) if marks_deletes(snapshot.schema.types.get(GDDL)) else ()
    return Source.of(snapshot, CheckedValues(columns=names, schema=rule.schema), (*names, *marks))


@dataclass(frozen=True, kw_only=True)
class FirstLoadReader:
    """Decodes and writes the files of a table's first batch."""

    context: TableContext
    plan: BatchPlan
    state: TableState
    tables: Tables
    place: Place

    def suits(self) -> bool:
        """Whether the batch is a first load that can be written so: new tables, of no features that others decide."""
        spec, layout, engine = self.context.spec, self.context.layout, self.context.engine
        if self.state.keys is not None or spec.shard is not None or self.plan.source != "files":
            return False
        if any(file.kind != "load" for file in self.plan.files):
            return False
        paths = (layout.changes, layout.replica, layout.history, layout.errors)
        is_begun = self.context.resumed and self._parts.are_begun()
        return is_begun or not any(map(engine.exists, paths))

    @property
    def _parts(self) -> PartsReader:
        return PartsReader(
            context=self.context, plan=self.plan, state=self.state, place=self.place, targets_of=self._targets
        )

    def _targets(self, schema: TableSchema) -> dict[str, Target]:
        layout, tier = self.context.layout, self.context.tier
        return {
            CHANGES: self.tables.target_of(table_definition.changes(schema, layout.changes, tier)),
            REPLICA: self.tables.target_of(table_definition.replica(schema, layout.replica, tier)),
            ERRORS: self.tables.target_of(table_definition.errors(layout.errors)),
        }

    def decode_files(self) -> tuple[FirstLoad | None, tuple[Unreadable, ...]] | None:
        """See `Engine.decode_files`; None: rows repeat, so that they have to be compared, and nothing is left of it."""
        parts, unreadable = self._parts.read()
        if parts is None:
            return None, unreadable
        schema = parts.batch.schema.table_schema
        if parts.batch.figures.may_repeat(schema):
            parts.discard()
            return None
        context = BatchContext(
            tables=self.tables, layout=self.context.layout, tier=self.context.tier, plan=self.plan,
            table_schema=schema, resumed=self.context.resumed,
        )  # fmt: skip
        work = TableWriter(context)
        load = FirstLoad(context=self.context, plan=self.plan, parts=parts, new_tables=self.tables, work=work)
        return load, unreadable


@dataclass(frozen=True, kw_only=True)
class FirstLoad:
    """See `BatchWork`, `AppendedWork` and `MergeWork`: the rows of a first load need no comparison.

    Attributes:
        work: the engine's steps on whole tables.
    """

    context: TableContext
    plan: BatchPlan
    parts: WrittenParts
    new_tables: Tables
    work: TableWork

    @property
    def decoded_batch(self) -> DecodedBatch:
        return self.parts.batch

    @property
    def tables(self) -> _NewTables:
        return _NewTables(self.work, load=self)

    @property
    def _schema(self) -> TableSchema:
        return self.decoded_batch.schema.table_schema

    @property
    def definitions(self) -> tuple[TableDefinition, ...]:
        return table_definition.definitions(self._schema, self.context.layout, self.context.tier)

    def quarantine(self, files: Sequence[Unreadable], again: Sequence[str]) -> None:  # noqa: ARG002 - no table before
        path, added = self.context.layout.errors, list(self.parts.files[ERRORS])
        if not files and not added:
            return
        definition = table_definition.errors(path)
        self.new_tables.create(definition)
        rows = quarantine.of_files(files, Stamp.of(self.plan))
        added += self.new_tables.target_of(definition).write(self.context.storage, rows, version_of(self.plan) // 1000)
        self._commit(path, QUARANTINE, added, self.decoded_batch.figures.quarantined + len(files))

    def discard(self) -> None:
        self.parts.discard()

    def append(self, overlap: Overlap) -> FirstLoad:  # noqa: ARG002 - no earlier batch had rows
        self._commit(self.context.layout.changes, APPEND, self.parts.files[CHANGES], self._good)
        return self

    @property
    def appended(self) -> Appended:
        return self.decoded_batch.figures.appended(self._good, self._good, batch=self.plan.number)

    @property
    def _good(self) -> int:
        return self.decoded_batch.figures.good

    def resolve_rows(self) -> None:
        """Nothing was in quarantine before."""

    def stale_rows(self) -> tuple[RunWarning, ...]:
        """No row was loaded before."""
        return ()

    def tombstones(self) -> FirstLoad:
        """A full load deletes nothing."""
        return self

    def merge(self) -> Applied:
        self._commit(self.context.layout.replica, MERGE, self.parts.files[REPLICA], self._good)
        if not self.context.spec.history:
            self.parts.forget()
        return Applied(main=MainCounts(inserted=self._good))

    def append_only(self) -> Applied:
        return self.merge()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        self.tables.history(generation_low_watermarks, swept=swept)

    def _commit(self, path: str, app: str, files: Sequence[Action], rows: int) -> None:
        self.new_tables.add_files(path, (app, version_of(self.plan)), files, {"numOutputRows": rows})


@dataclass(frozen=True)
class _NewTables(TablesOfAnother):
    """The engine's steps, for tables that are created in folders with data files."""

    load: FirstLoad

    def ensure_tables(self) -> None:
        for definition in self.load.definitions:
            self.load.new_tables.create(definition)
        super().ensure_tables()

    def history(self, generation_low_watermarks: tuple[str | None, ...], *, swept: int) -> None:
        super().history(generation_low_watermarks, swept=swept)
        self.load.parts.forget()
