"""Counts the keys and identities of a batch, as a hint for optimizations."""

from __future__ import annotations

import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.engines.spark.columns import name
from spark_jobs.plan.table_schema import GDDL, TableSchema

KEY, IDENTITY = f"{GDDL}__key", f"{GDDL}__identity"
_IN_DRIVER = 2_000_000
"""Rows up to which hashes are counted in the driver, 16 bytes each: an exchange between tasks takes longer."""


def hashes(rows: DataFrame, table_schema: TableSchema, *others: str) -> DataFrame:
    """`KEY` (null without keys) and `IDENTITY` (key and sequence) of each row as 64-bit hashes, and other columns."""
    keys = [name(k) for k in table_schema.keys]
    key = F.xxhash64(*keys) if keys else F.lit(None).cast("bigint")
    identity = F.xxhash64(F.col(GDDL)["sequence"], *keys)
    return rows.select(key.alias(KEY), identity.alias(IDENTITY), *others)


def count_distinct(hashed: DataFrame, rows: int | None = None) -> tuple[int, int]:
    """Distinct identities and keys among good rows; a hash collision only makes the batch slower.

    Args:
        rows: maximum number; None: unknown.
    """
    if rows is not None and rows <= _IN_DRIVER:
        found = hashed.select(IDENTITY, KEY).toArrow()
        return pc.count_distinct(found.column(IDENTITY)).as_py(), pc.count_distinct(found.column(KEY)).as_py()
    # Partitioned by key, all sequences of a key are together, and one exchange serves both counts.
    pairs = hashed.select(KEY, IDENTITY).repartition(KEY).groupBy(KEY, IDENTITY).agg(F.lit(1))
    counted = pairs.groupBy(KEY).agg(F.count(F.lit(1)).alias("n"))
    row = counted.agg(F.sum("n").alias("i"), F.count(F.lit(1)).alias("k")).collect()[0]
    return int(row["i"] or 0), int(row["k"] or 0)
