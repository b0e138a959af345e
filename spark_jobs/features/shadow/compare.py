"""Compares both sides: columns and types, table features, rows by key, the change feed, and statistics of new files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.features.shadow import DifferentKey
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.table_spec import lowered
from airflow_gddl.stores import Storage
from spark_jobs.features.shadow.sides import Sides
from spark_jobs.features.shadow.statistics import wrong_statistics
from spark_jobs.tables.delta_log import CDF, is_on
from spark_jobs.tables.engine import ProposedCommit
from spark_jobs.tables.spark_merge import equal_at, sql_text
from spark_jobs.tables.spark_merge import name as column

MOST_KEYS = 20
"""Keys whose rows are kept."""
HIDDEN = "(masked)"
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX", "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "ignoreNullFields": "false",
}  # fmt: skip
_HASH, _COUNT, _SIDE = "_shadow_hash", "_shadow_count", "_shadow_side"
_OF_FEED = ("_commit_version", "_commit_timestamp")
_CHANGE_TYPE, _KIND = "_change_type", "_shadow_kind"


@dataclass
class Findings:
    """Attributes:
    sorts: sort of difference to how often it was found.
    """

    sorts: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    keys: list[DifferentKey] = field(default_factory=list)

    def add(self, sort: str, note: str = "", count: int = 1) -> None:
        if count:
            self.sorts[sort] = self.sorts.get(sort, 0) + count
        if note:
            self.notes.append(f"{sort}: {note}")


@dataclass(frozen=True)
class Comparison:
    """Attributes:
    keys: columns by which rows are compared; empty: all.
    masked: columns whose values are not shown.
    """

    sides: Sides
    keys: Sequence[str]
    masked: Sequence[str]

    def run(self) -> Findings:
        """
        Raises:
            Exception: Spark's side can't be read.
        """
        found, sides = Findings(), self.sides
        theirs = sides.read(sides.theirs)
        our_part, their_part = sides.differing()
        try:
            ours = sides.read(sides.ours)
            for path in sides.unmatched_removals:
                found.add("removals", f"{path} is in the log under another path or vector")
            self._compare_columns(ours, theirs, found)
            self._compare_features(found)
            if not {"columns", "types"} & found.sorts.keys():
                self._compare_rows(our_part, their_part, found)
                self._compare_feeds(found)
            self._check_statistics(found)
        except Exception as error:  # noqa: BLE001 - what Spark can't read of our side alone is a difference
            self._require_theirs(their_part)
            found.add("unreadable", _first_line(error))
        return found

    def _compare_columns(self, ours: DataFrame, theirs: DataFrame, found: Findings) -> None:
        mine, wanted = ({one.name: sql_text(one.dataType) for one in side.schema} for side in (ours, theirs))
        if list(mine) != list(wanted):
            found.add("columns", f"{', '.join(mine)}, not {', '.join(wanted)}")
        for name in mine.keys() & wanted.keys():
            if mine[name] != wanted[name]:
                found.add("types", f"{name} is {mine[name]}, not {wanted[name]}")

    def _compare_features(self, found: Findings) -> None:
        mine, wanted = (_header(self.sides, side) for side in (self.sides.ours, self.sides.theirs))
        for name in mine.keys() | wanted.keys():
            if mine.get(name) != wanted.get(name):
                found.add("features", f"{name} is {mine.get(name)}, not {wanted.get(name)}")

    def _compare_rows(self, ours: DataFrame, theirs: DataFrame, found: Findings) -> None:
        sides = [_hashed(rows, self.keys).withColumn(_SIDE, F.lit(n)) for n, rows in enumerate((ours, theirs))]
        keys = self.keys or (_HASH,)
        facts = [F.count_if(F.col(_SIDE) == n).alias(f"{_COUNT} {n}") for n in range(2)]
        facts += [F.sum(F.when(F.col(_SIDE) == n, F.col(_HASH))).alias(f"{_HASH} {n}") for n in range(2)]
        by_key = sides[0].unionByName(sides[1]).groupBy(*map(column, keys)).agg(*facts)
        mine, wanted = (F.col(f"`{_COUNT} {n}`") for n in range(2))
        differ = (mine != wanted) | ~F.col(f"`{_HASH} 0`").eqNullSafe(F.col(f"`{_HASH} 1`"))
        different = by_key.where(differ)
        sorts = {
            "missing": mine == 0, "extra": wanted == 0, "values": mine == wanted,
            "repeated": (mine != wanted) & (mine > 0) & (wanted > 0),
        }  # fmt: skip
        (counts,) = different.agg(*(F.count_if(holds).alias(sort) for sort, holds in sorts.items())).collect()
        for sort, count in counts.asDict().items():
            found.add(sort, count=count)
        if found.sorts and self.keys:
            found.keys += self._shown(ours, theirs, different.select(*map(column, keys)).limit(MOST_KEYS))

    def _shown(self, ours: DataFrame, theirs: DataFrame, keys: DataFrame) -> list[DifferentKey]:
        mine, wanted = (self._rows_of(side, keys) for side in (ours, theirs))
        return [_different(key, mine.get(key, []), wanted.get(key, [])) for key in sorted({*mine, *wanted})]

    def _rows_of(self, rows: DataFrame, keys: DataFrame) -> dict[str, list[str]]:
        """JSON of a key to the JSON of its rows."""
        hidden = lowered(self.masked)
        shown = [
            F.when(column(c).isNotNull(), F.lit(HIDDEN)).alias(c) if c.lower() in hidden else column(c)
            for c in rows.columns
        ]
        names = list(self.keys)
        on = equal_at("rows", "keys", names)
        mine = rows.alias("rows").join(F.broadcast(keys.alias("keys")), on, "left_semi")
        texts = mine.select(_json(*map(column, names)).alias("key"), _json(*shown).alias("row"))
        found: dict[str, list[str]] = {}
        for row in texts.limit(4 * MOST_KEYS).collect():
            found.setdefault(row["key"], []).append(row["row"])
        return found

    def _compare_feeds(self, found: Findings) -> None:
        """The change data feeds of both commits, where the table has one."""
        if not self._has_feed:
            return
        feeds = [self._feed(side) for side in (self.sides.ours, self.sides.theirs)]
        if count := _unmatched([_signed_changes(feed) for feed in feeds], (_HASH, _KIND)).count():
            found.add("feed", f"{count} changes are not on both sides", count)

    @property
    def _has_feed(self) -> bool:
        return is_on(_header(self.sides, self.sides.theirs)["properties"], CDF)

    def _feed(self, side: str) -> DataFrame:
        """Changes of a side, without those that made it; a `MERGE` that changes nothing makes no commit."""
        begins = self.sides.commits - (0 if self.sides.is_changed(side) else 1)
        reader = self.sides.spark.read.format("delta").option("readChangeFeed", "true")
        changes = reader.option("startingVersion", begins).load(side)
        return changes.where(F.col("_commit_version") >= self.sides.commits).drop(*_OF_FEED)

    def _require_theirs(self, their_part: DataFrame) -> None:
        """
        Raises:
            Exception: Spark can't read its own side.
        """
        _hashed(their_part, self.keys).groupBy().agg(F.sum(_HASH)).collect()
        if self._has_feed:
            self._feed(self.sides.theirs).count()

    def _check_statistics(self, found: Findings) -> None:
        for note in wrong_statistics(self.sides.spark, self.sides.storage, self.sides.new_files):
            found.add("statistics", note)


@dataclass(frozen=True)
class AppendedFiles:
    """Commits that add rows to a table, or write small files again with them: Spark reads their files alone."""

    spark: SparkSession
    storage: Storage
    proposed: ProposedCommit

    def run(self, added: DataFrame | None = None) -> Findings:
        """
        Args:
            added: the rows that the commit adds; None: they are not compared.

        Raises:
            Exception: files that the commit removes can't be read.
        """
        found, new, removed = Findings(), self._files("add"), self._files("remove")
        try:
            for note in wrong_statistics(self.spark, self.storage, new):
                found.add("statistics", note)
            if added is not None:
                missing, extra = _balance(self._rows(removed).unionByName(added), self._rows(new))
                found.add("missing", count=missing)
                found.add("extra", count=extra)
        except Exception as error:  # noqa: BLE001 - as above
            self._rows(removed).count()
            found.add("unreadable", _first_line(error))
        return found

    @property
    def schema(self) -> T.StructType:
        """Of the table."""
        return T.StructType.fromJson(json.loads(self.proposed.log.schema))

    def _files(self, kind: str) -> list[dict[str, Any]]:
        named = (action[kind] for action in self.proposed.actions if kind in action)
        return [{**one, "path": join(self.proposed.path, unquote(one["path"]))} for one in named]

    def _rows(self, files: Sequence[Mapping[str, Any]]) -> DataFrame:
        paths = [one["path"] for one in files]
        return (
            self.spark.read.schema(self.schema).parquet(*paths)
            if paths
            else self.spark.createDataFrame([], self.schema)
        )


def _header(sides: Sides, side: str) -> dict[str, Any]:
    """Protocol, properties and partitions of a side's newest version."""
    named = {name: action for one in sides.header(side) for name, action in one.items()}
    protocol, metadata = named["protocol"], named["metaData"]
    features = {name: sorted(protocol.get(name) or ()) for name in ("readerFeatures", "writerFeatures")}
    versions = {name: protocol.get(name) for name in ("minReaderVersion", "minWriterVersion")}
    properties = dict(metadata.get("configuration") or {})
    return {**versions, **features, "properties": properties, "partitions": metadata.get("partitionColumns")}


def _hashed(rows: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Keys and the hash of each row, as a number whose sums fit."""
    return rows.select(*map(column, keys), _hash_of(rows).cast("decimal(38,0)").alias(_HASH))


def _hash_of(rows: DataFrame) -> Column:
    return F.xxhash64(*(_hashable(rows, name) for name in rows.columns))


def _signed_changes(feed: DataFrame) -> DataFrame:
    """Changes of a feed by hash; updates that leave a row as it is, which only Spark lists, cancel out."""
    kind = F.col(_CHANGE_TYPE)
    step = F.when(kind.startswith("update"), "update").otherwise(kind).alias(_KIND)
    sign = F.when(kind == "update_preimage", -1).otherwise(1).alias(_COUNT)
    return feed.select(_hash_of(feed.drop(_CHANGE_TYPE)).alias(_HASH), step, sign)


def _unmatched(both: Sequence[DataFrame], names: Sequence[str]) -> DataFrame:
    """Of two sides with `_COUNT`, its sums by names, the second subtracted, where they are not 0."""
    mine, wanted = both
    subtracted = wanted.withColumn(_COUNT, -F.col(_COUNT))
    sums = mine.unionByName(subtracted).groupBy(*names).agg(F.sum(_COUNT).alias(_COUNT))
    return sums.where(F.col(_COUNT) != 0)


def _balance(wanted: DataFrame, mine: DataFrame) -> tuple[int, int]:
    """How many rows are missing, and how many are too many; equal ones are counted."""
    both = [rows.select(_hash_of(rows).alias(_HASH), F.lit(1).alias(_COUNT)) for rows in (wanted, mine)]
    left = _unmatched(both, (_HASH,))
    sums = left.agg(*(F.sum(F.greatest(F.col(_COUNT) * sign, F.lit(0))) for sign in (1, -1))).collect()[0]
    return int(sums[0] or 0), int(sums[1] or 0)


def _hashable(rows: DataFrame, name: str) -> Column:
    """Spark hashes no maps."""
    kind = rows.schema[name].dataType.simpleString()
    return _json(column(name)) if "map<" in kind or "variant" in kind else column(name)


def _json(*columns: Column) -> Column:
    return F.to_json(F.struct(*columns), _TIMES)


def _different(key: str, ours: Sequence[str], theirs: Sequence[str]) -> DifferentKey:
    columns: tuple[str, ...] = ()
    if len(ours) == len(theirs) == 1:
        mine, wanted = json.loads(ours[0]), json.loads(theirs[0])
        columns = tuple(name for name in wanted if mine.get(name) != wanted[name])
    mine_shown, wanted_shown = (" and ".join(rows) or None for rows in (ours, theirs))
    return DifferentKey(key=key, ours=mine_shown, spark=wanted_shown, columns=columns)


def _first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    said = [line for line in lines if "Exception" in line or "[" in line] or lines
    return (said[0] if said else type(error).__name__)[:500]
