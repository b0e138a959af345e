"""Whole tables from their changes: the swap of a rebuild or reload, a commit a table."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any
from uuid import uuid4

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.features import with_properties
from airflow_gddl.contract.layout import Layout, join
from airflow_gddl.contract.sql_types import StructType
from airflow_gddl.contract.table_spec import SHARD_COLUMN
from airflow_gddl.stores import Storage
from spark_jobs.plan.baseline import BASELINE
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.plan.types import NOTHING, merge
from spark_jobs.rules import quarantine
from spark_jobs.rules.arrays import DeltaSchema, by_name, fields_of, with_values
from spark_jobs.rules.fold import (
    are_changes,
    changes_in,
    held_by,
    lacking,
    newest_state,
    rebuilt_rows,
    restamped,
)
from spark_jobs.rules.history import versions
from spark_jobs.rules.order import (
    ARCHIVED,
    as_events,
    gddl_fields,
    identity_columns,
    that_count,
    with_gddl,
    with_identity,
)
from spark_jobs.rules.outcome import tombstones_of
from spark_jobs.rules.rewrite import Rewrite, rewritten
from spark_jobs.rules.shards import not_of_shard, of_shard
from spark_jobs.rules.stored_columns import change_columns, event_schema, key_schema
from spark_jobs.rules.sweep import appended, unmarked
from spark_jobs.rules.verify import (
    DIFFERENT,
    EXTRA,
    MISSING,
    differing_keys,
    expected_state,
)
from spark_jobs.tables import table_definition, whole_tables
from spark_jobs.tables.data_files import Target
from spark_jobs.tables.delta_log import HISTORY, MERGE, REWRITE, TOMBSTONES, version_of
from spark_jobs.tables.delta_tables import Tables, Write, Written
from spark_jobs.tables.errors_table import ErrorsTable
from spark_jobs.tables.file_rules import Output, Rewriting, deleted, output_of, without_type_changes, written
from spark_jobs.tables.places import stream_of, stream_rows
from spark_jobs.tables.stored_rows import replica_rows
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_definition import TableDefinition
from spark_jobs.tables.table_rows import PLACES, Source, by_key, by_row, changes_by_key, without_places


@dataclass(frozen=True)
class Swapped:
    """Rows of the new replica, and changes that the change table lacked."""

    rows: int
    changes_added: int


@dataclass(frozen=True, kw_only=True)
class Replaced:
    """A replica against the one before it.

    Attributes:
        rows_before, rows: without rows that are marked deleted; `rows_before` is None if it was not read.
        appear, vanish, change: keys; None: they were not compared.
    """

    rows: int
    rows_before: int | None = None
    appear: int | None = None
    vanish: int | None = None
    change: int | None = None


_COMPARED = 5_000_000
"""Rows of the replica up to which keys are compared in the memory of the job."""


@dataclass(frozen=True, kw_only=True)
class SwapRequest:
    """What a rebuild or a reload swaps in: its tables get the state that their changes lead to.

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


def compared(work: Swap, columns: Sequence[str]) -> Replaced:
    """See `Swap.compared`: by hashes of all rows in this process, and keys up to `_COMPARED` rows."""
    path, keys = work.live.layout.replica, len(work.request.table_schema.keys)
    before = sum(1 for _ in replica_rows(work.tables, path, columns[:1]))
    if before > _COMPARED:
        return Replaced(rows=sum(1 for _ in work.rows(columns[:1])), rows_before=before)
    old, new = _hashed(replica_rows(work.tables, path, columns), keys), _hashed(work.rows(columns), keys)
    return Replaced(
        rows=len(new), rows_before=before, appear=len(new.keys() - old.keys()),
        vanish=len(old.keys() - new.keys()), change=sum(old[k] != new[k] for k in old.keys() & new.keys()),
    )  # fmt: skip


def _hashed(rows: Iterable[Sequence[Any]], keys: int) -> dict[tuple[Any, ...], bytes]:
    return {tuple(row[:keys]): hashlib.blake2b(repr(row[keys:]).encode(), digest_size=8).digest() for row in rows}


def keeps_changes(request: SwapRequest, stored: Sequence[Column]) -> bool:
    """Whether a change table with these columns, `_gddl` included, can also hold the rebuilt changes."""
    if request.resequenced or request.reselected:
        return False
    kept = {column.name.lower(): column.type for column in stored}
    for column in change_columns(request.table_schema):
        kind = kept.get(column.name.lower())
        if kind is None:
            continue
        if column.name == GDDL and isinstance(kind, StructType) and isinstance(column.type, StructType):
            if kind.field("sequence") != column.type.field("sequence"):
                return False
        elif merge(column.type, kind, NOTHING) is None:
            return False
    return True


FRESH, STORED, BEFORE = "fresh", "stored", "before"
"""Names of tables for rules: changes read again, live changes, and rows that a commit replaces."""
_CHANGES = "refresh:changes"
"""The step that replaces or mends the change table."""
OWN = "own"
"""In reports: rows that follow from the changes, not those of other shards."""


@dataclass(frozen=True, kw_only=True)
class _Changes:
    """What becomes of stored and newly read changes; sent to tasks.

    Attributes:
        read, archives: see `SwapRequest`.
    """

    schema: TableSchema
    batch_id: str
    planned_at: str
    read: Mapping[str, int]
    archives: Rewrite | None
    swept: int

    @property
    def kind(self) -> pa.Schema:
        return event_schema(self.schema)

    def fresh(self, rows: pa.Table) -> pa.Table:
        """Changes of the shadow table, stamped with this batch."""
        return with_identity(restamped(by_name(rows, self.kind), self.batch_id, self.planned_at), self.schema)

    def stored(self, rows: pa.Table) -> pa.Table:
        """Live changes except those that this rebuild has added, with their places."""
        mine = pc.equal(pc.struct_field(rows.column(GDDL), "batch_id"), self.batch_id)
        rows = rows.filter(pc.invert(pc.fill_null(mine, False)))
        changes = by_name(rows, self.kind) if self.archives is None else rewritten(without_places(rows), self.archives)
        changes = with_identity(changes, self.schema)
        return changes if self.archives else pa.table({**_columns(changes), **_columns(rows.select(PLACES))})

    def before(self, rows: pa.Table) -> pa.Table:
        """Rows of the change table that is replaced."""
        return with_identity(by_name(rows, self.kind), self.schema)

    @property
    def keys(self) -> pa.Schema:
        """Columns by which changes are compared."""
        kinds = with_identity(self.kind.empty_table(), self.schema).schema
        return fields_of(kinds, identity_columns(self.schema))

    def by_moves(self, rows: pa.Table) -> pa.Table:
        """See `order.for_both_keys`; of a shard, its own changes."""
        return changes_by_key(rows, self.schema, self.schema.spec.shard)

    def newly_archived(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        """Live changes that no file holds."""
        stored, fresh = (by_name(rows[name], self.kind) for name in (STORED, FRESH))
        return lacking(that_count(stored), fresh, self.schema)

    def difference(self, stored: pa.Table, fresh: pa.Table) -> tuple[pa.Array, pa.Table]:
        """Which stored changes their files, of those that are read, don't hold any more; and what the files hold beside
        the others."""
        stale = changes_in(lacking(stored.filter(held_by(stored, self.read)), fresh, self.schema))
        withdrawn = are_changes(stored, stale) if stale else pa.array(np.zeros(stored.num_rows, bool))
        return withdrawn, lacking(fresh, stored.filter(pc.invert(withdrawn)), self.schema)


@dataclass(frozen=True)
class _LiveRows:
    """Columns of the live rows of the replica that the swap would make; writes them to a folder."""

    changes: _Changes
    columns: tuple[str, ...]
    folder: str

    def fresh(self, rows: pa.Table) -> pa.Table:
        return self.changes.by_moves(self.changes.fresh(rows))

    def stored(self, rows: pa.Table) -> pa.Table:
        changes = by_name(self.changes.stored(rows), self.changes.kind)
        return self.changes.by_moves(changes.filter(pc.invert(held_by(changes, self.changes.read))))

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> str:
        path = join(self.folder, f"{uuid4()}.arrow")
        storage.write(path, stream_of(self.expected(rows)))
        return path

    def expected(self, rows: Mapping[str, pa.Table]) -> pa.Table:
        schema = self.changes.schema
        parts = [by_name(rows[n], rows[FRESH].schema) for n in (FRESH, STORED) if n in rows]
        source = pa.concat_tables(parts)
        happened = as_events(source, schema) if schema.keys else that_count(source)
        return expected_state(happened, schema, self.changes.swept).select(self.columns)


@dataclass(frozen=True)
class _Compare:
    """The rows of the replica that the swap would make against those of the live one, if these are there."""

    built: _LiveRows

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> list[int]:  # noqa: ARG002 - writes nothing
        built, columns = self.built.expected(rows), self.built.columns
        live = unmarked(rows[BEFORE]).select(columns) if BEFORE in rows else built.slice(0, 0)
        for name in columns:  # of a column that has another type now
            if live.schema.field(name).type != built.schema.field(name).type:
                live, built = _with_texts(live, name), _with_texts(built, name)
        keys = self.built.changes.schema.keys
        states = differing_keys(live, built, columns, keys)[1] if BEFORE in rows and keys else np.zeros(0, str)
        counts = [int(np.count_nonzero(states == state)) for state in (MISSING, EXTRA, DIFFERENT)]
        return [built.num_rows, live.num_rows, *counts]


@dataclass(frozen=True)
class _Derive:
    """Tables that follow from the changes; sent to tasks. Of a shard, with the rows that other shards have in them.

    Attributes:
        outputs: by the step that commits them.
        floors: what was ingested before each generation.
    """

    changes: _Changes
    outputs: Mapping[str, Output]
    floors: tuple[GenerationFloor, ...]

    def __call__(self, storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, dict[str, Any]]:
        schema, swept = self.changes.schema, self.changes.swept
        happened = as_events(rows[STORED], schema) if schema.keys else rows[STORED]
        rules: dict[str, Callable[[], pa.Table]] = {
            TOMBSTONES: lambda: tombstones_of(newest_state(happened, schema, swept), schema),
            MERGE: lambda: self._replica(happened),
            HISTORY: lambda: versions(happened, schema, self.floors, swept),
        }
        reports = {}
        for step, output in self.outputs.items():
            kind, before = output.target.schema, rows.get(f"{BEFORE} {step}")
            made = derived = rules[step]() if schema.keys or step == MERGE else kind.empty_table()
            if schema.spec.shard is not None and before is not None:
                others = not_of_shard(by_name(before, kind), schema.spec.shard)
                made = pa.concat_tables([by_name(derived, kind), others])
            reports[step] = {**output.report(storage, made, before), OWN: derived.num_rows}
        return reports

    def _replica(self, happened: pa.Table) -> pa.Table:
        schema, swept = self.changes.schema, self.changes.swept
        if schema.keys:
            return rebuilt_rows(happened, schema, swept)
        return appended(happened, replace(schema, swept=max(swept, 1)))


def _with_texts(rows: pa.Table, name: str) -> pa.Table:
    """Rows with a column's values as text."""
    values = [None if value is None else str(value) for value in rows.column(name).to_pylist()]
    return with_values(rows, {name: pa.array(values, pa.string())})


def _columns(rows: pa.Table) -> dict[str, pa.ChunkedArray]:
    return dict(zip(rows.column_names, rows.columns, strict=True))


@dataclass(frozen=True, kw_only=True)
class _Replacing:
    """The replacement of a table's rows and schema in one commit; columns keep the table's order and comments."""

    tables: Tables
    definition: TableDefinition
    schema: DeltaSchema
    now: int

    @classmethod
    def of(cls, tables: Tables, definition: TableDefinition, now: int) -> _Replacing:
        """Creates the table, or prepares an existing one for new rows, columns and partitions."""
        tables.create(definition)
        whole_tables.settle_properties(tables, definition)
        tables.prepare_replacement(definition)
        stored = tables.existing(definition.path).schema
        columns = table_definition.in_stored_order(definition, stored.names)
        known = {c.name: stored.metadata[c.name] for c in columns if c.name in stored.metadata}
        metadata = {name: without_type_changes(one) for name, one in known.items()}
        return cls(tables=tables, definition=definition, schema=DeltaSchema(columns, metadata), now=now)

    def output(self, keys: Sequence[str]) -> Output:
        snapshot = self.tables.existing(self.definition.path)
        indexed = self.tables.indexed_with(self.definition.path, self.schema.columns, self.definition.skipping)
        target = Target(
            path=self.definition.path, schema=self.schema.arrow, partition_by=self.definition.partition_by,
            cluster_by=snapshot.cluster_by, indexed=indexed, packed=snapshot.writes_vectors,
        )  # fmt: skip
        feed = tuple(keys) if snapshot.feeds_changes else None
        return Output(target=self.tables.placed(target), now=self.now, keys=feed)

    def commit(self, app: str, version: int, written_files: Written, metrics: Mapping[str, int]) -> None:
        """Once for each transaction."""
        write = Write(
            app=app, version=version, removed=None, schema=self.schema, partition_by=self.definition.partition_by,
            metrics=metrics, written=written_files, keeps_rows=False,
        )  # fmt: skip
        self.tables.commit(self.definition.path, write)
        self.tables.index(self.definition)


def rewrite_changes(tables: Tables, context: TableContext, plan: BatchPlan, how: Rewrite) -> None:
    """See `Engine.rewrite_changes`."""
    definition = table_definition.changes(how.schema, context.layout.changes, context.tier)
    if tables.last_transaction(definition.path, REWRITE) >= version_of(plan):
        return
    replacing = _Replacing.of(tables, definition, version_of(plan) // 1000)
    rule = Rewriting(partial(rewritten, how=how), replacing.output(how.schema.keys))
    written_files, rows = written(by_row(tables, Source.of(tables.existing(definition.path), without_places), rule))
    replacing.commit(REWRITE, version_of(plan), written_files, {"numOutputRows": rows})


@dataclass(frozen=True)
class Swap:
    """The swap of a rebuild or a reload, one Delta commit a table; see `SwapRequest` for its input."""

    live: TableContext
    tables: Tables
    request: SwapRequest

    @property
    def table_schema(self) -> TableSchema:
        return self.request.table_schema

    @property
    def _now(self) -> int:
        return version_of(self.request.plan) // 1000

    @cached_property
    def _rules(self) -> _Changes:
        request, plan = self.request, self.request.plan
        return _Changes(
            schema=request.table_schema, batch_id=plan.batch_id, planned_at=plan.planned_at, read=request.read,
            archives=request.archives, swept=request.swept,
        )  # fmt: skip

    def carry_out(self, report: Callable[[str], None]) -> Swapped:
        """Run the swap; `report` gets each durable step. Idempotent."""
        spec = with_properties(self.table_schema.spec)
        self.tables.require_creatable(spec, self.live.tier)
        added = self.changes()
        report("append")
        source = self.source()
        self._replace(source, TOMBSTONES)
        report("tombstones")
        rows = self.replica(source)
        report("replica")
        self._replace(source, HISTORY)
        report("history")
        self.errors()
        report("quarantine")
        return Swapped(rows=rows, changes_added=added)

    def _fresh(self) -> Source:
        """Changes of the shadow table; none without one."""
        shadow = self.request.shadow
        if shadow is None:
            return Source(table="", files=(), schema=self._rules.kind, prepare=self._rules.fresh)
        return Source.of(self.tables.existing(shadow.changes), self._rules.fresh)

    def _stored(self) -> Source | None:
        """Live changes; None: there is no change table."""
        snapshot = self.tables.snapshot(self.live.layout.changes)
        return None if snapshot is None else Source.of(snapshot, self._rules.stored)

    def _compatible(self) -> bool:
        snapshot = self.tables.snapshot(self.live.layout.changes)
        return snapshot is None or keeps_changes(self.request, snapshot.schema.columns)

    @property
    def _keys(self) -> pa.Schema:
        """The key's columns, by which events belong together."""
        return key_schema(self.table_schema)

    def rows(self, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """As `StoredRows.live_rows`, of the replica that the swap would make; nothing is written."""
        rule, storage = self._live_rows(columns), self.tables.storage
        paths = by_key(self.tables, self._sources_of(rule), self._keys, rule)
        try:
            for path in paths:
                part = stream_rows(storage.read(path))
                yield from zip(*(part.column(name).to_pylist() for name in columns), strict=True)
        finally:
            storage.delete(*paths)

    def _live_rows(self, columns: Sequence[str]) -> _LiveRows:
        return _LiveRows(self._rules, tuple(columns), join(self.live.layout.state, "rows", str(uuid4())))

    def _sources_of(self, rule: _LiveRows) -> dict[str, Source]:
        sources = {FRESH: replace(self._fresh(), prepare=rule.fresh)}
        if not self.request.archives and self._compatible() and (stored := self._stored()):
            sources[STORED] = replace(stored, prepare=rule.stored)
        return sources

    def compared(self, columns: Sequence[str] | None) -> Replaced:
        """The replica that the swap would make against the live one; nothing is written.

        Args:
            columns: to compare, those of the key among them; None: the tables share no key, and the new rows are
                counted alone.
        """
        rule = self._live_rows(self.table_schema.columns[:1] if columns is None else columns)
        sources, keys = self._sources_of(rule), self._keys
        if columns is not None:
            replica = self.tables.existing(self.live.layout.replica)
            if any(replica.schema.arrow.field(key.name).type != key.type for key in keys):
                return compared(self, columns)
            sources[BEFORE] = Source.of(replica, without_places, [*columns, GDDL])
        reports = by_key(self.tables, sources, keys, _Compare(rule))
        rows, before, appear, vanish, change = (sum(column) for column in zip(*reports, strict=True))
        if columns is None:
            return Replaced(rows=rows)
        if not keys.names:
            return Replaced(rows=rows, rows_before=before)
        return Replaced(rows=rows, rows_before=before, appear=appear, vanish=vanish, change=change)

    def archived(self) -> int:
        """Number of changes that the swap would archive."""
        stored, changes = self._stored(), self._rules
        if stored is None or self.request.archives is None:
            return 0
        sources = {FRESH: self._fresh(), STORED: stored}
        return sum(by_key(self.tables, sources, changes.keys, lambda _, rows: changes.newly_archived(rows).num_rows))

    def drops_changes(self) -> bool:
        """Whether the swap would drop changes of removed files, since types or order are incompatible."""
        stored = None if self.request.archives or self._compatible() else self._stored()
        if stored is None:
            return False
        read = pa.array(self.request.read, pa.string())

        def are_unread(_: Storage, rows: pa.Table) -> bool:
            files = pc.struct_field(rows.column(GDDL), "source_file")
            return pc.all(pc.is_in(files, value_set=read)).as_py() is False

        return any(by_row(self.tables, stored, are_unread))

    def changes(self) -> int:
        """Add missing changes to the change table and remove those that its files no longer hold.

        If types are incompatible, replace it.
        """
        if self.request.shadow is None:
            return 0
        version, path = version_of(self.request.plan), self.live.layout.changes
        definition = table_definition.changes(self.table_schema, path, self.live.tier)
        replaces = self.request.archives is not None or not self._compatible()
        if not replaces:
            whole_tables.ensure(self.tables, definition)
        if self.tables.last_transaction(path, _CHANGES) < version:
            (self._replace_changes if replaces else self._mend_changes)(definition, version)
        return self.tables.metrics(path, _CHANGES, version).get("numTargetRowsInserted", 0)

    def _mend_changes(self, definition: TableDefinition, version: int) -> None:
        """Changes of another generation than their file's stay: what the file held then is part of the history."""
        path, changes = definition.path, self._rules
        output = output_of(self.tables, path, self.table_schema.keys, version)

        def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
            fresh, stored = (by_name(rows[name], changes.kind) for name in (FRESH, STORED))
            removed, added = changes.difference(stored, fresh)
            return output.report(storage, added, stored.filter(removed), rows[STORED].filter(removed))

        stored = Source.of(self.tables.existing(path), changes.stored)
        reports = by_key(self.tables, {FRESH: self._fresh(), STORED: stored}, changes.keys, rule)
        written_files, rows = written(reports)
        metrics = {"numOutputRows": rows, "numTargetRowsInserted": rows}
        write = Write(
            app=_CHANGES, version=version, written=written_files, deleted=deleted(reports, stored), metrics=metrics
        )
        self.tables.commit(path, write)

    def _replace_changes(self, definition: TableDefinition, version: int) -> None:
        """By the newly read changes, and archived ones: those of earlier reloads, and new ones."""
        replacing, changes = _Replacing.of(self.tables, definition, self._now), self._rules
        output = replacing.output(self.table_schema.keys)

        def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> tuple[dict[str, Any], int]:
            fresh = by_name(rows[FRESH], changes.kind)
            parts = [fresh]
            if changes.archives is not None:
                stored, new = by_name(rows[STORED], changes.kind), changes.newly_archived(rows)
                before = stored.filter(pc.equal(gddl_fields(stored)["generation"], ARCHIVED))
                parts += [before, with_gddl(new, generation=pa.repeat(pa.scalar(ARCHIVED, pa.int32()), new.num_rows))]
            return output.report(storage, pa.concat_tables(parts), rows.get(BEFORE)), fresh.num_rows

        stored, sources = self._stored(), {FRESH: self._fresh()}
        if self.request.archives and stored is not None:
            sources[STORED] = stored
        if output.keys is not None:
            sources[BEFORE] = Source.of(self.tables.existing(definition.path), changes.before)
        made = by_key(self.tables, sources, changes.keys, rule)
        written_files, rows = written([report for report, _ in made])
        metrics = {"numOutputRows": rows, "numTargetRowsInserted": sum(fresh for _, fresh in made)}
        replacing.commit(_CHANGES, version, written_files, metrics)

    def source(self) -> dict[str, Callable[[], None]]:
        """Write the tables that follow from the changes; their commits, but those of an earlier run, by step."""
        version, tables = version_of(self.request.plan), self.tables
        remaining = {s: d for s, d in self._definitions().items() if tables.last_transaction(d.path, _app(s)) < version}
        if not remaining:
            return {}
        replacing = {step: _Replacing.of(tables, definition, self._now) for step, definition in remaining.items()}
        outputs = {step: one.output(self.table_schema.keys) for step, one in replacing.items()}
        rule = _Derive(self._rules, outputs, self.request.floors)
        sources = {STORED: Source.of(tables.existing(self.live.layout.changes), self._rules.by_moves)}
        for step, output in outputs.items():
            if output.keys is not None or self.table_schema.spec.shard is not None:
                sources[f"{BEFORE} {step}"] = Source.of(tables.existing(remaining[step].path), without_places)
        if self.table_schema.keys or len(sources) > 1:
            reports = by_key(tables, sources, self._keys, rule)
        else:
            reports = by_row(tables, sources[STORED], lambda storage, rows: rule(storage, {STORED: rows}))
        commits: dict[str, Callable[[], None]] = {}
        for step, one in replacing.items():
            files, rows = written([report[step] for report in reports])
            own = sum(report[step][OWN] for report in reports)
            metrics = {"numOutputRows": rows, "numTargetRowsInserted": own}
            commits[step] = partial(one.commit, _app(step), version, files, metrics)
        return commits

    def _definitions(self) -> dict[str, TableDefinition]:
        """Tables that follow from the changes, by the step that replaces them.

        Those that the row no longer asks for are among them, since masks hold in each table: without keys, empty.
        """
        schema, layout, tier = self.table_schema, self.live.layout, self.live.tier
        by_step = {MERGE: table_definition.replica(schema, layout.replica, tier)}
        if schema.keys or self.tables.exists(layout.tombstones):
            by_step[TOMBSTONES] = table_definition.tombstones(schema, layout.tombstones)
        if (schema.keys and schema.spec.history) or self.tables.exists(layout.history):
            by_step[HISTORY] = table_definition.history(schema, layout.history, tier)
        return by_step

    def replica(self, source: Mapping[str, Callable[[], None]]) -> int:
        self._replace(source, MERGE)
        path, version = self.live.layout.replica, version_of(self.request.plan)
        if self.tables.properties(path).get(BASELINE):
            self.tables.set_properties(path, {BASELINE: ""})
        rows = self.tables.metrics(path, _app(MERGE), version).get("numTargetRowsInserted")
        return _rows_in(self.tables, path, self.table_schema.spec.shard) if rows is None else rows

    def _replace(self, source: Mapping[str, Callable[[], None]], step: str) -> None:
        if step in source:
            source[step]()

    def errors(self) -> None:
        """Replace the quarantined rows of the files by the current ones."""
        errors, plan = ErrorsTable(self.tables, self.live.layout.errors), self.request.plan
        shadow = None if self.request.shadow is None else self.request.shadow.errors
        fresh = self.tables.read(shadow).to_pylist() if shadow and self.tables.exists(shadow) else []
        if self.request.landed or self.request.archives:
            files = pa.array(self.request.landed, pa.string())

            def stale(rows: pa.Table) -> pa.Array:
                others = pc.not_equal(rows.column("batch_id"), plan.batch_id)
                replaced = pc.is_in(rows.column("source_file"), value_set=files)
                return others if self.request.archives else pc.and_(replaced, others)

            errors.resolve(stale, plan.planned_at, ("refresh:resolve", version_of(plan)))
        if self.request.reselected:
            errors.forget_records(plan.batch_id)
        if fresh:
            rows = [{**r, "batch_id": plan.batch_id, "id": f"{plan.batch_id}/{r['id']}"} for r in fresh]
            stamped = pa.Table.from_pylist(rows, schema=quarantine.SCHEMA)
            errors.append(stamped, "refresh:quarantine", version_of(plan))


def _app(step: str) -> str:
    return f"refresh:{step}"


def _rows_in(tables: Tables, path: str, shard: str | None) -> int:
    """By reading the table: the log no longer has the commit."""
    snapshot, columns = tables.existing(path), [GDDL] if shard is None else [SHARD_COLUMN]
    return sum(of_shard(tables.read_files(snapshot, [file], columns), shard).num_rows for file in snapshot.files)
