"""The change data feed of a table, compared with the difference of its versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import lit

FEED = {"delta.enableChangeDataFeed": "true"}


Rows = list[dict[str, Any]]
Reader = Callable[[str, range], Mapping[int, Rows]]
"""Rows of a table at each of some versions, or of the feed of each."""


def rows_at(path: str, versions: range) -> dict[int, Rows]:
    return {v: pa.table(DeltaTable(path, version=v).to_pyarrow_table()).to_pylist() for v in versions}


def feed_at(path: str, versions: range) -> dict[int, Rows]:
    table = DeltaTable(path)
    return {v: pa.table(table.load_cdf(starting_version=v, ending_version=v)).to_pylist() for v in versions}


def latest_feed(path: str) -> Rows:
    version = DeltaTable(path).version()
    return feed_at(path, range(version, version + 1))[version]


def readers_of(spark: SparkSession) -> tuple[Reader, Reader]:
    """`rows_at` and `feed_at` by Spark, which knows deletion vectors: one query each, as each takes a second."""

    def rows(path: str, versions: range) -> dict[int, Rows]:
        read = spark.read.format("delta")
        frames = [read.option("versionAsOf", v).load(path).withColumn("_commit_version", lit(v)) for v in versions]
        return _by_version(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), frames), versions)

    def feed(path: str, versions: range) -> dict[int, Rows]:
        options = {"readChangeFeed": "true", "startingVersion": versions[0], "endingVersion": versions[-1]}
        return _by_version(spark.read.format("delta").options(**options).load(path), versions)

    return rows, feed


def _by_version(frame: DataFrame, versions: range) -> dict[int, Rows]:
    found: dict[int, Rows] = {version: [] for version in versions}
    for row in frame.collect():
        found[row["_commit_version"]].append(row.asDict(recursive=True))
    return found


def _line(row: Mapping[str, Any]) -> str:
    """Without the feed's own columns, and without nulls: a version may lack a column that the feed's reader has."""
    return repr({name: row[name] for name in sorted(row) if row[name] is not None and not name.startswith("_c")})


def differing_versions(
    path: str, *, net: bool = False, readers: tuple[Reader, Reader] = (rows_at, feed_at), since: int = 0
) -> list[str]:
    """Versions whose feed isn't the difference from the version before, and what is wrong with it.

    Args:
        net: rows may come and go in one version: a rebuild by Spark replaces all rows.
        since: version before the first one to look at; Spark reads no feed of a version with fewer columns.
    """
    found = []
    versions = range(since + 1, DeltaTable(path).version() + 1)
    rows, feeds = readers[0](path, range(since, versions.stop)), readers[1](path, versions)
    for version in versions:
        before, after = (Counter(map(_line, rows[number])) for number in (version - 1, version))
        feed = feeds[version]
        gone = Counter(_line(row) for row in feed if row["_change_type"] in ("delete", "update_preimage"))
        come = Counter(_line(row) for row in feed if row["_change_type"] in ("insert", "update_postimage"))
        if net:
            gone, come = gone - come, come - gone
        if gone != before - after or come != after - before:
            found.append(f"version {version}: {feed}, not -{before - after} +{after - before}")
    return found
