"""The context of a batch, and its steps on whole tables: created, evolved, swept, checked; and the history of keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.features import with_properties
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import CommitMethod, MainCounts, Warnings
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import SqlType, StructField, StructType, parse_type
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import BatchPlan, GenerationFloor
from spark_jobs.plan.table_schema import GDDL, Column, TableSchema
from spark_jobs.plan.types import are_of_one_kind, grown
from spark_jobs.rules import sweep, truncates
from spark_jobs.rules.arrays import DeltaSchema, by_name, rows_where, table_codes, with_values
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.history import differences, retyped_bounds, versions
from spark_jobs.rules.order import as_events, events, is_of_batch
from spark_jobs.rules.outcome import ACTION, AT, folded_again
from spark_jobs.rules.shards import of_shard
from spark_jobs.rules.stale_rows import stale_keys, stale_warning
from spark_jobs.rules.stored_columns import change_schema, key_schema
from spark_jobs.rules.sweep import undeleted, unmarked
from spark_jobs.rules.truncates import Truncated, after_truncates, truncated
from spark_jobs.rules.verify import LiveKeys, SharedKeys, SharedKeysRule
from spark_jobs.tables import table_definition
from spark_jobs.tables.data_files import has_column
from spark_jobs.tables.delta_log import (
    FOLD_AGAIN,
    HISTORY,
    MERGE,
    SWEEP,
    TRUNCATE,
    main_counts,
    merge_metrics,
    version_of,
)
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot, Write, Written
from spark_jobs.tables.file_parts import REPLICA
from spark_jobs.tables.file_rules import Output, deleted, output_of, rewrite, written
from spark_jobs.tables.small_files import join_in_passing, place_new_rows
from spark_jobs.tables.snapshots import missing_features
from spark_jobs.tables.table_context import TableContext
from spark_jobs.tables.table_definition import TableDefinition, marks_deletes, new_comments
from spark_jobs.tables.table_rows import (
    FindRows,
    KeyMatches,
    Source,
    by_file,
    by_key,
    changes_by_key,
    find,
    matches_of,
    rows_leave,
    search,
)


@dataclass(frozen=True, kw_only=True)
class BatchContext:
    """Context of all steps of one batch of one table."""

    tables: Tables
    layout: Layout
    tier: TierSpec
    plan: BatchPlan
    table_schema: TableSchema
    resumed: bool = True

    @classmethod
    def of(cls, context: TableContext, tables: Tables, plan: BatchPlan, table_schema: TableSchema) -> BatchContext:
        return cls(
            tables=tables, layout=context.layout, tier=context.tier, plan=plan, table_schema=table_schema,
            resumed=context.resumed,
        )  # fmt: skip

    @property
    def transaction(self) -> int:
        """The transaction version of the batch's steps."""
        return version_of(self.plan)

    @property
    def changes(self) -> TableSnapshot:
        return self.tables.existing(self.layout.changes)

    @property
    def replica(self) -> TableSnapshot:
        return self.tables.existing(self.layout.replica)

    def output(self, path: str) -> Output:
        """Where rows of a step go that a table gets as it is."""
        return output_of(self.tables, path, self.table_schema.keys, self.transaction)

    def has_made(self, path: str, app: str) -> bool:
        """Whether a step of this batch is in the table; not checked for a batch that is new in this run."""
        return self.resumed and self.tables.last_transaction(path, app) >= self.transaction

    def metrics(self, path: str, app: str) -> dict[str, int]:
        """Metrics of the commit of a step of this batch; empty where there is none."""
        return self.tables.metrics(path, app, self.transaction)

    def commit(
        self, path: str, app: str, metrics: Mapping[str, int], added: list[pa.Table], removed: Sequence[DataFile] = ()
    ) -> None:
        """Commit a step of this batch, once; see `Write`."""
        self.tables.commit(path, replace(self._write(app, metrics, added), removed=removed))

    def _write(self, app: str, metrics: Mapping[str, int], added: list[pa.Table]) -> Write:
        return Write(
            app=app, version=self.transaction, added=added, metrics=metrics, once=self.resumed,
            keys=self.table_schema.keys,
        )  # fmt: skip

    def put(
        self, snapshot: TableSnapshot, app: str, metrics: Mapping[str, int], matches: KeyMatches, outcome: pa.Table
    ) -> None:
        """Commit an outcome of a table's rows: they are deleted from their files, and new ones written.

        Args:
            outcome: the table's columns, with `ACTION` and `AT`: see `outcome.decide`.
        """
        schema = snapshot.whole_rows
        if matches.whole is None:
            rows, touched = (
                matches.written(outcome, schema),
                matches.touched(outcome) if snapshot.feeds_changes else None,
            )
            write = replace(self._write(app, metrics, [rows]), deleted=matches.deleted(outcome), deleted_rows=touched)
            self.tables.commit(snapshot.path, write)
            return
        added, removed = matches.rewritten(outcome, schema)
        fresh = by_name(rows_where(outcome, np.asarray(pc.equal(outcome.column(ACTION), "insert"))), schema)
        place_new_rows(self.tables, snapshot, fresh, added, removed)
        self.commit(snapshot.path, app, metrics, added, removed)

    def put_files(self, path: str, app: str, written_files: Written, metrics: Mapping[str, int]) -> None:
        """Commit data files of new rows."""
        self.tables.commit(path, replace(self._write(app, metrics, []), written=written_files))

    def put_written(
        self, path: str, app: str, reports: Sequence[Mapping[str, Any]], source: Source, metrics: Mapping[str, int]
    ) -> None:
        """Commit what a rule has written and deleted.

        Args:
            reports: see `Output.report`.
            source: the table's rows, as the rule got them.
        """
        written_files, _ = written(reports)
        write = replace(self._write(app, metrics, []), written=written_files, deleted=deleted(reports, source))
        self.tables.commit(path, write)

    def to_search(self, path: str) -> TableSnapshot:
        """A table in which a batch looks for rows; if each batch adds a file to it, small ones are compacted before."""
        snapshot = self.tables.existing(path)
        if not rows_leave(self.tables, snapshot):
            return snapshot
        self.join_small_files(path)
        return self.tables.existing(path)

    def join_small_files(self, path: str) -> None:
        """Between batches: see `small_files.join_in_passing`."""
        if not self.resumed:
            join_in_passing(self.tables, path)


def keep_readable(tables: Tables, path: str) -> None:
    """Drop columns from the indexed ones whose bounds some reader can't read.

    Spark may have written such bounds, and may again. Readers ignore what the log has of columns that the property
    doesn't name, so no file's statistics change.
    """
    named = tables.properties(path).get(table_definition.COLUMNS)
    if named is None:
        return
    value = table_definition.readable(named, tables.existing(path).schema.columns)
    if table_definition.names_of(value) != table_definition.names_of(named):
        tables.set_properties(path, {table_definition.COLUMNS: value})


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
    remaining = tables.grow(definition.path, changed) if changed else {}
    if remaining:
        schema = tables.existing(definition.path).schema
        rule = partial(with_texts, stored=stored, wanted=remaining)
        rewrite(tables, definition.path, schema.retyped(remaining), rule)


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
    rewrite(tables, path, schema, partial(_resequenced, schema=schema, bounds=bounds))


def _resequenced(rows: pa.Table, schema: DeltaSchema, bounds: tuple[str, ...]) -> pa.Table:
    """Rows whose sequence and bounds have the types of a schema."""
    kind = schema.arrow.field(GDDL).type
    gddl = rows.column(GDDL).combine_chunks()
    parts = [pa.nulls(rows.num_rows, kind.field(0).type), *gddl.flatten()[1:]]
    emptied = pa.StructArray.from_arrays(parts, fields=list(kind), mask=gddl.is_null())
    values = {name: retyped_bounds(rows.column(name), schema.types[name]) for name in bounds}
    return with_values(rows, {**values, GDDL: emptied})


def retype_without_rows(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> bool:
    """Do what `retype_sequence` does where no row has to be written for it; returns whether nothing is left to do.

    That is so where no file has the field, since `data_files` leaves it out, and the type needs no table feature.
    """
    snapshot = tables.existing(path)
    wanted = _wanted(snapshot, table_schema)
    if wanted == snapshot.schema.types[GDDL]:
        return True
    if not tables.arranges_files or missing_features(snapshot.log, [Column(GDDL, wanted)]):
        return False
    if bounds or any(has_column(tables.storage, path, file, f"{GDDL}.sequence") for file in snapshot.files):
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
    if comments or definition.description not in ("", table.log.description):
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
    snapshot, table_schema = batch_context.changes, batch_context.table_schema
    work = FindRows(
        table=snapshot.path, keys=keys.select(table_schema.keys), schema=snapshot.schema.arrow,
        moved=table_schema if table_schema.before_of_key else None,
    )  # fmt: skip
    return by_name(search(batch_context.tables, work, snapshot.files).rows, change_schema(table_schema))


def stale_rows(batch_context: BatchContext, suspects: pa.Table | None) -> Warnings:
    """See `BatchWork.stale_rows`.

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
    batch_context: BatchContext, touched: pa.Table | None, floors: Sequence[GenerationFloor], swept: int
) -> None:
    """Make the history of `touched` keys (None: of all) equal to the versions derived from their changes.

    Args:
        swept: rows of generations before this one have vanished.
    """
    path, table_schema = batch_context.layout.history, batch_context.table_schema
    if batch_context.has_made(path, HISTORY):
        return
    if touched is None:
        _update_all(batch_context, floors, swept)
        return
    snapshot = batch_context.to_search(path)
    happened = events(changes_of_keys(batch_context, touched), table_schema)
    happened = happened.take(pa.array(with_keys(happened, touched, table_schema)))
    derived = versions(happened, table_schema, floors, swept)
    matches = find(batch_context.tables, snapshot, touched, table_schema.keys)
    mine = with_keys(matches.rows, touched, table_schema)
    stored = matches.rows.take(pa.array(mine))
    missing, extra = differences(derived, stored, table_schema)
    removed = mine[extra]
    deleted = pa.table({ACTION: pa.repeat("delete", len(removed)), AT: pa.array(removed, pa.int64())})
    fresh = by_name(missing, snapshot.whole_rows).append_column(ACTION, pa.repeat("insert", missing.num_rows))
    outcome = pa.concat_tables([fresh, deleted], promote_options="default")
    batch_context.put(snapshot, HISTORY, {}, matches, outcome)


def _update_all(batch_context: BatchContext, floors: Sequence[GenerationFloor], swept: int) -> None:
    """Update the history of all keys; of a table with several sources, of those of the batch's."""
    tables, layout, schema = batch_context.tables, batch_context.layout, batch_context.table_schema
    output = batch_context.output(layout.history)

    def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
        derived = versions(as_events(rows[_CHANGES], schema), schema, floors, swept)
        missing, extra = differences(derived, rows[_STORED], schema)
        removed = rows[_STORED].take(pa.array(extra))
        return output.report(storage, missing, removed, removed)

    shard = schema.spec.shard
    sources = {
        _CHANGES: Source.of(batch_context.changes, partial(changes_by_key, schema=schema, shard=shard)),
        _STORED: Source.of(tables.existing(layout.history), partial(of_shard, shard=shard), to_write=True),
    }
    reports = by_key(tables, sources, key_schema(schema), rule)
    batch_context.put_written(layout.history, HISTORY, reports, sources[_STORED], {})


def with_keys(rows: pa.Table, keys: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Numbers of the rows that have one of these keys."""
    mine, wanted = table_codes((rows, keys), table_schema.keys)
    return np.flatnonzero(np.isin(mine, wanted))


@dataclass(frozen=True)
class TableWriter:
    """Steps on whole tables, which need none of the batch's rows."""

    batch_context: BatchContext

    @property
    def commit_method(self) -> CommitMethod:
        """How the batch's tables are committed."""
        return self.batch_context.tables.commit_method

    def ensure_tables(self) -> None:
        """Create, evolve or reconcile change table, replica and history with the metadata."""
        tables, layout, tier = self.batch_context.tables, self.batch_context.layout, self.batch_context.tier
        schema = self.batch_context.table_schema
        definitions = table_definition.definitions(schema, layout, tier)
        if any(not tables.exists(d.path) for d in definitions):
            tables.require_creatable(with_properties(schema.spec), tier)
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
        """Number of live rows of older generations, and of all live rows of the replica."""
        context, schema = self.batch_context, self.batch_context.table_schema
        replica = Source.of(context.replica, columns=sweep.needed(schema))
        live: Counter[int] = Counter()
        for counts in by_file(
            context.tables, replica, lambda _, rows: [*sweep.live_by_generation(rows, schema).items()]
        ):
            live.update(dict(counts))
        return sweep.sweepable(live, context.plan.generation, schema)

    def sweep(self) -> MainCounts:
        """Remove rows of older generations, or mark them deleted."""
        return self._remove(SWEEP, partial(_swept, generation=self.batch_context.plan.generation))

    def truncate(self) -> MainCounts:
        """Remove rows before truncates, or mark them deleted."""
        return self._remove(TRUNCATE, truncated)

    def fold_again(self) -> int:
        """Take from rows after late truncates the columns from before these, by the changes of earlier batches.

        Returns:
            the number of rows that differ.
        """
        context, path = self.batch_context, self.batch_context.layout.replica
        if context.has_made(path, MERGE) or not self._leaves_parts():
            return 0
        if not context.has_made(path, FOLD_AGAIN):
            self._write_again()
        return main_counts(context.metrics(path, FOLD_AGAIN)).updated

    def _leaves_parts(self) -> bool:
        """Whether there are rows after a truncate of the batch, and rows may have columns from before their change."""
        context, schema = self.batch_context, self.batch_context.table_schema
        if not (schema.partial and schema.keys):
            return False
        replica = Source.of(context.replica, columns=truncates.to_place(schema))
        return any(by_file(context.tables, replica, lambda _, rows: pc.any(after_truncates(rows, schema)).as_py()))

    def _write_again(self) -> None:
        context, path, schema = self.batch_context, self.batch_context.layout.replica, self.batch_context.table_schema
        output = context.output(path)

        def earlier(rows: pa.Table) -> pa.Table:
            return changes_by_key(rows.filter(pc.invert(is_of_batch(rows, schema.batch_id))), schema)

        def rule(storage: Storage, rows: Mapping[str, pa.Table]) -> dict[str, Any]:
            stored = matches_of(rows[REPLICA])
            outcome = folded_again(as_events(rows[_CHANGES], schema), stored.rows, schema)
            return output.report_of(storage, stored, outcome)

        changes = Source.of(context.changes, earlier)
        replica = Source.of(context.replica, lambda rows: rows.filter(after_truncates(rows, schema)), to_write=True)
        sources = {_CHANGES: changes, REPLICA: replica}
        reports = by_key(context.tables, sources, key_schema(schema), rule)
        counts = MainCounts(updated=sum(report["rows"] for report in reports))
        context.put_written(path, FOLD_AGAIN, reports, replica, merge_metrics(counts))

    def _remove(self, step: str, removed: Callable[[pa.Table, TableSchema], Truncated]) -> MainCounts:
        """Rows that are deleted, or written again marked deleted, by one commit of a step."""
        context, path = self.batch_context, self.batch_context.layout.replica
        schema = context.table_schema
        if not context.has_made(path, step):
            output = context.output(path)

            def rule(storage: Storage, rows: pa.Table) -> tuple[dict[str, Any], int]:
                outcome = removed(rows, schema)
                return output.report(storage, outcome.instead, outcome.rows, outcome.rows), outcome.live

            replica = Source.of(context.replica, to_write=True)
            made = by_file(context.tables, replica, rule)
            metric = "numUpdatedRows" if sweep.marks(schema) else "numDeletedRows"
            counts = {metric: sum(live for _, live in made)}
            context.put_written(path, step, [report for report, _ in made], replica, counts)
        return main_counts(context.metrics(path, step))

    def history(self, floors: tuple[GenerationFloor, ...], *, swept: int) -> None:
        """Update the history of all keys.

        Args:
            swept: rows of generations before this one have vanished.
        """
        update_history(self.batch_context, None, floors, swept)


def _swept(replica: pa.Table, schema: TableSchema, generation: int) -> Truncated:
    """Rows of older generations."""
    old = replica.filter(sweep.vanishing(replica, generation, schema))
    return Truncated(rows=old, instead=sweep.instead(old, schema), live=old.num_rows)


def keys_shared(tables: Tables, path: str, keys: Sequence[str]) -> SharedKeys:
    """See `StoredRows.shared_keys`."""
    table = tables.existing(path)
    spelled = {name.lower(): name for name in table.schema.names}
    columns = tuple(Column(name, table.schema.types[name]) for name in (spelled[key.lower()] for key in keys))
    schema = DeltaSchema(columns).arrow
    marks = (GDDL,) if marks_deletes(table.schema.types.get(GDDL)) else ()
    source = Source.of(table, LiveKeys(schema=schema), (*schema.names, *marks))
    return SharedKeys.of(by_key(tables, {REPLICA: source}, schema, SharedKeysRule(columns=columns)))
