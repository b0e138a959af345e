"""Arrow arrays into other Arrow types without loss: by field name, absent fields null, for any layout of the file."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.column_names import clean_name
from airflow_gddl.contract.sql_types import (
    SQL_NAMES,
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
)
from spark_jobs.dialects.protocol import is_nanos
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
_DELTA: dict[str, str] = {sql: delta for delta, sql in SQL_NAMES.items()}


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
        metadata: column to what else the log says of it, such as comments.
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


def flat(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One array without offset, dictionaries decoded."""
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else values.combine_chunks()
        if isinstance(values, pa.ChunkedArray):
            values = values.chunk(0) if values.num_chunks else pa.array([], values.type)
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


def recast(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert what always converts; structs match by name, case-insensitive, with Delta's refused characters replaced.

    Raises:
        pyarrow.ArrowInvalid: a value that doesn't fit after all.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    source = values.type
    if source == target:
        return values
    if pt.is_null(source):
        return pa.nulls(len(values), target)
    if pt.is_nested(target):
        return _recast_nested(values, target)
    if is_text(target) and not is_text(source):
        return texts(values)
    if pt.is_timestamp(target) and not is_text(source):  # by way of the unit, then of the zone
        values = whole_micros(values) if is_nanos(source) else values
        values = values.cast(pa.timestamp("us", source.tz if pt.is_timestamp(source) else None))
    return values.cast(target)


def with_leaves(kind: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """The type with other types inside its structs, maps and lists, all nullable; of a scalar type that one."""
    if pt.is_struct(kind):
        return pa.struct([pa.field(field.name, with_leaves(field.type, change)) for field in kind])
    if pt.is_map(kind):
        return pa.map_(with_leaves(kind.key_type, change), with_leaves(kind.item_type, change))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(with_leaves(kind.value_type, change))
    return change(kind)


def whole_micros(values: pa.Array) -> pa.Array:
    """Times in nanoseconds as the microsecond they are in, which is the earlier one before 1970 too."""
    micros = pa.array(_whole(values) // 1000, mask=np.asarray(values.is_null()))
    return micros.cast(pa.timestamp("us", values.type.tz))


def past_micros(values: pa.Array, int96: pa.Array | None = None) -> pa.Array:
    """Nanoseconds past the microsecond, from 0 to 999, of timestamps of any unit.

    Args:
        int96: timestamps that are in nanoseconds what `values` are in microseconds, both of an INT96 column; of times
            that 64 bits can't hold it has the lowest 64 bits.
    """
    if int96 is None and not is_nanos(values.type):
        return pa.array(np.zeros(len(values), np.int64))
    finer = _whole(values if int96 is None else int96)
    rest = finer - finer // 1000 * 1000 if int96 is None else finer - _whole(values) * 1000  # which wraps around, too
    return pa.array(rest, mask=np.asarray(values.is_null()))


def _whole(times: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(times.cast(pa.int64()), 0))


def count_past_micros(values: pa.Array, int96: pa.Array | None = None) -> int:
    """Times inside values of any type that have a part of a microsecond; `int96` as in `past_micros`."""
    if pt.is_timestamp(values.type):
        return int(np.count_nonzero(past_micros(values, int96).fill_null(0)))
    inner = [None] * len(_parts(values)) if int96 is None else _parts(int96)
    return sum(count_past_micros(part, fine) for part, fine in zip(_parts(values), inner, strict=True))


def _parts(values: pa.Array) -> list[pa.Array]:
    """The arrays that a nested one is made of; none of another."""
    kind = values.type
    if pt.is_struct(kind):
        return list(values.flatten())
    if pt.is_map(kind):
        return [values.keys, values.items]
    return [values.flatten()] if pt.is_list(kind) or pt.is_large_list(kind) else []


def has_nan(values: pa.Array | pa.ChunkedArray) -> bool:
    """Whether a value, or a part of one, is NaN. Nested values have to be in one array."""
    if pt.is_floating(values.type):
        return bool(pc.any(pc.is_nan(values)).as_py())
    return any(has_nan(part) for part in _parts(values))


def texts(values: pa.Array) -> pa.Array:
    """Times of day as `03:04:05.25`, decimals of more than 38 digits as all their digits, others as Arrow does."""
    if pt.is_time(values.type):
        found = pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
        return pc.replace_substring_regex(found, r"(\.[0-9]*[1-9])0+$", r"\1")
    if pt.is_decimal(values.type):
        return pa.array([None if v is None else format(v, "f") for v in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def _recast_nested(values: pa.Array, target: pa.DataType) -> pa.Array:
    if pt.is_struct(target):
        return _recast_struct(values, target)
    return _recast_map(values, target) if pt.is_map(target) else _recast_list(values, target)


def _recast_struct(values: pa.StructArray, target: pa.StructType) -> pa.Array:
    found = {clean_name(f.name).lower(): i for i, f in enumerate(values.type)}
    parts = values.flatten()
    columns = []
    for wanted in target:
        at = found.get(wanted.name.lower())
        columns.append(pa.nulls(len(values), wanted.type) if at is None else recast(parts[at], wanted.type))
    mask = values.is_null() if values.null_count else None
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=mask)


def _recast_list(values: pa.Array, target: pa.ListType) -> pa.Array:
    if pt.is_list_view(values.type) or pt.is_large_list_view(values.type):
        values = _list_of_views(values)
    if not pt.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    values = _rebased(values)
    inner = recast(values.values, target.value_type)
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(values.offsets, inner, type=target, mask=mask)


def _list_of_views(values: pa.Array) -> pa.Array:
    """Arrow 26 casts them to lists that lack their last offset."""
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    mask = values.is_null() if values.null_count else None
    return pa.ListArray.from_arrays(offsets, values.flatten(), mask=mask)


def _recast_map(values: pa.MapArray, target: pa.MapType) -> pa.Array:
    values = _rebased(values)
    keys, items = recast(values.keys, target.key_type), recast(values.items, target.item_type)
    mask = values.is_null() if values.null_count else None
    made = pa.MapArray.from_arrays(values.offsets, keys, items, mask=mask)
    return made if made.type == target else made.cast(target)


def _rebased(values: pa.Array) -> pa.Array:
    """Without an offset: a mask can't be given to a sliced array."""
    return pa.concat_arrays([values, values.slice(0, 0)]) if values.offset else values


def by_name(rows: pa.Table, schema: pa.Schema, lacking: Callable[[str], pa.ChunkedArray] | None = None) -> pa.Table:
    """The columns of a schema, in its order and types. Without columns, as many rows.

    Args:
        lacking: gives what the rows lack; else it is null.
    """
    if not schema.names:
        return rows.select([])
    columns = []
    for wanted in schema:
        at = rows.schema.get_field_index(wanted.name)
        if at < 0 and lacking is None:
            columns.append(pa.nulls(rows.num_rows, wanted.type))
            continue
        found = lacking(wanted.name) if at < 0 and lacking is not None else rows.column(at)
        columns.append(found if found.type == wanted.type else recast(flat(found), wanted.type))
    return pa.Table.from_arrays(columns, schema=schema)


def with_values(rows: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    """The rows with other values in these of their columns."""
    fields, columns = list(rows.schema), list(rows.columns)
    for name, found in values.items():
        at = rows.schema.get_field_index(name)
        fields[at], columns[at] = pa.field(name, found.type), found
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=rows.schema.metadata))


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))
