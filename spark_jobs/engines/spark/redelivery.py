"""Changes that arrived before, and ties (docs/semantics.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.engines.spark.history import comparable
from spark_jobs.engines.spark.order import name
from spark_jobs.table.table_schema import GDDL, TableSchema

_ROW = f"{GDDL}__content"
SAMPLE = 5


@dataclass(frozen=True)
class Ties:
    """Changes that share key and sequence with a different one: how many, and some keys."""

    count: int
    sample: tuple[str, ...]


def identity(table_schema: TableSchema) -> list[Column]:
    """What two deliveries of one change share before their content is looked at."""
    gddl = F.col(GDDL)
    load = gddl["op"] == "R"
    return [*(name(k) for k in table_schema.keys), F.when(load, gddl["generation"]), gddl["sequence"], gddl["op"]]


def content(rows: DataFrame, table_schema: TableSchema) -> list[Column]:
    keys = set(table_schema.keys)
    return [comparable(rows, c) for c in table_schema.content if c not in keys]


def distinct_in_batch(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The batch with each change once, its first delivery. Full-load rows of a keyless table are all kept."""
    gddl = F.col(GDDL)
    same = Window.partitionBy(*identity(table_schema), *content(rows, table_schema)).orderBy(gddl["position"])
    first = rows.withColumn(_ROW, F.row_number().over(same)).where(
        (F.col(_ROW) == 1) | (F.lit(not table_schema.keys) & (gddl["op"] == "R"))
    )
    return first.drop(_ROW)


def not_yet_stored(rows: DataFrame, changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The batch without changes that the change table holds already (`changes`: narrowed to what can match)."""
    a, b = rows.alias("a"), changes.alias("b")
    gddl_a, gddl_b = F.col(f"a.{GDDL}"), F.col(f"b.{GDDL}")
    same = gddl_a["sequence"].eqNullSafe(gddl_b["sequence"]) & (gddl_a["op"] == gddl_b["op"])
    same = same & ((gddl_a["op"] != "R") | (gddl_a["generation"] == gddl_b["generation"]))
    if not table_schema.keys:
        same = same & (gddl_a["op"] != "R")
    for column in table_schema.content:
        if "map<" in rows.schema[column].dataType.simpleString():
            same = same & F.to_json(_at("a", column)).eqNullSafe(F.to_json(_at("b", column)))
        elif column in table_schema.keys:
            same = same & (_at("a", column) == _at("b", column))
        else:
            same = same & _at("a", column).eqNullSafe(_at("b", column))
    return a.join(b, same, "left_anti")


def ties(fresh: DataFrame, changes: DataFrame | None, table_schema: TableSchema) -> Ties:
    """Ties among `fresh` changes, and between them and stored ones (`changes`; null: none can match)."""
    keys = [name(k) for k in table_schema.keys]
    gddl = F.col(GDDL)
    columns = [*keys, gddl["sequence"].alias("s"), F.when(gddl["op"] == "R", gddl["generation"]).alias("g")]
    mine = fresh.select(*columns, F.lit(1).alias("n"))
    others = mine if changes is None else mine.unionByName(changes.select(*columns, F.lit(0).alias("n")))
    by = [*keys, F.col("s"), F.col("g")]
    groups = others.groupBy(*by).agg(F.sum("n").alias("mine"), F.count(F.lit(1)).alias("all"))
    tied = groups.where((F.col("mine") > 0) & (F.col("all") > 1))
    total = tied.agg(F.sum("mine")).collect()[0][0]
    if not total:
        return Ties(0, ())
    return Ties(int(total), sample_keys(tied, table_schema))


def sample_keys(rows: DataFrame, table_schema: TableSchema) -> tuple[str, ...]:
    """A few keys as JSON objects, least first."""
    picked = rows.select(*map(name, table_schema.keys)).orderBy(*map(name, table_schema.keys)).limit(SAMPLE)
    return tuple(r[0] for r in picked.select(F.to_json(F.struct(*map(name, table_schema.keys)))).collect())


def _at(side: str, column: str) -> Column:
    return F.col(f"{side}.`{column.replace('`', '``')}`")
