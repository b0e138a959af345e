"""SCD type 2: the versions of a key from all its changes (docs/semantics.md, section 9)."""

from __future__ import annotations

from typing import cast

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.engines.spark.fold import carries, with_segment
from spark_jobs.engines.spark.order import OP, ORDER, SEQUENCE, events, name
from spark_jobs.engines.spark.tables import Assignments, Tables, spark_type
from spark_jobs.engines.table_columns import END, START
from spark_jobs.table.table_schema import GDDL, TableSchema

_RUN, _SEG, _SAME, _ACTION = (f"{GDDL}__{n}" for n in ("run", "segment", "same", "action"))


def versions(changes: DataFrame, table_schema: TableSchema, generation_low_watermarks: tuple[object, ...]) -> DataFrame:
    """All versions of all keys in `changes`: the replica's columns, `_gddl`, `__start_at`, `__end_at`.

    Args:
        changes: every change of each key concerned.
        generation_low_watermarks: greatest sequence ingested before each generation, as values of the sequence's type.
    """
    states = _states(
        _with_vanishing(events(changes, table_schema), table_schema, generation_low_watermarks), table_schema
    )
    by_key = Window.partitionBy(*map(name, table_schema.keys)).orderBy(ORDER)
    tracked = F.struct(F.lit(1).alias("_"), *(comparable(states, c) for c in tracked_columns(table_schema)))
    alive = F.col(OP) != "D"
    same = F.lag(F.when(alive, tracked)).over(by_key).eqNullSafe(F.when(alive, tracked))
    states = states.withColumn(_SAME, same)
    states = states.withColumn(
        _RUN, F.sum((~F.col(_SAME)).cast("int")).over(by_key.rowsBetween(Window.unboundedPreceding, 0))
    )
    last = F.max_by(
        F.struct(*(name(c) for c in table_schema.columns if c not in table_schema.keys), GDDL, OP), F.col(ORDER)
    )
    runs = states.groupBy(*map(name, table_schema.keys), _RUN).agg(
        last.alias("last"), F.min_by(F.struct(F.col(SEQUENCE).alias("v")), F.col(ORDER)).alias("start")
    )
    following = F.lead(F.col("start")).over(Window.partitionBy(*map(name, table_schema.keys)).orderBy(_RUN))
    runs = runs.withColumn("end", following).where(F.col("last")[OP] != "D")
    values = [name(c) if c in table_schema.keys else F.col("last")[c].alias(c) for c in table_schema.columns]
    return runs.select(
        *values, F.col("last")[GDDL].alias(GDDL), F.col("start")["v"].alias(START), F.col("end")["v"].alias(END)
    )


def tracked_columns(table_schema: TableSchema) -> list[str]:
    untracked = {
        c.lower()
        for c in (
            *table_schema.sequence,
            *table_schema.technical,
            *table_schema.spec.track_history_except,
            *table_schema.keys,
        )
    }
    return [c for c in table_schema.columns if c.lower() not in untracked and not c.lower().startswith("ar_h_")]


def comparable(rows: DataFrame, column: str) -> Column:
    """A column in a form that `<=>` takes; maps have no equality in Spark."""
    if "map<" in rows.schema[column].dataType.simpleString():
        return F.to_json(name(column)).alias(column)
    return name(column)


def _with_vanishing(
    happened: DataFrame, table_schema: TableSchema, generation_low_watermarks: tuple[object, ...]
) -> DataFrame:
    """Give every change its effective sequence, and end each key at every later generation until it comes again."""
    gddl = F.col(GDDL)
    kind = spark_type(table_schema.sequence_type)
    floor = F.lit(None).cast(kind)
    for generation, value in enumerate(generation_low_watermarks, start=1):
        floor = F.when(gddl["generation"] == generation, F.lit(value).cast(kind)).otherwise(floor)
    happened = happened.withColumn(SEQUENCE, F.greatest(F.col(SEQUENCE), floor))
    for generation in range(2, len(generation_low_watermarks) + 1):
        older = happened.where(gddl["generation"] < generation)
        ended = older.groupBy(*map(name, table_schema.keys)).agg(
            *(F.max_by(name(c), F.col(ORDER)).alias(c) for c in table_schema.columns if c not in table_schema.keys),
            F.max_by(GDDL, F.col(ORDER)).alias(GDDL),
        )
        fields = {"generation": F.lit(generation), "sequence": F.lit(None).cast(kind), "op": F.lit("D")}
        ended = ended.withColumn(OP, F.lit("D")).withColumn(
            SEQUENCE, F.lit(generation_low_watermarks[generation - 1]).cast(kind)
        )
        for key, value in fields.items():
            ended = ended.withColumn(GDDL, F.col(GDDL).withField(key, value))
        order = F.lit(None).cast(happened.schema[ORDER].dataType)
        fields_of_order = cast("T.StructType", happened.schema[ORDER].dataType).fields[1:]
        nothing = [F.lit(None).cast(f.dataType).alias(f.name) for f in fields_of_order]
        lowest = F.struct(F.lit(generation).alias("generation"), *nothing)
        ended = ended.withColumn(ORDER, F.coalesce(order, lowest))
        happened = happened.unionByName(ended, allowMissingColumns=True)
    return happened


def _states(happened: DataFrame, table_schema: TableSchema) -> DataFrame:
    """The row after each change, one per key and effective sequence (the last at it)."""
    keys = [name(k) for k in table_schema.keys]
    by_key = Window.partitionBy(*keys).orderBy(ORDER)
    if table_schema.partial:
        happened = with_segment(happened, table_schema, _SEG)
        running = Window.partitionBy(*keys, _SEG).orderBy(ORDER).rowsBetween(Window.unboundedPreceding, 0)
        for column in table_schema.columns:
            if column not in table_schema.keys:
                flag = carries(table_schema, column) & (F.col(OP) != "D")
                carried = F.last(F.when(flag, F.struct(name(column).alias("v"))), ignorenulls=True).over(running)
                happened = happened.withColumn(f"{GDDL}__v_{column}", carried["v"])
        happened = happened.select(
            *(name(c) if c in table_schema.keys else name(f"{GDDL}__v_{c}").alias(c) for c in table_schema.columns),
            GDDL, OP, SEQUENCE, ORDER,
        )  # fmt: skip
    following = F.lead(F.struct(F.col(SEQUENCE).alias("v"))).over(by_key)
    happened = happened.withColumn(_SAME, following.isNotNull() & following["v"].eqNullSafe(F.col(SEQUENCE)))
    return happened.where(~F.col(_SAME)).drop(_SAME)


def apply(tables: Tables, path: str, derived: DataFrame, touched: DataFrame | None, table_schema: TableSchema) -> None:
    """Make the history of `touched` keys (null: of all) equal to `derived`, rewriting only what differs."""
    keys = list(table_schema.keys)
    stored = tables.read(path)
    if touched is not None:
        stored = stored.join(F.broadcast(touched), keys, "left_semi")
    columns = [*table_schema.columns, GDDL, START, END]
    marker = f"{GDDL}__there"
    on = F.lit(True)
    for key in keys:
        on = on & (F.col(f"a.`{key}`") == F.col(f"b.`{key}`"))
    on = on & F.col(f"a.{START}").eqNullSafe(F.col(f"b.{START}"))
    a, b = derived.withColumn(marker, F.lit(True)).alias("a"), stored.withColumn(marker, F.lit(True)).alias("b")
    both = a.join(b, on, "full_outer")
    missing, extra = F.col(f"a.{marker}").isNull(), F.col(f"b.{marker}").isNull()
    differs = F.lit(False)
    for column in columns:
        if "map<" not in derived.schema[column].dataType.simpleString():
            differs = differs | ~F.col(f"a.`{column}`").eqNullSafe(F.col(f"b.`{column}`"))
    picked = [F.when(missing, F.col(f"b.`{c}`")).otherwise(F.col(f"a.`{c}`")).alias(c) for c in columns]
    work = both.where(missing | extra | differs).select(
        *picked, F.when(missing, "delete").otherwise("put").alias(_ACTION)
    )
    match = F.lit(True)
    for key in keys:
        match = match & (F.col(f"t.`{key}`") == F.col(f"s.`{key}`"))
    match = match & F.col(f"t.{START}").eqNullSafe(F.col(f"s.{START}"))
    values: Assignments = {f"`{c}`": F.col(f"s.`{c}`") for c in columns}
    builder = tables.handle(path).alias("t").merge(work.localCheckpoint().alias("s"), match)
    builder = builder.whenMatchedDelete(F.col(f"s.{_ACTION}") == "delete").whenMatchedUpdate(set=values)
    builder.whenNotMatchedInsert(F.col(f"s.{_ACTION}") == "put", values=values).execute()


def floor_values(spark: SparkSession, texts: tuple[str | None, ...], kind: str) -> tuple[object, ...]:
    """JSON forms of sequences (as the ledger keeps them) as Python values that Spark takes for `kind`."""
    if not any(texts):
        return tuple(None for _ in texts)
    rows = spark.createDataFrame([(i, t) for i, t in enumerate(texts)], "i int, t string")
    wrapped = F.from_json(F.concat(F.lit('{"v":'), F.coalesce(F.col("t"), F.lit("null")), F.lit("}")), f"v {kind}")
    found = rows.select("i", wrapped["v"].alias("v")).collect()
    return tuple(row["v"] for row in sorted(found, key=lambda r: r["i"]))
