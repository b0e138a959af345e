"""Statistics of new files against their rows, which Spark reads as plain Parquet."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.sql_types import quoted

_FILE, _STATS = "_shadow_file", "_shadow_stats"
Leaf = tuple[str, ...]


def wrong_statistics(spark: SparkSession, files: Sequence[Mapping[str, Any]], schema: T.StructType) -> Iterator[str]:
    """What the log says of new files and is not true of their rows.

    Args:
        files: `add` actions with absolute paths, without escapes.
        schema: of the table.
    """
    stated = {add["path"].rpartition("/")[2]: json.loads(add.get("stats") or "{}") for add in files}
    if not stated:
        return
    partitions = set(cast("Mapping[str, Any]", files[0].get("partitionValues") or {}))
    leaves = [leaf for leaf in _leaves((), schema) if leaf[0] not in partitions]
    counted = sorted(
        {leaf for leaf in leaves for one in stated.values() if _at(one.get("nullCount"), leaf) is not None}
    )
    bounded = sorted({leaf for leaf in leaves for one in stated.values() if _has_bounds(one, leaf)})
    kinds = T.StructType([field for field in schema.fields if field.name not in partitions])
    rows = spark.read.schema(kinds).parquet(*(add["path"] for add in files))
    yield from _compared(spark, rows, stated, (counted, bounded, schema))


def _compared(
    spark: SparkSession, rows: DataFrame, stated: Mapping[str, Mapping[str, Any]],
    leaves: tuple[Sequence[Leaf], Sequence[Leaf], T.StructType],
) -> Iterator[str]:  # fmt: skip
    counted, bounded, schema = leaves
    facts = [F.count("*").alias("records")]
    facts += [F.count_if(_column(leaf).isNull()).alias(f"nulls {at}") for at, leaf in enumerate(counted)]
    for at, leaf in enumerate(bounded):
        facts += [F.min(_column(leaf)).alias(f"low {at}"), F.max(_column(leaf)).alias(f"high {at}")]
    file = F.element_at(F.split(F.col("_metadata.file_path"), "/"), -1)
    found = rows.groupBy(F.url_decode(file).alias(_FILE)).agg(*facts)
    texts = spark.createDataFrame(
        [(name, json.dumps(one)) for name, one in stated.items()], f"{_FILE} string, {_STATS} string"
    )
    read = texts.select(_FILE, F.from_json(_STATS, _kind_of_statistics(bounded, schema)).alias(_STATS))
    ends = [
        (~_holds(F.col(f"low {at}"), F.col(f"high {at}"), leaf, schema)).alias(f"wrong {at}")
        for at, leaf in enumerate(bounded)
    ]
    for row in (
        read.join(found, _FILE, "left")
        .select(_FILE, "records", *(f"nulls {n}" for n in range(len(counted))), *ends)
        .collect()
    ):
        yield from _of_file(row.asDict(), stated[row[_FILE]], counted, bounded)


def _of_file(
    row: Mapping[str, Any], stated: Mapping[str, Any], counted: Sequence[Leaf], bounded: Sequence[Leaf]
) -> Iterator[str]:
    name, records = row[_FILE], row["records"] or 0
    if stated.get("numRecords") != records:
        yield f"{name} has {records} rows, not numRecords {stated.get('numRecords')}"
    for at, leaf in enumerate(counted):
        said, nulls = _at(stated.get("nullCount"), leaf), row[f"nulls {at}"]
        if said is not None and nulls is not None and said != nulls:
            yield f"{name} has {nulls} nulls in {'.'.join(leaf)}, not nullCount {said}"
    for at, leaf in enumerate(bounded):
        if row[f"wrong {at}"]:
            yield f"{name} has values of {'.'.join(leaf)} outside of minValues and maxValues"


def _holds(low: Column, high: Column, leaf: Leaf, schema: T.StructType) -> Column:
    """Whether the stated bounds hold, or there is no value, or no bound; times are stated in milliseconds."""
    least, most = (_column((_STATS, ends, *leaf)) for ends in ("minValues", "maxValues"))
    if isinstance(_type_of(schema, leaf), (T.TimestampType, T.TimestampNTZType)):
        most = most + F.expr("interval 1 millisecond")
    return F.coalesce(least <= low, F.lit(True)) & F.coalesce(most >= high, F.lit(True))


def _kind_of_statistics(bounded: Sequence[Leaf], schema: T.StructType) -> T.StructType:
    kind = _restricted(schema, bounded, ())
    return T.StructType([T.StructField("minValues", kind), T.StructField("maxValues", kind)])


def _restricted(kind: T.StructType, leaves: Sequence[Leaf], path: Leaf) -> T.StructType:
    fields = []
    for field in kind.fields:
        here = (*path, field.name)
        if any(leaf[: len(here)] == here for leaf in leaves):
            inner = field.dataType
            fields.append(
                T.StructField(
                    field.name, _restricted(inner, leaves, here) if isinstance(inner, T.StructType) else inner
                )
            )
    return T.StructType(fields)


def _leaves(path: Leaf, kind: T.DataType) -> Iterator[Leaf]:
    if not isinstance(kind, T.StructType):
        yield path
        return
    for field in kind.fields:
        yield from _leaves((*path, field.name), field.dataType)


def _type_of(kind: T.StructType, leaf: Leaf) -> T.DataType:
    inner = kind[leaf[0]].dataType
    return _type_of(inner, leaf[1:]) if isinstance(inner, T.StructType) and len(leaf) > 1 else inner


def _at(values: object, leaf: Leaf) -> Any:
    for name in leaf:
        values = values.get(name) if isinstance(values, dict) else None
    return values


def _has_bounds(stated: Mapping[str, Any], leaf: Leaf) -> bool:
    return any(_at(stated.get(ends), leaf) is not None for ends in ("minValues", "maxValues"))


def _column(leaf: Leaf) -> Column:
    return F.col(".".join(map(quoted, leaf)))
