"""Compares the replica with the state computed from its change table, by the rules in tasks."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.in_tasks import by_key, place_of_keys, place_of_rows
from spark_jobs.engines.spark.merge import to_events
from spark_jobs.engines.spark.tables import spark_type
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.figures import Verdict
from spark_jobs.rules.order import as_events
from spark_jobs.rules.verify import Comparison, compare, expected_state, live_rows, verdict_of

_TEXTS = T.ArrayType(T.StringType())
_COMPARED = T.StructType([
    T.StructField("rows", T.LongType()), T.StructField("expected_rows", T.LongType()),
    T.StructField("buckets", T.ArrayType(T.IntegerType())), T.StructField("keys", _TEXTS),
    T.StructField("states", _TEXTS),
])  # fmt: skip


def verify(
    replica: DataFrame, changes: DataFrame, table_schema: TableSchema, *, swept: int, limit: int, rows: int
) -> Verdict:
    """See `Engine.verify`; `rows`: approximate number of changes."""
    marked = "deleted" in replica.select(f"{GDDL}.*").columns
    kinds = {column.name: str(column.type) for column in table_schema.data}
    columns = [
        name(c) if c in replica.columns else F.lit(None).cast(spark_type(kinds.get(c, "string"))).alias(c)
        for c in table_schema.columns
    ]
    live = replica.select(*columns, *([GDDL] if marked else []))

    def rule(tables: Mapping[str, pa.Table]) -> pa.Table:
        happened = as_events(tables["changes"], table_schema) if table_schema.keys else tables["changes"]
        expected = expected_state(happened, table_schema, swept)
        found = compare(live_rows(tables["live"], table_schema), expected, table_schema, limit)
        return pa.table({
            "rows": pa.array([found.rows]), "expected_rows": pa.array([found.expected_rows]),
            "buckets": pa.array([sorted(found.buckets)], pa.list_(pa.int32())),
            "keys": pa.array([[k["key"] for k in found.keys]], pa.list_(pa.string())),
            "states": pa.array([[k["state"] for k in found.keys]], pa.list_(pa.string())),
        })  # fmt: skip

    keyed = bool(table_schema.keys)
    happened = to_events(changes, table_schema) if keyed else changes
    place = place_of_keys(table_schema) if keyed else place_of_rows(table_schema)
    compared = by_key({"live": live, "changes": happened}, place, rule, _COMPARED, rows=rows).collect()
    return verdict_of((_comparison(row) for row in compared), limit)


def _comparison(row: T.Row) -> Comparison:
    keys = tuple({"key": key, "state": state} for key, state in zip(row["keys"], row["states"], strict=True))
    return Comparison(
        rows=row["rows"], expected_rows=row["expected_rows"], buckets=frozenset(row["buckets"]), keys=keys
    )
