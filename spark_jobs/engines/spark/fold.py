"""The state of a key = the fold of its changes (docs/semantics.md, section 5), as Spark expressions.

`net` is the short cut for changes that carry whole rows; `fold` is the definition. Both give one row a key: the
replica's columns, `_gddl` of the last change (with its effective sequence), and the columns named below.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.engines.spark.order import FORCED, MOVED, OP, ORDER, SEQUENCE, name
from spark_jobs.table.table_schema import GDDL, RESCUED, TableSchema

FIRST, FRESH, LOWEST, HAS_FORCED, HAD_ROW = (f"{GDDL}__{n}" for n in ("first", "fresh", "lowest", "has_forced", "had"))
_SEGMENT = f"{GDDL}__segment"
UNSEEN = "U"
"""`FIRST` of a key whose lowest change is an update that didn't change its key."""


def carried_name(index: int) -> str:
    """Flag of the fold's output: some change carried the column of that index (in `TableSchema.columns`)."""
    return f"{GDDL}__carried_{index}"


def net(events: DataFrame, table_schema: TableSchema) -> DataFrame:
    """One row a key: its highest change, by aggregation (no window, no sort of whole rows by key and order)."""
    row = F.struct(*(name(c) for c in table_schema.columns), GDDL, OP, SEQUENCE, ORDER)
    grouped = events.groupBy(*(name(k) for k in table_schema.keys)).agg(
        F.max_by(row, F.col(ORDER)).alias("row"), *_span()
    )
    return _with_sequence(grouped.select("row.*", FIRST, LOWEST, HAS_FORCED)).withColumn(FRESH, F.lit(True))


def single(events: DataFrame) -> DataFrame:
    """The same where every key is known to have just one change."""
    rows = events.withColumn(FIRST, _first_of(F.col(OP), F.col(MOVED))).withColumn(LOWEST, F.col(ORDER))
    return _with_sequence(rows.withColumn(HAS_FORCED, F.col(FORCED)).drop(MOVED, FORCED)).withColumn(FRESH, F.lit(True))


def fold(events: DataFrame, table_schema: TableSchema) -> DataFrame:
    """One row a key for changes that may carry a part of the row.

    `FRESH` tells that the row stands by itself; otherwise columns whose carried flag is false keep what is stored.
    `HAD_ROW` tells, of a deleted row, that its columns are those of the row that was deleted.
    """
    rows = _segmented(events, table_schema)
    columns = []
    for index, column in enumerate(table_schema.columns):
        if column in table_schema.keys:
            continue
        flag = carries(table_schema, column) & (F.col(OP) != "D")
        columns.append(
            F.max_by(F.when(flag, F.struct(name(column).alias("v"))), F.when(flag, F.col(ORDER))).alias(column)
        )
        columns.append(F.max(flag).alias(carried_name(index)))
    last = F.max_by(F.struct(GDDL, OP, SEQUENCE, ORDER, _SEGMENT), F.col(ORDER)).alias("last")
    had = F.max(F.col(OP) != "D").alias(HAD_ROW)
    spans = [F.max(c).alias(c) if c == HAS_FORCED else F.first(c).alias(c) for c in (FIRST, LOWEST, HAS_FORCED)]
    grouped = rows.groupBy(*(name(k) for k in table_schema.keys)).agg(*columns, last, had, *spans)
    values = [name(c) if c in table_schema.keys else name(c)["v"].alias(c) for c in table_schema.columns]
    flags = [carried_name(i) for i, c in enumerate(table_schema.columns) if c not in table_schema.keys]
    out = grouped.select(*values, *flags, "last.*", FIRST, LOWEST, HAS_FORCED, HAD_ROW)
    return _with_sequence(out.withColumn(FRESH, F.col(_SEGMENT) > 0).drop(_SEGMENT))


def carries(table_schema: TableSchema, column: str) -> Column:
    """Whether a change carries a column; `R` and `I` carry all."""
    if column in table_schema.keys:
        return F.lit(True)
    carried = F.lit(True)
    if column in table_schema.lacking:
        carried = carried & ~F.coalesce(F.col(GDDL)["schema"].isin(*table_schema.lacking[column]), F.lit(False))
    listing = table_schema.spelled(table_schema.spec.columns_to_update)
    if listing is not None and column not in (listing, RESCUED):
        carried = carried & F.coalesce(F.array_contains(listed(name(listing)), column.lower()), F.lit(True))
    if table_schema.spec.ignore_null_updates:
        carried = carried & name(column).isNotNull()
    return F.col(OP).isin("R", "I") | carried


def listed(column: Column) -> Column:
    """Lower-case names out of a comma-separated text or the text form of an array."""
    text = F.regexp_replace(column.cast("string"), r"[\[\]\"\s]", "")
    return F.split(F.lower(text), ",")


def _segmented(events: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Changes of each key's last segment: a reset starts one, a delete ends one (soft deletes keep its columns)."""
    keys = [name(k) for k in table_schema.keys]
    by_key = Window.partitionBy(*keys)
    rows = with_segment(events, table_schema, _SEGMENT)
    first = F.min_by(F.struct(OP, MOVED), F.col(ORDER)).over(by_key)
    rows = rows.withColumn(FIRST, _first_of(first[OP], first[MOVED]))
    rows = rows.withColumn(LOWEST, F.min(ORDER).over(by_key)).withColumn(HAS_FORCED, F.max(FORCED).over(by_key))
    return rows.withColumn("_gddl__last", F.max(_SEGMENT).over(by_key)).where(F.col(_SEGMENT) == F.col("_gddl__last"))


def with_segment(events: DataFrame, table_schema: TableSchema, column: str) -> DataFrame:
    """Number the segments of each key: a reset starts one, and so does what follows a delete, but another delete."""
    ordered = Window.partitionBy(*(name(k) for k in table_schema.keys)).orderBy(ORDER)
    revived = (F.col(OP) != "D") & F.coalesce(F.lag(OP).over(ordered) == "D", F.lit(False))
    rows = events.withColumn(column, (F.col(OP).isin("R", "I") | revived).cast("int"))
    return rows.withColumn(column, F.sum(column).over(ordered.rowsBetween(Window.unboundedPreceding, 0)))


def _span() -> list[Column]:
    first = F.min_by(F.struct(F.col(OP).alias("op"), F.col(MOVED).alias("moved")), F.col(ORDER))
    return [
        _first_of(first["op"], first["moved"]).alias(FIRST),
        F.min(ORDER).alias(LOWEST),
        F.max(FORCED).alias(HAS_FORCED),
    ]


def _first_of(op: Column, moved: Column) -> Column:
    return F.when(moved, F.lit("M")).otherwise(op)


def _with_sequence(rows: DataFrame) -> DataFrame:
    return rows.withColumn(GDDL, F.col(GDDL).withField("sequence", F.col(SEQUENCE)))
