"""Erased keys: kept out of what comes in, and taken out of what is there."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from spark_jobs.engines.shape import Shape
from spark_jobs.engines.spark.decode import ERROR
from spark_jobs.engines.spark.order import name
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.erased_keys import ErasedKeys

_BLOCK = 64
"""Bytes of a block of SHA-256, to which HMAC fills its key."""


def without_erased(rows: DataFrame, shape: Shape, erased: ErasedKeys) -> tuple[DataFrame, int]:
    """Decoded rows without those of erased keys, good or bad, and how many these were; before images are emptied."""
    if not erased:
        return rows, 0
    gone = _held(_texts(shape, old=False), erased)
    old = _held(_texts(shape, old=True), erased) if shape.before_of_key else F.lit(False)
    gone = gone | (old & F.col(ERROR).isNotNull())  # its record would hold the before image
    count = rows.where(gone).count()
    left = rows.where(~gone)
    images = {c.name: F.when(~old, name(c.name)) for c in shape.before} if shape.before_of_key else {}
    return (left.withColumns(images) if images else left), count


def _texts(shape: Shape, *, old: bool) -> list[Column]:
    """The key as text, part by part; `old`: before the change."""
    images = shape.before_of_key if old else {}
    return [(F.coalesce(name(images[k]), name(k)) if k in images else name(k)).cast("string") for k in shape.keys]


def _held(texts: list[Column], erased: ErasedKeys) -> Column:
    return F.coalesce(hash_of(texts, erased).isin(*sorted(erased.hashes)), F.lit(False))


def hash_of(texts: list[Column], erased: ErasedKeys) -> Column:
    """See `ErasedKeys.hash_of`; null for a key with a null part."""
    parts = [part for text in texts for part in (F.length(text).cast("string"), F.lit(":"), text)]
    message = F.encode(F.concat(F.lit(f"{erased.table}\n"), *parts), "UTF-8")
    key = erased.salt.ljust(_BLOCK, b"\0")
    inner = F.sha2(F.concat(_bytes(b ^ 0x36 for b in key), message), 256)
    return F.sha2(F.concat(_bytes(b ^ 0x5C for b in key), F.unhex(inner)), 256)


def _bytes(values: object) -> Column:
    return F.unhex(F.lit(bytes(values).hex()))  # type: ignore[call-overload]  # any iterable of whole numbers


@dataclass(frozen=True)
class SparkEraser:
    """See `Eraser`."""

    tables: Tables

    def remove_key(self, path: str, shape: Shape, key: tuple[str, ...]) -> int:
        return self._remove(path, _is(_texts(shape, old=False), key))

    def empty_images(self, path: str, shape: Shape, key: tuple[str, ...]) -> int:
        if not shape.before_of_key:
            return 0
        where = _is(_texts(shape, old=True), key)
        named = F.lit(False)
        for column in shape.before:
            named = named | name(column.name).isNotNull()
        count = self.tables.read(path).where(where & named).count()
        if count:
            nothing: Assignments = {f"`{c.name}`": F.lit(None) for c in shape.before}
            self.tables.handle(path).update(where, nothing)
        self._purge(path)
        return count

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        rows = self.tables.read(path).where(F.col("record").isNotNull()).select("id", "record")
        ids = [row["id"] for row in rows.toLocalIterator() if holds(row["record"])]
        return self._remove(path, F.col("id").isin(ids) & F.col("record").isNotNull()) if ids else 0

    def _remove(self, path: str, where: Column) -> int:
        count = self.tables.read(path).where(where).count()
        if count:
            self.tables.handle(path).delete(where)
        self._purge(path)
        return count

    def _purge(self, path: str) -> None:
        """Rows that deletion vectors only mark leave the files in use, those of earlier deletes too."""
        quoted = path.replace("`", "``")
        self.tables.spark.sql(f"REORG TABLE delta.`{quoted}` APPLY (PURGE)")


def _is(texts: list[Column], key: tuple[str, ...]) -> Column:
    same = F.lit(True)
    for text, wanted in zip(texts, key, strict=True):
        same = same & text.eqNullSafe(F.lit(wanted))
    return same
