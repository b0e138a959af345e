"""The history table: derives the versions of keys again by the rules, and writes only differences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_gddl.contract.sql_types import quoted
from spark_jobs.engines.spark import row_types
from spark_jobs.engines.spark.batch_context import HISTORY, BatchContext
from spark_jobs.engines.spark.columns import at, name, old_value
from spark_jobs.engines.spark.in_tasks import by_key, place_of_keys
from spark_jobs.engines.spark.merge import NetChanges, are_few, by_events, of_keys, to_events
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.history import BOUNDS, IDENTITY, actions, versions
from spark_jobs.rules.merge import ACTION
from spark_jobs.rules.order import as_events


@dataclass(frozen=True)
class Generations:
    """`watermarks`: highest sequence before each generation; `swept`: earlier generations have been swept."""

    watermarks: tuple[str | None, ...]
    swept: int


def changes_of(changes: DataFrame, keys: DataFrame, table_schema: TableSchema, *, few: bool) -> DataFrame:
    """Changes of these keys, by new key or by the before image's old key."""
    found = of_keys(changes, keys, table_schema, few=few)
    if not table_schema.before_of_key:
        return found
    old = {f"{GDDL}__old_{k}": k for k in table_schema.keys}
    moved = changes.withColumns({column: old_value(table_schema, k) for column, k in old.items()})
    wanted = keys.select(*(name(k).alias(column) for column, k in old.items()))
    away = moved.join(F.broadcast(wanted) if few else wanted, list(old), "left_semi")
    gddl = F.col(GDDL)
    both = found.unionByName(away.select(*map(name, changes.columns)))
    both = both.withColumns({"_gddl__b": gddl["batch_id"], "_gddl__p": gddl["position"]})
    return both.dropDuplicates(["_gddl__b", "_gddl__p"]).drop("_gddl__b", "_gddl__p")


def versions_of(changes: DataFrame, table_schema: TableSchema, generations: Generations, *, rows: int) -> DataFrame:
    """See `history.versions`; `changes`: every change of each key concerned, about so many rows."""

    def rule(found: pa.Table) -> pa.Table:
        return versions(found, table_schema, generations.watermarks, generations.swept)

    return by_events(changes, table_schema, rule, row_types.version_rows(table_schema), rows=rows)


def update(batch_context: BatchContext, generations: Generations, net: NetChanges | None = None) -> None:
    """Update the history of the keys of net changes (null: of all)."""
    tables, path, table_schema = batch_context.tables, batch_context.layout.history, batch_context.table_schema
    changes, stored = tables.read(batch_context.layout.changes), tables.read(path)
    if net is None:
        happened, rows = to_events(changes, table_schema), tables.count(batch_context.layout.changes)
    else:
        keys = tables.keep(net.rows.select(*map(name, table_schema.keys)).distinct())
        few, rows = are_few(net.keys), net.keys or 0
        happened = to_events(changes_of(changes, keys, table_schema, few=few), table_schema)
        if table_schema.before_of_key:
            happened = of_keys(happened, keys, table_schema, few=few)
        stored = of_keys(stored, keys, table_schema, few=few)

    def rule(frames: Mapping[str, pa.Table]) -> pa.Table:
        found = as_events(frames["changes"], table_schema)
        derived = versions(found, table_schema, generations.watermarks, generations.swept)
        return actions(derived, frames["stored"], table_schema)

    kinds = row_types.version_actions(table_schema)
    work = by_key({"changes": happened, "stored": stored}, place_of_keys(table_schema), rule, kinds, rows=rows)
    with batch_context.once(HISTORY):
        apply(tables, path, tables.keep(work), table_schema)


def apply(tables: Tables, path: str, work: DataFrame, table_schema: TableSchema) -> None:
    """Apply actions to the history table."""
    match = F.lit(True)
    for key in table_schema.keys:
        match = match & (at("t", key) == at("s", key))
    for bound in IDENTITY:
        match = match & at("t", bound).eqNullSafe(at("s", bound))
    values: Assignments = {quoted(c): at("s", c) for c in [*table_schema.columns, GDDL, *BOUNDS]}
    builder = tables.handle(path).alias("t").merge(work.alias("s"), match)
    builder = builder.whenMatchedDelete(F.col(f"s.{ACTION}") == "delete").whenMatchedUpdate(set=values)
    builder.whenNotMatchedInsert(F.col(f"s.{ACTION}") == "put", values=values).execute()
