"""Erased keys: kept out of what comes in, and taken out of what is there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from spark_jobs.engines.spark.columns import name
from spark_jobs.engines.spark.decode import ERROR
from spark_jobs.engines.spark.measure import json_of
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.maintenance.erased_keys import EXACT_REAL, MIDNIGHT, ErasedKeys
from spark_jobs.plan.types import DecimalType, SqlType
from spark_jobs.rules.figures import ChangesErased
from spark_jobs.table.table_schema import GDDL, TableSchema

_BLOCK = 64
"""Bytes of a block of SHA-256, to which HMAC fills its key."""
_SAMPLE = 5


def without_erased(rows: DataFrame, table_schema: TableSchema, erased: ErasedKeys) -> tuple[DataFrame, int]:
    """Decoded rows without those of erased keys, good or bad, and how many these were; before images are emptied.

    An update that moved a row to an erased key becomes the delete of the old key, which it was too.
    """
    if not erased:
        return rows, 0
    bad = F.col(ERROR).isNotNull()
    keys = [_texts(table_schema, old=was) for was in ((False, True) if table_schema.before_of_key else (False,))]
    later = _later(rows, keys, erased)
    own = _held(keys[0], erased, later)
    old = _held(keys[1], erased, later) if table_schema.before_of_key else F.lit(False)
    turned = own & ~old & ~bad & F.coalesce(moved(table_schema), F.lit(False))
    gone = (own & ~turned) | (old & bad)  # a bad one's record would hold the before image
    count = rows.where(gone).count()
    left = rows.where(~gone)
    if not table_schema.before_of_key:
        return left, count
    kinds = {field.name: field.dataType for field in rows.schema.fields}
    delete = _as_delete(table_schema, kinds)
    changed = {c: F.when(turned, v.cast(kinds[c])).otherwise(name(c)) for c, v in delete.items()}
    changed |= {c.name: F.when(~(old | turned), name(c.name)) for c in table_schema.before}
    return left.withColumns(changed), count


def _as_delete(table_schema: TableSchema, kinds: Mapping[str, DataType]) -> dict[str, Column]:
    """A moved row's values as the delete of its old key."""
    return {**old_key(table_schema, kinds), GDDL: F.col(GDDL).withField("op", F.lit("D"))}


def moved(table_schema: TableSchema) -> Column:
    """Whether a change is an update that changed its key."""
    differs = F.lit(False)
    for key, before in table_schema.before_of_key.items():
        differs = differs | (F.coalesce(name(before), name(key)) != name(key))
    return (F.col(GDDL)["op"] == "U") & differs


def old_key(table_schema: TableSchema, kinds: Mapping[str, DataType]) -> dict[str, Column]:
    """Columns of the replica, of these types, as the delete of the old key has them."""
    columns = {}
    for column in table_schema.columns:
        if column in table_schema.before_of_key:
            columns[column] = F.coalesce(name(table_schema.before_of_key[column]), name(column))
        elif column in table_schema.keys or column == table_schema.spelled(table_schema.spec.force_update):
            columns[column] = name(column)
        else:
            columns[column] = F.lit(None).cast(kinds[column])
    return columns


def _texts(table_schema: TableSchema, *, old: bool) -> list[Column]:
    """The key as text, part by part; `old`: before the change."""
    kinds = {c.name: c.type for c in (*table_schema.data, *table_schema.before)}
    images = table_schema.before_of_key if old else {}
    found = []
    for key in table_schema.keys:
        image = images.get(key)
        value = name(key) if image is None else F.coalesce(name(image), name(key))
        found.append(text_of(value, [kinds[key], *([] if image is None else [kinds[image]])]))
    return found


def text_of(value: Column, kinds: Sequence[SqlType]) -> Column:
    """See `erased_keys.key_text`.

    Args:
        kinds: the value's type, or those of the columns it comes from.
    """
    text = value.cast("string")
    if any(isinstance(kind, DecimalType) for kind in kinds):
        return F.when(text.contains("."), F.regexp_replace(text, r"\.?0+$", "")).otherwise(text)
    names = {str(kind) for kind in kinds}
    if names & {"float", "double"}:
        whole = (value % F.lit(1.0) == 0) & (F.abs(value) < F.lit(float(EXACT_REAL)))
        return F.when(whole, value.cast("bigint").cast("string"))
    if "timestamp_ntz" in names:
        return F.regexp_replace(text, f"{MIDNIGHT}$", "")
    return text


def _held(texts: list[Column], erased: ErasedKeys, later: Sequence[str]) -> Column:
    """Whether a row is of an erased key, and of before its erasure."""
    found = hash_of(texts, erased)
    held = F.coalesce(found.isin(*sorted(erased.hashes)), F.lit(False))
    return held & ~_facts(found).isin(*later) if later else held


def _facts(key_hash: Column) -> Column:
    """All that tells whether a row is of before the erasure of its key, as text: hash, file, sequence, commit time."""
    gddl = F.col(GDDL)
    time = F.date_format(gddl["commit_ts"], "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX")
    parts = (key_hash, gddl["source_file"], json_of(gddl["sequence"]), time)
    return F.to_json(F.array(*(F.coalesce(part, F.lit("")) for part in parts)))


def _later(rows: DataFrame, keys: Sequence[list[Column]], erased: ErasedKeys) -> list[str]:
    """Those facts of rows of erased keys that tell of a time after the erasure."""
    found: set[str] = set()
    for texts in keys:
        mine = rows.where(_held(texts, erased, ()))
        found.update(row[0] for row in mine.select(_facts(hash_of(texts, erased))).distinct().collect())
    return sorted(text for text in found if not _is_kept_out(erased, *json.loads(text)))


def _is_kept_out(erased: ErasedKeys, key_hash: str, source: str, sequence: str, time: str) -> bool:
    commit_ts = datetime.fromisoformat(time) if time else None
    return erased.is_kept_out(key_hash, commit_ts, sequence or None, source)


def hash_of(texts: list[Column], erased: ErasedKeys) -> Column:
    """See `ErasedKeys.hash_of`; null for a key with a null part."""
    parts = [part for text in erased.arranged(texts) for part in (F.length(text).cast("string"), F.lit(":"), text)]
    message = F.encode(F.concat(F.lit(f"{erased.table}\n"), *parts), "UTF-8")
    key = erased.salt.ljust(_BLOCK, b"\0")
    inner = F.sha2(F.concat(_bytes(b ^ 0x36 for b in key), message), 256)
    return F.sha2(F.concat(_bytes(b ^ 0x5C for b in key), F.unhex(inner)), 256)


def _bytes(values: object) -> Column:
    return F.unhex(F.lit(bytes(values).hex()))  # type: ignore[call-overload]  # any iterable of whole numbers


@dataclass(frozen=True)
class SparkEraser:
    """See `Eraser`.

    Keys come as rows of a merge, never as literals of a condition: Delta writes conditions into its log.
    """

    tables: Tables

    def remove_key(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> int:
        own = _is(_texts(table_schema, old=False), _literals(key))
        count = self.tables.read(path).where(own).count()
        if count:
            wanted, parts = self._wanted(key)
            condition = _is(_texts(table_schema, old=False), parts)
            self.tables.handle(path).merge(wanted, condition).whenMatchedDelete().execute()
        self._purge(path)
        return count

    def remove_changes(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> ChangesErased:
        if not table_schema.before_of_key:
            return ChangesErased(removed=self.remove_key(path, table_schema, key))
        rows = self.tables.read(path)
        own, old = (_is(_texts(table_schema, old=was), _literals(key)) for was in (False, True))
        turned = own & ~old & F.coalesce(moved(table_schema), F.lit(False))
        named = F.lit(False)
        for column in table_schema.before:
            named = named | name(column.name).isNotNull()
        removed, emptied = rows.where(own).count(), rows.where(old & ~own & named).count()
        before = rows.where(turned).select(
            *(t.alias(k) for t, k in zip(_texts(table_schema, old=True), table_schema.keys, strict=True))
        )
        others = before.distinct().limit(_SAMPLE).collect()
        if removed or emptied:
            self._merge_changes(path, table_schema, key)
        self._purge(path)
        return ChangesErased(removed=removed, images=emptied, others=tuple(tuple(row) for row in others))

    def _merge_changes(self, path: str, table_schema: TableSchema, key: tuple[str, ...]) -> None:
        wanted, parts = self._wanted(key)
        own, old = (_is(_texts(table_schema, old=was), parts) for was in (False, True))
        turned = own & ~old & F.coalesce(moved(table_schema), F.lit(False))
        kinds = {field.name: field.dataType for field in self.tables.read(path).schema.fields}
        no_images: Assignments = {_quoted(c.name): F.lit(None).cast(kinds[c.name]) for c in table_schema.before}
        delete: Assignments = {_quoted(c): value.cast(kinds[c]) for c, value in _as_delete(table_schema, kinds).items()}
        merge = self.tables.handle(path).merge(wanted, own | old)
        merge = merge.whenMatchedUpdate(turned, {**delete, **no_images})
        merge = merge.whenMatchedUpdate(~own, no_images)
        merge.whenMatchedDelete().execute()

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        rows = self.tables.read(path).where(F.col("record").isNotNull()).select("id", "record")
        ids = [row["id"] for row in rows.toLocalIterator() if holds(row["record"])]
        where = F.col("id").isin(ids) & F.col("record").isNotNull()
        count = self.tables.read(path).where(where).count() if ids else 0
        if count:
            self.tables.handle(path).delete(where)
        self._purge(path)
        return count

    def _wanted(self, key: tuple[str, ...]) -> tuple[DataFrame, list[Column]]:
        """One row, the key's parts, and its columns."""
        names = [f"{GDDL}__key{number}" for number in range(len(key))]
        row = self.tables.spark.range(1).select(*(F.lit(k).alias(n) for k, n in zip(key, names, strict=True)))
        return row, [F.col(n) for n in names]

    def _purge(self, path: str) -> None:
        """Rows that deletion vectors only mark leave the files in use, those of earlier deletes too."""
        quoted = path.replace("`", "``")
        self.tables.spark.sql(f"REORG TABLE delta.`{quoted}` APPLY (PURGE)")


def _literals(key: tuple[str, ...]) -> list[Column]:
    return [F.lit(part) for part in key]


def _quoted(column: str) -> str:
    return "`{}`".format(column.replace("`", "``"))


def _is(texts: list[Column], key: list[Column]) -> Column:
    same = F.lit(True)
    for text, wanted in zip(texts, key, strict=True):
        same = same & text.eqNullSafe(wanted)
    return same
