"""Columns of Spark frames by exact name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.sql_types import quoted
from spark_jobs.plan.table_schema import TableSchema

_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def name(column: str) -> Column:
    """A column by its exact name, which may have dots and spaces."""
    return F.col(quoted(column))


def at(side: str, column: str) -> Column:
    """A column of one side of a join or merge."""
    return F.col(f"{side}.{quoted(column)}")


def retyped(rows: DataFrame, column: str, kind: T.DataType) -> Column:
    """A column cast to another type, fields of structs by name as `arrays.by_name` does; null where there is none.

    A cast of Spark goes by position.
    """
    if column not in rows.columns:
        return F.lit(None).cast(kind).alias(column)
    return _retyped(name(column), rows.schema[column].dataType, kind).alias(column)


def _retyped(value: Column, have: T.DataType, kind: T.DataType) -> Column:
    if have.simpleString() == kind.simpleString():  # the usual case, at no cost for each row
        return value
    if isinstance(have, T.StructType) and isinstance(kind, T.StructType):
        known = {field.name.lower(): field for field in have.fields}
        fields = []
        for field in kind.fields:
            old = known.get(field.name.lower())
            found = F.lit(None) if old is None else _retyped(value[old.name], old.dataType, field.dataType)
            fields.append(found.cast(field.dataType).alias(field.name))
        return F.when(value.isNotNull(), F.struct(*fields))
    if isinstance(have, T.ArrayType) and isinstance(kind, T.ArrayType):
        element = kind.elementType
        return F.transform(value, lambda item: _retyped(item, have.elementType, element))
    if isinstance(have, T.MapType) and isinstance(kind, T.MapType):
        of_values = kind.valueType
        found = F.transform_values(value, lambda _, item: _retyped(item, have.valueType, of_values))
        return found.cast(kind)
    return value.cast(kind)


def old_value(table_schema: TableSchema, key: str) -> Column:
    """A key column before a change: the before image where there is one."""
    before = table_schema.before_of_key.get(key)
    return name(key) if before is None else F.coalesce(name(before), name(key))


def tuples(rows: DataFrame, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """Rows as values; timestamps as text, since Spark returns them in the time zone of this process."""
    kinds = dict(rows.dtypes)
    zones = [kinds[c] == "timestamp" for c in columns]
    chosen = [F.date_format(name(c), _ISO).alias(c) if kinds[c].startswith("timestamp") else name(c) for c in columns]
    for row in rows.select(*chosen).toLocalIterator():
        yield tuple(f"{v}+00:00" if zoned and v else v for v, zoned in zip(row, zones, strict=True))
