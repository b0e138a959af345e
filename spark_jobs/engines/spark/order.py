"""The order of a key's changes as a comparable struct (docs/semantics.md, sections 3 and 6)."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_jobs.table.table_schema import GDDL, TableSchema

OP, ORDER, FORCED, MOVED, SEQUENCE = (f"{GDDL}__{n}" for n in ("op", "order", "forced", "moved", "sequence"))


def name(column: str) -> Column:
    """A column by its very name, dots and spaces included."""
    return F.col(f"`{column.replace('`', '``')}`")


def order_of(table_schema: TableSchema, gddl: Column, sequence: Column, forced: Column | None = None) -> Column:
    """Struct that grows with the order of changes; nulls are lowest. Its first two fields are `rank_of`."""
    force = (
        []
        if table_schema.spec.force_update is None
        else [(F.lit(False) if forced is None else F.coalesce(forced, F.lit(False))).alias("forced")]
    )
    if table_schema.spec.tie_break == "delete_wins":
        tail = [(gddl["op"] == "D").alias("is_delete"), gddl["source_file"].alias("file"), gddl["position"].alias("at")]
    else:
        tail = [gddl["batch_id"].alias("batch"), gddl["position"].alias("at")]
    return F.struct(gddl["generation"].alias("generation"), sequence.alias("sequence"), *force, *tail)


def rank_of(gddl: Column, sequence: Column) -> Column:
    """The order of changes of which no two share a sequence."""
    return F.struct(gddl["generation"].alias("generation"), sequence.alias("sequence"))


def is_forced(table_schema: TableSchema) -> Column:
    """Whether a change is to be applied whatever its sequence."""
    column = table_schema.spelled(table_schema.spec.force_update)
    return F.lit(False) if column is None else truth(name(column))


def truth(value: Column) -> Column:
    """A boolean that may come as text; false when it says nothing."""
    return F.coalesce(value.cast("string").try_cast("boolean"), F.lit(False))


def events(changes: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Changes with their working columns, and a delete of the old key for each update of a key.

    Args:
        changes: rows of the change table.

    Returns:
        the replica's columns, `_gddl`, and op, moved (the update changed its key), sequence (effective), forced, order.
    """
    op = F.col(GDDL)["op"]
    kept = [*(name(c) for c in table_schema.columns), F.col(GDDL), op.alias(OP)]
    if not table_schema.before_of_key:
        return _ordered(changes.select(*kept, F.lit(False).alias(MOVED)), table_schema)
    rows = changes.select(*kept, moved(table_schema).alias(MOVED))
    return _ordered(rows.unionByName(_old_keys(changes.where(moved(table_schema)), table_schema)), table_schema)


def moved(table_schema: TableSchema) -> Column:
    """Whether a change is an update that changed its key."""
    differs = F.lit(False)
    for key, before in table_schema.before_of_key.items():
        differs = differs | (F.coalesce(name(before), name(key)) != name(key))
    return (F.col(GDDL)["op"] == "U") & differs


def old_key(table_schema: TableSchema, kinds: Mapping[str, DataType]) -> dict[str, Column]:
    """Columns of the replica, of these types, as the delete of the old key has them."""
    columns = {}
    for column in table_schema.columns:
        if column in table_schema.before_of_key:
            columns[column] = F.coalesce(name(table_schema.before_of_key[column]), name(column))
        elif column in table_schema.keys or column == table_schema.spelled(table_schema.spec.force_update):
            columns[column] = name(column)
        else:
            columns[column] = F.lit(None).cast(kinds[column])
    return columns


def _old_keys(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The delete of the old key that each update of a key implies, at the same sequence."""
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    columns = [value.alias(column) for column, value in old_key(table_schema, kinds).items()]
    gddl = F.col(GDDL).withField("op", F.lit("D"))
    return rows.select(*columns, gddl.alias(GDDL), F.lit("D").alias(OP), F.lit(False).alias(MOVED))


def _ordered(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    gddl = F.col(GDDL)
    if table_schema.spec.force_update is None:
        order = order_of(table_schema, gddl, gddl["sequence"])
        return rows.select("*", F.lit(False).alias(FORCED), gddl["sequence"].alias(SEQUENCE), order.alias(ORDER))
    rows = rows.withColumn(FORCED, is_forced(table_schema) & (F.col(OP) != "R"))
    arrival = F.struct(gddl["batch_id"], gddl["position"])
    so_far = Window.partitionBy(*map(name, table_schema.keys), gddl["generation"]).orderBy(arrival)
    greatest = F.max(F.struct(gddl["sequence"].alias("s"))).over(so_far.rowsBetween(Window.unboundedPreceding, 0))
    rows = rows.withColumn(SEQUENCE, F.when(F.col(FORCED), greatest["s"]).otherwise(gddl["sequence"]))
    return rows.withColumn(ORDER, order_of(table_schema, gddl, F.col(SEQUENCE), F.col(FORCED)))
