"""Which SQL type Spark gives a parquet column that Arrow describes; the two must agree to the letter."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.types as pt

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.large_string(): "string",
    pa.string_view(): "string", pa.binary(): "binary", pa.large_binary(): "binary", pa.binary_view(): "binary",
    pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


class UnsupportedTypeError(Exception):
    """No SQL type stands for this one; the message names it."""


def sql_type(kind: pa.DataType) -> str:
    """SQL type text, e.g. `decimal(12,2)`, `array<int>`; nanosecond timestamps are named `timestamp`, see `is_nanos`.

    Raises:
        UnsupportedTypeError: times of day, decimals past 38 digits, half floats and the like.
    """
    if kind in _SCALARS:
        return _SCALARS[kind]
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind) and kind.precision <= 38 and kind.scale >= 0:
        return f"decimal({kind.precision},{kind.scale})"
    if pt.is_dictionary(kind):
        return sql_type(kind.value_type)
    if pt.is_fixed_size_binary(kind):
        return "binary"
    return _nested(kind)


def _nested(kind: pa.DataType) -> str:
    if pt.is_list(kind) or pt.is_large_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pt.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in kind)}>"
    raise UnsupportedTypeError(str(kind))


def quoted(name: str) -> str:
    """A name as it stands in SQL, whatever characters it has."""
    return "`" + name.replace("`", "``") + "`"


def is_nanos(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")
