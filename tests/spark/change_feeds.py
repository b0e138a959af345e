"""The change data feed of a table, compared with the difference of its versions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from pyspark.sql import SparkSession

FEED = {"delta.enableChangeDataFeed": "true"}


Reader = Callable[[str, int], list[dict[str, Any]]]
"""Rows of a table at a version, or of the feed of one version."""


def rows_at(path: str, version: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.table(DeltaTable(path, version=version).to_pyarrow_table()).to_pylist()
    return rows


def feed_at(path: str, version: int) -> list[dict[str, Any]]:
    found = DeltaTable(path).load_cdf(starting_version=version, ending_version=version)
    rows: list[dict[str, Any]] = pa.table(found).to_pylist()
    return rows


def readers_of(spark: SparkSession) -> tuple[Reader, Reader]:
    """`rows_at` and `feed_at` by Spark, which knows deletion vectors."""

    def rows(path: str, version: int) -> list[dict[str, Any]]:
        found = spark.read.format("delta").option("versionAsOf", version).load(path)
        return [row.asDict(recursive=True) for row in found.collect()]

    def feed(path: str, version: int) -> list[dict[str, Any]]:
        options = {"readChangeFeed": "true", "startingVersion": version, "endingVersion": version}
        found = spark.read.format("delta").options(**options).load(path)
        return [row.asDict(recursive=True) for row in found.collect()]

    return rows, feed


def _line(row: Mapping[str, Any]) -> str:
    """Without the feed's own columns, and without nulls: a version may lack a column that the feed's reader has."""
    return repr({name: row[name] for name in sorted(row) if row[name] is not None and not name.startswith("_c")})


def differing_versions(
    path: str, *, net: bool = False, readers: tuple[Reader, Reader] = (rows_at, feed_at), since: int = 0
) -> list[str]:
    """Versions whose feed isn't the difference from the version before, and what is wrong with it.

    Args:
        net: rows may come and go in one version: a full refresh by Spark replaces all rows.
        since: version before the first one to look at; Spark reads no feed of a version with fewer columns.
    """
    found = []
    rows, feed_of = readers
    for version in range(since + 1, DeltaTable(path).version() + 1):
        before, after = (Counter(map(_line, rows(path, number))) for number in (version - 1, version))
        feed = feed_of(path, version)
        gone = Counter(_line(row) for row in feed if row["_change_type"] in ("delete", "update_preimage"))
        come = Counter(_line(row) for row in feed if row["_change_type"] in ("insert", "update_postimage"))
        if net:
            gone, come = gone - come, come - gone
        if gone != before - after or come != after - before:
            found.append(f"version {version}: {feed}, not -{before - after} +{after - before}")
    return found
