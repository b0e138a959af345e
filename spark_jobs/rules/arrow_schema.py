"""One schema, three spellings: the plans' SQL types, Arrow's, and the JSON of Delta's log."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import (
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
)
from spark_jobs.plan.columns import Column

_ARROW: Mapping[str, pa.DataType] = {
    "void": pa.null(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DELTA = {"tinyint": "byte", "smallint": "short", "int": "integer", "bigint": "long"}
SQL_NAMES = {delta: sql for sql, delta in _DELTA.items()}
"""Names of the Delta log that SQL has otherwise."""


@functools.cache
def arrow_type(kind: SqlType) -> pa.DataType:
    """The Arrow type in which values of a type are kept in memory and in data files."""
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, ArrayType):
        return pa.list_(arrow_type(kind.element))
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.key), arrow_type(kind.value))
    if isinstance(kind, StructType):
        return pa.struct([pa.field(f.name, arrow_type(f.type)) for f in kind.fields])
    if isinstance(kind, ScalarType):
        return _ARROW[kind.name]
    raise TypeError(f"no Arrow type for {kind}")  # plans refuse such types before an engine sees them


def delta_type(kind: SqlType) -> Any:
    """The type as Delta's log spells it: text or an object."""
    if isinstance(kind, ArrayType):
        return {"type": "array", "elementType": delta_type(kind.element), "containsNull": True}
    if isinstance(kind, MapType):
        return {"type": "map", "keyType": delta_type(kind.key), "valueType": delta_type(kind.value),
                "valueContainsNull": True}  # fmt: skip
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_delta_field(f.name, f.type, {}) for f in kind.fields]}
    return _DELTA.get(str(kind), str(kind))


def _delta_field(name: str, kind: SqlType, metadata: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "type": delta_type(kind), "nullable": True, "metadata": dict(metadata)}


def sql_type(kind: Any) -> SqlType:
    """The inverse of `delta_type`."""
    if isinstance(kind, str):
        if kind.startswith("decimal("):
            precision, scale = kind[8:-1].split(",")
            return DecimalType(int(precision), int(scale))
        return ScalarType(SQL_NAMES.get(kind, kind))  # type: ignore[arg-type]  # the log holds Delta's own names
    if kind["type"] == "array":
        return ArrayType(sql_type(kind["elementType"]))
    if kind["type"] == "map":
        return MapType(sql_type(kind["keyType"]), sql_type(kind["valueType"]))
    return StructType(tuple(StructField(f["name"], sql_type(f["type"])) for f in kind["fields"]))


@dataclass(frozen=True)
class DeltaSchema:
    """Columns of a Delta table in order.

    Attributes:
        metadata: column to what the log says of it besides: comments and the like.
    """

    columns: tuple[Column, ...]
    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(c.name for c in self.columns)

    @functools.cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {c.name: c.type for c in self.columns}

    @functools.cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])

    def retyped(self, types: Mapping[str, SqlType]) -> DeltaSchema:
        """The same columns, some of them with other types."""
        return replace(self, columns=tuple(Column(c.name, types.get(c.name, c.type)) for c in self.columns))

    def to_json(self) -> str:
        fields = [_delta_field(c.name, c.type, self.metadata.get(c.name, {})) for c in self.columns]
        return json.dumps({"type": "struct", "fields": fields})


@functools.lru_cache(maxsize=512)
def schema_of(text: str) -> DeltaSchema:
    """From the JSON of Delta's log; raises ValueError or TypeError for types that are not known here."""
    fields: Sequence[dict[str, Any]] = json.loads(text)["fields"]
    columns = tuple(Column(f["name"], sql_type(f["type"])) for f in fields)
    for column in columns:
        arrow_type(column.type)
    metadata = {f["name"]: f["metadata"] for f in fields if f.get("metadata")}
    return DeltaSchema(columns, metadata)
