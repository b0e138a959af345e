"""Does the replica hold what its change table folds to? Counts, and a hash per bucket of keys."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from spark_jobs.engines.figures import BUCKETS, Verdict
from spark_jobs.engines.shape import GDDL, Shape
from spark_jobs.engines.spark.fold import fold, net
from spark_jobs.engines.spark.order import OP, events, name

_HASH, _BUCKET = f"{GDDL}__hash", f"{GDDL}__bucket"


def expected_state(changes: DataFrame, shape: Shape, swept: int) -> DataFrame:
    """Rows that the replica should have: each key's fold in its highest generation, deleted ones left out.

    Args:
        swept: rows of generations before this one have vanished.
    """
    happened = events(changes.where(F.col(GDDL)["generation"] >= swept), shape)
    latest = F.max(F.col(GDDL)["generation"]).over(Window.partitionBy(*map(name, shape.keys)))
    happened = happened.withColumn("_gddl__latest", latest).where(F.col(GDDL)["generation"] == F.col("_gddl__latest"))
    folded = fold(happened, shape) if shape.partial else net(happened, shape)
    return folded.where(F.col(OP) != "D").select(*map(name, shape.columns))


def verify(replica: DataFrame, changes: DataFrame, shape: Shape, swept: int, limit: int) -> Verdict:
    """Compare; the keys that differ are looked for only where buckets do."""
    live = replica
    if shape.spec.delete == "soft" and shape.keys:
        live = replica.where(~F.coalesce(F.col(GDDL)["deleted"], F.lit(False)))
    if shape.keys:
        wanted = expected_state(changes, shape, swept)
    else:
        wanted = changes.where(F.col(GDDL)["generation"] >= swept).select(*map(name, shape.columns))
    actual, wanted = _hashed(live, shape), _hashed(wanted, shape)
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
    if different and shape.keys:
        keys = _differences(
            actual.where(F.col(_BUCKET).isin(different)), wanted.where(F.col(_BUCKET).isin(different)), shape, limit
        )
    return Verdict(rows=sum(r["n"] for r in rows), expected_rows=sum(r["m"] for r in rows),
                   buckets_different=len(different), keys=keys)  # fmt: skip


def _hashed(rows: DataFrame, shape: Shape) -> DataFrame:
    """Keys, bucket of the key, hash of the row."""
    by = shape.keys or shape.columns
    columns = [_hashable(rows, c) for c in shape.columns]
    return rows.select(
        *(name(k) for k in shape.keys),
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


def _differences(actual: DataFrame, wanted: DataFrame, shape: Shape, limit: int) -> tuple[dict[str, str], ...]:
    keys = list(shape.keys)
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
