"""Erased keys: excluded from new changes, and removed from tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from airflow_gddl.contract.sql_types import DecimalType, SqlType, quoted
from spark_jobs.engines.spark.columns import name, old_value
from spark_jobs.engines.spark.tables import Assignments, Tables
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.erased_keys import EXACT_REAL, MIDNIGHT
from spark_jobs.rules.figures import ChangesErased

_BLOCK = 64
"""Block size of SHA-256 in bytes, to which HMAC pads its key."""
_SAMPLE = 5


def _as_delete(table_schema: TableSchema, kinds: Mapping[str, DataType]) -> dict[str, Column]:
    """A moved row's columns, of these types, as the delete of its old key."""
    columns = {GDDL: F.col(GDDL).withField("op", F.lit("D"))}
    for column in table_schema.columns:
        if column in table_schema.keys:
            columns[column] = old_value(table_schema, column)
        elif column in table_schema.forcing:
            columns[column] = name(column)
        else:
            columns[column] = F.lit(None).cast(kinds[column])
    return columns


def _moved(table_schema: TableSchema) -> Column:
    """Whether a change is an update that changed its key."""
    differs = F.lit(False)
    for key in table_schema.before_of_key:
        differs = differs | (old_value(table_schema, key) != name(key))
    return F.coalesce((F.col(GDDL)["op"] == "U") & differs, F.lit(False))


def _texts(table_schema: TableSchema, *, old: bool) -> list[Column]:
    """The key as text, part by part; `old`: before the change."""
    kinds = {c.name: c.type for c in (*table_schema.data, *table_schema.before)}
    images = table_schema.before_of_key if old else {}
    found = []
    for key in table_schema.keys:
        image, value = images.get(key), old_value(table_schema, key) if old else name(key)
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


def of_key(table_schema: TableSchema, key: tuple[str, ...], columns: Collection[str]) -> Column:
    """Whether rows with these columns have a key, or had it before their change."""
    found = _is(_texts(table_schema, old=False), _literals(key))
    if set(columns).issuperset(table_schema.before_of_key.values()):
        found = found | _is(_texts(table_schema, old=True), _literals(key))
    return found


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
        turned = own & ~old & _moved(table_schema)
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
        turned = own & ~old & _moved(table_schema)
        kinds = {field.name: field.dataType for field in self.tables.read(path).schema.fields}
        no_images: Assignments = {quoted(c.name): F.lit(None).cast(kinds[c.name]) for c in table_schema.before}
        delete: Assignments = {quoted(c): value.cast(kinds[c]) for c, value in _as_delete(table_schema, kinds).items()}
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
        self.tables.spark.sql(f"REORG TABLE delta.{quoted(path)} APPLY (PURGE)")


def _literals(key: tuple[str, ...]) -> list[Column]:
    return [F.lit(part) for part in key]


def _is(texts: list[Column], key: list[Column]) -> Column:
    same = F.lit(True)
    for text, wanted in zip(texts, key, strict=True):
        same = same & text.eqNullSafe(wanted)
    return same
