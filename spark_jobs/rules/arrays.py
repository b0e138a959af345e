"""Arrow arrays into other types without loss, and their values as whole numbers.

Conversion is by field name, absent fields null, for any layout of the file. Numbers give equality and order of values
of any type, for grouping, matching and ranking rows: null equals null alone and is lowest; NaN equals NaN and is
greatest; -0.0 equals 0.0; text compares by code point.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.names import clean_name
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
from spark_jobs.plan.table_schema import GDDL, Column, Schema
from spark_jobs.rooms.dialects.protocol import is_nanos

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
class DeltaSchema(Schema):
    """Columns of a Delta table in order, as its log and Arrow have them.

    Attributes:
        metadata: column to what else the log says of it, such as comments.
    """

    metadata: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @functools.cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {c.name: c.type for c in self.columns}

    @functools.cached_property
    def arrow(self) -> pa.Schema:
        return pa.schema([pa.field(c.name, arrow_type(c.type)) for c in self.columns])

    def retyped(self, types: Mapping[str, SqlType]) -> DeltaSchema:
        """This schema with other types for some columns."""
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


def flat(values: pa.Array | pa.ChunkedArray | np.ndarray) -> pa.Array:
    """One array without offset, dictionaries decoded.

    Raises:
        TextOverflowError: an array holds less text.
    """
    if isinstance(values, np.ndarray):
        return pa.array(values)
    if isinstance(values, pa.ChunkedArray):
        values = values.chunk(0) if values.num_chunks == 1 else _combined(values)
    if pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values


class TextOverflowError(MemoryError):
    """A column has more text in one step than an Arrow array holds, which is 2 GiB."""


def _combined(values: pa.ChunkedArray) -> pa.Array:
    try:
        return values.combine_chunks()
    except pa.ArrowInvalid as error:
        if "offset overflow" not in str(error):
            raise
        raise TextOverflowError(
            f"a column has {values.nbytes:,} bytes of text, of which 2 GiB fit into memory"
        ) from error


def all_false(count: int) -> np.ndarray:
    return np.zeros(count, dtype=bool)


def all_true(count: int) -> np.ndarray:
    return np.ones(count, dtype=bool)


def is_true(values: pa.Array | pa.ChunkedArray) -> np.ndarray:
    """Where booleans are true; null is false."""
    return np.asarray(pc.fill_null(values, False), dtype=bool)


def gddl_field(rows: pa.Table, name: str) -> pa.ChunkedArray:
    """A field of the `_gddl` of rows."""
    return pc.struct_field(rows.column(GDDL), name)


def rows_where(rows: pa.Table, mask: np.ndarray) -> pa.Table:
    """Rows of which the mask is true; where all are, the rows themselves, since a copy of a full load takes long."""
    return rows if mask.all() else rows.filter(mask)


def recast(values: pa.Array | pa.ChunkedArray, target: pa.DataType) -> pa.Array:
    """Convert what always converts; structs match by name, case-insensitive, with Delta's refused characters replaced.

    Raises:
        pyarrow.ArrowInvalid: a value that doesn't fit after all.
    """
    if isinstance(values, pa.ChunkedArray):
        values = flat(values)
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if values.type != target and pt.is_dictionary(values.type):
        values = values.dictionary_decode()
    source = values.type
    if source == target:
        return values
    if pt.is_null(source):
        return pa.nulls(len(values), target)
    if pt.is_nested(target):
        nested = _recast_struct if pt.is_struct(target) else _recast_map if pt.is_map(target) else _recast_list
        return nested(values, target)
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
    if not pt.is_nested(values.type):
        return 0
    parts = parts_of(values)
    inner = [None] * len(parts) if int96 is None else parts_of(int96)
    return sum(map(count_past_micros, parts, inner))


def parts_of(values: pa.Array) -> list[pa.Array]:
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
    return any(has_nan(part) for part in parts_of(values))


def texts(values: pa.Array) -> pa.Array:
    """Times of day as `03:04:05.25`, decimals of more than 38 digits as all their digits, others as Arrow does."""
    if pt.is_time(values.type):
        trimmed = pc.replace_substring_regex(values.cast(pa.string()), r"\.0+$", "")
        return pc.replace_substring_regex(trimmed, r"(\.[0-9]*[1-9])0+$", r"\1")
    if pt.is_decimal(values.type):
        return pa.array([None if v is None else format(v, "f") for v in values.to_pylist()], pa.string())
    return values.cast(pa.string())


def _recast_struct(values: pa.StructArray, target: pa.StructType) -> pa.Array:
    places = {clean_name(f.name).lower(): i for i, f in enumerate(values.type)}
    parts = values.flatten()
    columns = []
    for wanted in target:
        at = places.get(wanted.name.lower())
        columns.append(pa.nulls(len(values), wanted.type) if at is None else recast(parts[at], wanted.type))
    return pa.StructArray.from_arrays(columns, fields=list(target), mask=values.is_null())


def _recast_list(values: pa.Array, target: pa.ListType) -> pa.Array:
    if pt.is_list_view(values.type) or pt.is_large_list_view(values.type):
        values = _list_of_views(values)
    if not pt.is_list(values.type):
        values = values.cast(pa.list_(values.type.value_type))
    values = _rebased(values)
    inner = recast(values.values, target.value_type)
    return pa.ListArray.from_arrays(values.offsets, inner, type=target, mask=values.is_null())


def _list_of_views(values: pa.Array) -> pa.Array:
    """Arrow 26 casts them to lists that lack their last offset."""
    sizes = pc.fill_null(pc.list_value_length(values), 0).to_numpy(zero_copy_only=False)
    offsets = pa.array(np.append(0, np.cumsum(sizes)), pa.int32())
    return pa.ListArray.from_arrays(offsets, values.flatten(), mask=values.is_null())


def _recast_map(values: pa.MapArray, target: pa.MapType) -> pa.Array:
    values = _rebased(values)
    keys, items = recast(values.keys, target.key_type), recast(values.items, target.item_type)
    made = pa.MapArray.from_arrays(values.offsets, keys, items, mask=values.is_null())
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
        values = lacking(wanted.name) if at < 0 and lacking is not None else rows.column(at)
        columns.append(values if values.type == wanted.type else recast(values, wanted.type))
    return pa.Table.from_arrays(columns, schema=schema)


def fields_of(schema: pa.Schema, names: Iterable[str]) -> pa.Schema:
    """These columns of a schema."""
    return pa.schema([schema.field(name) for name in names])


def with_values(rows: pa.Table, values: Mapping[str, pa.Array]) -> pa.Table:
    """The rows with other values in these of their columns."""
    fields, columns = list(rows.schema), list(rows.columns)
    for name, column in values.items():
        at = rows.schema.get_field_index(name)
        fields[at], columns[at] = pa.field(name, column.type), column
    return pa.Table.from_arrays(columns, schema=pa.schema(fields, metadata=rows.schema.metadata))


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


_MOST = 2**62
_SIGN = np.int64(2**63 - 1)
NULLS_BY_KEY = int(pa.__version__.partition(".")[0]) >= 25


def comparable(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The column with equal values in one form: to pyarrow, -0.0 is not 0.0, and a NaN may differ from another."""
    column = flat(values)
    if not pt.is_floating(column.type):
        return column
    # Whole numbers that compare as the floating point numbers do.
    bits = np.array(pc.fill_null(in_one_form(column.cast(pa.float64())), 0.0)).view(np.int64)
    return pa.array(np.where(bits < 0, bits ^ _SIGN, bits), mask=np.asarray(column.is_null()))


def in_one_form(values: pa.Array) -> pa.Array:
    """Floating-point numbers with 0.0 for -0.0 and one NaN for all, so that equal keys are the same bits."""
    if not pt.is_floating(values.type):
        return values
    numbers = np.array(pc.fill_null(values.cast(pa.float64()), 0.0)) + 0.0  # -0.0 + 0.0 is 0.0
    numbers[np.isnan(numbers)] = np.nan
    return pa.array(numbers, mask=np.asarray(values.is_null())).cast(values.type)


def codes(values: pa.Array | pa.ChunkedArray | np.ndarray) -> np.ndarray:
    """Equal values have equal codes, from 0 on."""
    column = flat(values)
    if pt.is_struct(column.type):
        return row_codes([column.is_valid(), *column.flatten()], len(column))
    if pt.is_nested(column.type):
        column = pa.array([None if value is None else repr(value) for value in column.to_pylist()], pa.string())
    encoded = pc.dictionary_encode(comparable(column), null_encoding="encode")
    return np.asarray(encoded.indices).astype(np.int64)


def row_codes(columns: Iterable[pa.Array | pa.ChunkedArray | np.ndarray], count: int) -> np.ndarray:
    """Rows that are equal in all columns have equal codes, from 0 to at most `count` - 1."""
    total, size, plain = np.zeros(count, np.int64), 1, True
    for column in columns:
        column_codes = codes(column)
        most = int(column_codes.max(initial=0)) + 1
        if most == 1:
            continue
        if size * most >= _MOST:
            total, size = _dense(total)
        plain = size == 1
        total, size = total * most + column_codes, size * most
    return total if plain else _dense(total)[0]


def _dense(values: np.ndarray) -> tuple[np.ndarray, int]:
    encoded = pc.dictionary_encode(values)
    return np.asarray(encoded.indices).astype(np.int64), len(encoded.dictionary)


def shared_codes(tables: Sequence[Sequence[pa.Array | pa.ChunkedArray]], counts: Sequence[int]) -> list[np.ndarray]:
    """`row_codes` of rows of several tables with the same columns, comparable with each other."""
    joined = [pa.concat_arrays([flat(part) for part in parts]) for parts in zip(*tables, strict=True)]
    return np.split(row_codes(joined, sum(counts)), np.cumsum(counts)[:-1])


def table_codes(tables: Sequence[pa.Table], names: Sequence[str]) -> list[np.ndarray]:
    """`shared_codes` of the same columns of several tables."""
    return shared_codes([[t.column(name) for name in names] for t in tables], [t.num_rows for t in tables])


def sortable(values: pa.Array | pa.ChunkedArray) -> list[pa.Array]:
    """The column as columns that sort as it does, left to right."""
    column = flat(values)
    if pt.is_struct(column.type):
        return [part for field in column.flatten() for part in sortable(field)]
    return [comparable(column)]


def sorted_rows(columns: Sequence[pa.Array]) -> np.ndarray:
    """Row numbers in the order of the columns, left to right, nulls first."""
    names = [str(number) for number in range(len(columns))]
    return np.asarray(ascending(pa.table(list(columns), names=names), names)).astype(np.int64)


def ascending(rows: pa.Table, names: Sequence[str], *, nulls_by_key: bool = NULLS_BY_KEY) -> pa.Array:
    """Row numbers in the order of the named columns, left to right, nulls first.

    Before pyarrow 25 the place of nulls is one option for all keys; since then it is a part of each key, and the option
    is deprecated.

    Args:
        nulls_by_key: whether pyarrow takes the place of nulls with each key.
    """
    if nulls_by_key:
        return pc.sort_indices(rows, sort_keys=[(name, "ascending", "at_start") for name in names])
    return pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in names], null_placement="at_start")


def ranks(columns: Sequence[pa.Array], count: int) -> np.ndarray:
    """The place of each row in the order of the columns, which are `sortable`, from 1 on; equal rows share it."""
    at = sorted_rows(columns)
    places = np.empty(count, np.int64)
    places[at] = np.cumsum(changes(row_codes(columns, count)[at]))
    return places


def compare_rows(first: Sequence[pa.Array], second: Sequence[pa.Array]) -> np.ndarray:
    """For each pair of rows -1, 0 or 1, as the first is lower, equal or higher by the columns, left to right."""
    signs = np.zeros(len(first[0]), np.int8)
    for a, b in zip(first, second, strict=True):
        higher, lower = (np.asarray(pc.fill_null(part, False)) for part in (pc.greater(a, b), pc.less(a, b)))
        there = (np.asarray(part.is_valid()).astype(np.int8) for part in (a, b))
        signs = np.where(signs == 0, np.where(higher, 1, np.where(lower, -1, next(there) - next(there))), signs)
    return signs


def changes(values: np.ndarray) -> np.ndarray:
    """Whether a value differs from the one before it; the first does."""
    differs = all_true(len(values))
    differs[1:] = values[1:] != values[:-1]
    return differs


def numbered(values: np.ndarray, at: np.ndarray, counted: np.ndarray | None = None) -> np.ndarray:
    """For each value, how many equal values precede it.

    Args:
        at: an order in which equal values are together.
        counted: which ones count; None: all.
    """
    counts = all_true(len(at)) if counted is None else counted[at]
    before = np.cumsum(counts) - counts
    places = np.empty(len(at), np.int64)
    places[at] = before - np.maximum.accumulate(np.where(changes(values[at]), before, 0))
    return places


WEIGHT = "weight"
"""Column of a sample: the number of rows that the row stands for."""
_SAMPLE = 256


def sample_of(rows: pa.Table, keys: pa.Schema) -> pa.Table:
    """Keys of a few of the rows, evenly spaced, each with `WEIGHT`."""
    count = min(_SAMPLE, rows.num_rows)
    at = np.linspace(0, rows.num_rows - 1, count).astype(np.int64)
    sample = by_name(rows.take(at), keys)
    return sample.append_column(WEIGHT, pa.repeat(rows.num_rows / max(1, count), count))


def cuts_of(samples: Sequence[pa.Table], keys: pa.Schema, ranges: int) -> pa.Table:
    """The first key of each range but the first; fewer ranges where few keys have most rows.

    Args:
        samples: see `sample_of`.
        ranges: number wanted.
    """
    rows = pa.concat_tables(samples) if samples else keys.empty_table()
    if not rows.num_rows:
        return keys.empty_table()
    order = _columns(rows.select(keys.names))
    at = sorted_rows(order)
    passed = np.cumsum(np.asarray(rows.column(WEIGHT))[at])
    ends = passed[-1] * np.arange(1, ranges) / ranges
    chosen = rows.select(keys.names).take(at[np.minimum(np.searchsorted(passed, ends), len(at) - 1)])
    places = ranks(_columns(chosen), chosen.num_rows)
    return chosen.take(np.unique(places, return_index=True)[1])


def range_of(rows: pa.Table, cuts: pa.Table) -> np.ndarray:
    """The number of each row's range, from 0 on.

    Args:
        rows: with the columns of `cuts`, and others.
        cuts: see `cuts_of`.
    """
    if not cuts.num_rows:
        return np.zeros(rows.num_rows, np.int64)
    joined = pa.concat_tables([cuts, by_name(rows, cuts.schema)])
    place = ranks(_columns(joined), joined.num_rows)
    return np.searchsorted(place[: cuts.num_rows], place[cuts.num_rows :], side="right")


def _columns(rows: pa.Table) -> list[pa.Array]:
    return [part for column in rows.columns for part in sortable(column)]
