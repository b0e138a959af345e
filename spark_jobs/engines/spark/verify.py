"""Does the replica hold what its change table folds to? Counts, and a hash per bucket of keys."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.engines.spark.fold import fold, net
from spark_jobs.engines.spark.order import OP, events, name
from spark_jobs.rules.figures import BUCKETS, Verdict
from spark_jobs.table.table_schema import GDDL, TableSchema

_HASH, _BUCKET = f"{GDDL}__hash", f"{GDDL}__bucket"


def expected_state(changes: DataFrame, table_schema: TableSchema, swept: int) -> DataFrame:
    """Rows that the replica should have: each key's fold in its highest generation, deleted ones left out.

    Args:
        swept: rows of generations before this one have vanished.
    """
    happened = events(changes.where(F.col(GDDL)["generation"] >= swept), table_schema)
    latest = F.max(F.col(GDDL)["generation"]).over(Window.partitionBy(*map(name, table_schema.keys)))
    happened = happened.withColumn("_gddl__latest", latest).where(F.col(GDDL)["generation"] == F.col("_gddl__latest"))
    folded = fold(happened, table_schema) if table_schema.partial else net(happened, table_schema)
    return folded.where(F.col(OP) != "D").select(*map(name, table_schema.columns))


def verify(replica: DataFrame, changes: DataFrame, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
    """Compare; the keys that differ are looked for only where buckets do."""
    live = replica
    if table_schema.spec.delete == "soft" and table_schema.keys:
        live = replica.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
    if table_schema.keys:
        wanted = expected_state(changes, table_schema, swept)
    else:
        wanted = changes.where(F.col(GDDL)["generation"] >= swept).select(*map(name, table_schema.columns))
    actual, wanted = _hashed(live, table_schema), _hashed(wanted, table_schema)
    a, b = _buckets(actual), _buckets(wanted)
    both = a.alias("a").join(b.alias("b"), F.col(f"a.{_BUCKET}") == F.col(f"b.{_BUCKET}"), "full_outer")
    rows = both.select(
        F.coalesce(F.col(f"a.{_BUCKET}"), F.col(f"b.{_BUCKET}")).alias("bucket"),
        F.coalesce("a.n", F.lit(0)).alias("n"),
        F.coalesce("b.n", F.lit(0)).alias("m"),
        F.col("a.s").eqNullSafe(F.col("b.s")).alias("same"),
    ).collect()
    different = [r["bucket"] for r in rows if not r["same"] or r["n"] != r["m"]]
    keys: tuple[dict[str, str], ...] = ()
    if different and table_schema.keys:
        keys = _differences(
            actual.where(F.col(_BUCKET).isin(different)),
            wanted.where(F.col(_BUCKET).isin(different)),
            table_schema,
            limit,
        )
    return Verdict(rows=sum(r["n"] for r in rows), expected_rows=sum(r["m"] for r in rows),
                   buckets_different=len(different), keys=keys)  # fmt: skip


def _hashed(rows: DataFrame, table_schema: TableSchema) -> DataFrame:
    """Keys, bucket of the key, hash of the row."""
    by = table_schema.keys or table_schema.columns
    columns = [_hashable(rows, c) for c in table_schema.columns]
    return rows.select(
        *(name(k) for k in table_schema.keys),
        F.pmod(F.xxhash64(*(_hashable(rows, c) for c in by)), F.lit(BUCKETS)).alias(_BUCKET),
        F.xxhash64(*columns, *(c.isNull() for c in columns)).alias(_HASH),
    )


def _hashable(rows: DataFrame, column: str) -> Column:
    if "map<" in rows.schema[column].dataType.simpleString():
        return F.to_json(name(column))
    return name(column)


def _buckets(hashed: DataFrame) -> DataFrame:
    total = F.sum(F.col(_HASH).cast("decimal(38,0)"))
    return hashed.groupBy(_BUCKET).agg(F.count(F.lit(1)).alias("n"), total.alias("s"))


def _differences(
    actual: DataFrame, wanted: DataFrame, table_schema: TableSchema, limit: int
) -> tuple[dict[str, str], ...]:
    keys = list(table_schema.keys)
    a = actual.select(*map(name, keys), F.col(_HASH).alias("_gddl__a"))
    b = wanted.select(*map(name, keys), F.col(_HASH).alias("_gddl__b"))
    found = a.join(b, keys, "full_outer").where(~F.col("_gddl__a").eqNullSafe(F.col("_gddl__b")))
    state = (
        F.when(F.col("_gddl__a").isNull(), "missing").when(F.col("_gddl__b").isNull(), "extra").otherwise("different")
    )
    rows = (
        found.select(F.to_json(F.struct(*map(name, keys))).alias("key"), state.alias("state"))
        .orderBy("key")
        .limit(limit)
    )
    return tuple({"key": r["key"], "state": r["state"]} for r in rows.collect())
