"""A batch's net changes and their outcome, by the rules in tasks; applied by Delta's MERGE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.sql_types import quoted
from spark_jobs.engines.spark import row_types
from spark_jobs.engines.spark.columns import at, name
from spark_jobs.engines.spark.in_tasks import RowRule, by_key, place_of_keys, row_by_row
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.fold import (
    COLUMNS_BEFORE_DELETE,
    FIRST,
    FORCED,
    MOVE_DELETED,
    UNSEEN,
    carried_names,
    net_changes,
    newest_state,
)
from spark_jobs.rules.merge import ACTION, StoredState, decide
from spark_jobs.rules.order import as_events, events

_BROADCAST = 500_000
"""Rows up to which a table is broadcast."""


@dataclass(frozen=True, kw_only=True)
class NetChanges:
    """A batch's net changes.

    Attributes:
        rows: see `fold.net_changes`.
        partial: as there.
        keys: number of rows; null: not counted.
        deletes: number of deletes; null as above.
        unseen: number of keys whose first change is an update, so that an earlier one should exist; null as above.
        moves: number of keys with a `MOVE_DELETED`; null as above.
    """

    rows: DataFrame
    partial: bool
    keys: int | None = None
    deletes: int | None = None
    unseen: int | None = None
    moves: int | None = None

    def counted(self) -> NetChanges:
        """A copy with counts, by one pass over the rows."""
        deletes, unseen = F.count_if(F.col(GDDL)["op"] == "D"), F.count_if(F.col(FIRST) == UNSEEN)
        moves = F.count_if(F.col(MOVE_DELETED) != "") if MOVE_DELETED in self.rows.columns else F.lit(0)
        found = self.rows.agg(F.count(F.lit(1)), deletes, unseen, moves).collect()[0]
        return replace(self, keys=int(found[0]), deletes=int(found[1]), unseen=int(found[2]), moves=int(found[3]))


@dataclass(frozen=True, kw_only=True)
class MergeInput:
    """What a merge applies.

    Attributes:
        rows: the replica's columns, `_gddl` and `ACTION`; where `partial`, the flags of `carried_names`: see
            `merge.decide`.
        deletes: net changes that are deletes; null: none.
        keys: maximum number of rows; null: unknown.
        warnings: warnings to report; late: see `Applied.late`.
    """

    rows: DataFrame
    partial: bool = False
    deletes: DataFrame | None = None
    keys: int | None = None
    warnings: tuple[RunWarning, ...] = ()
    late: int = 0


def happened(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """See `order.events`."""
    return row_by_row(changes, lambda rows: events(rows, table_schema), row_types.event_rows(table_schema))


def to_events(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Rows for `as_events`: where keys can change, each is assigned to both of its keys."""
    return happened(changes, table_schema) if table_schema.before_of_key else changes


def by_events(
    changes: DataFrame, table_schema: TableSchema, rule: RowRule, schema: T.StructType, *, rows: int
) -> DataFrame:
    """Applies a rule that needs all events of a key together.

    Args:
        rule: from events, see `order.events`, to rows of `schema`.
        rows: approximate number of changes.
    """
    return by_key(
        {"changes": to_events(changes, table_schema)}, place_of_keys(table_schema),
        lambda tables: rule(as_events(tables["changes"], table_schema)), schema, rows=rows,
    )  # fmt: skip


def net_of(changes: DataFrame, table_schema: TableSchema, *, partial: bool, rows: int) -> DataFrame:
    """Net changes, see `fold.net_changes`; `rows`: approximate number of changes."""
    schema = row_types.net_rows(table_schema, partial=partial)
    return by_events(
        changes, table_schema, lambda found: net_changes(found, table_schema, partial=partial), schema, rows=rows
    )


def newest_of(changes: DataFrame, table_schema: TableSchema, *, rows: int) -> DataFrame:
    """Net changes of each key's newest generation, from all changes of the key; `rows`: approximate number of keys."""
    schema, swept = row_types.net_rows(table_schema, partial=table_schema.partial), table_schema.swept
    return by_events(changes, table_schema, lambda found: newest_state(found, table_schema, swept), schema, rows=rows)


def single(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Net changes where each key has one change with all columns: the change itself."""
    return changes.select(*map(name, table_schema.columns), GDDL, F.col(GDDL)["op"].alias(FIRST))


def all_later(net: DataFrame) -> DataFrame:
    """Net changes with `ACTION` where each is newer than all stored rows; an update of a missing row is an insert."""
    return net.withColumn(ACTION, F.when(F.col(GDDL)["op"] == "D", "delete").otherwise("update"))


def all_new(net: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Rows of an empty replica."""
    gone, gddl = F.col(GDDL)["op"] == "D", F.col(GDDL)
    soft = table_schema.spec.delete == "soft"
    rows = net.where(~gone | F.col(COLUMNS_BEFORE_DELETE) if soft else ~gone)
    struct = gddl.withField("deleted", gone).alias(GDDL) if soft else gddl
    return rows.select(*map(name, table_schema.columns), struct)


@dataclass(frozen=True, kw_only=True)
class StoredRows:
    """Rows of replica and tombstones that include the batch's keys; see `merge.StoredState`."""

    replica: DataFrame
    tombstones: DataFrame | None

    def of(self, keys: DataFrame, table_schema: TableSchema) -> StoredRows:
        """Only the rows of these few keys."""
        deletes = self.tombstones
        return StoredRows(
            replica=of_keys(self.replica, keys, table_schema, few=True),
            tombstones=None if deletes is None else of_keys(deletes, keys, table_schema, few=True),
        )


def decided(
    net: NetChanges, stored: StoredRows, table_schema: TableSchema, *, rows: int, refolded: bool = False
) -> DataFrame:
    """See `merge.decide`; `rows`: approximate number of net changes."""
    partial = net.partial

    def rule(tables: Mapping[str, pa.Table]) -> pa.Table:
        found = StoredState(replica=tables["replica"], tombstones=tables.get("tombstones"))
        return decide(tables["net"], found, table_schema, partial=partial, refolded=refolded)

    frames = {"net": net.rows, "replica": stored.replica}
    frames |= {} if stored.tombstones is None else {"tombstones": stored.tombstones}
    schema = row_types.decided_rows(table_schema, partial=partial)
    return by_key(frames, place_of_keys(table_schema), rule, schema, rows=rows)


def tombstones_of(net: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Tombstone rows for the deletes among net changes."""
    forced = [FORCED] if table_schema.forces else []
    return net.where(F.col(GDDL)["op"] == "D").select(*map(name, table_schema.keys), GDDL, *forced)


def of_keys(rows: DataFrame, keys: DataFrame, table_schema: TableSchema, *, few: bool) -> DataFrame:
    """Rows that have one of these keys."""
    wanted = keys.select(*map(name, table_schema.keys))
    found = rows.join(F.broadcast(wanted) if few else wanted, list(table_schema.keys), "left_semi")
    return found.select(*map(name, rows.columns))


def are_few(count: int | None) -> bool:
    """Whether so many rows are broadcast; if unknown, Spark decides."""
    return count is not None and count <= _BROADCAST


def merge(tables: Tables, path: str, source: MergeInput, table_schema: TableSchema, on: Column) -> dict[str, int]:
    """Apply an outcome to the replica; returns counts of rows inserted, updated, deleted. Runs inside a transaction.

    Empty if Delta skipped the commit because an earlier attempt made it.

    Args:
        on: condition that all rows `t` of the replica with keys of the outcome meet, for pruning.
    """
    for key in table_schema.keys:
        on = on & (at("t", key) == at("s", key))
    gddl = F.struct(*(F.col(f"s.{GDDL}")[n].alias(n) for n in _gddl_names(table_schema)))
    inserted: Assignments = {**{quoted(c): at("s", c) for c in table_schema.columns}, GDDL: gddl}
    updated: Assignments = {GDDL: gddl}
    for column, flag in carried_names(table_schema).items():
        new = at("s", column)
        updated[quoted(column)] = F.when(at("s", flag), new).otherwise(at("t", column)) if source.partial else new
    rows = F.broadcast(source.rows) if are_few(source.keys) else source.rows
    deletes = F.col(f"s.{ACTION}") == "delete"
    builder = tables.handle(path).alias("t").merge(rows.alias("s"), on)
    if table_schema.spec.delete == "hard":
        builder = builder.whenMatchedDelete(deletes)
    row = builder.whenMatchedUpdate(set=updated).whenNotMatchedInsert(~deletes, values=inserted).execute().first()
    if row is None:
        return {}
    return {k: int(row[f"num_{k}_rows"]) for k in ("inserted", "updated", "deleted")}


def _gddl_names(table_schema: TableSchema) -> list[str]:
    names = [n for n, _ in table_schema.gddl_fields]
    return [*names, "deleted"] if table_schema.spec.delete == "soft" else names
