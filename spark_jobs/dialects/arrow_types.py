"""SQL types of Arrow types (docs/semantics.md, section 11)."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import MAX_PRECISION, quoted

_SCALARS: dict[pa.DataType, str] = {
    pa.bool_(): "boolean", pa.int8(): "tinyint", pa.int16(): "smallint", pa.int32(): "int", pa.int64(): "bigint",
    pa.uint8(): "smallint", pa.uint16(): "int", pa.uint32(): "bigint", pa.uint64(): "decimal(20,0)",
    pa.float16(): "float", pa.float32(): "float", pa.float64(): "double",
    pa.string(): "string", pa.large_string(): "string", pa.string_view(): "string",
    pa.binary(): "binary", pa.large_binary(): "binary", pa.binary_view(): "binary",
    pa.date32(): "date", pa.null(): "void",
}  # fmt: skip


UNSUPPORTED = "unsupported "
"""Prefix of the type text of a column that no SQL type represents."""


class UnsupportedTypeError(Exception):
    """No SQL type represents this Arrow type; the message names it."""


def column_type(kind: pa.DataType) -> str:
    """As `sql_type`; for an unsupported type its name, which plans refuse unless the column is excluded."""
    try:
        return sql_type(kind)
    except UnsupportedTypeError as error:
        return UNSUPPORTED + re.sub(r"[^A-Za-z0-9_ \[\]]+", " ", str(error)).strip()


def sql_type(kind: pa.DataType) -> str:
    """SQL type text, e.g. `decimal(12,2)`, `array<int>`; timestamps in any unit are named alike, see `is_nanos`.

    Raises:
        UnsupportedTypeError: durations, unions and the like.
    """
    if isinstance(kind, pa.BaseExtensionType):
        return sql_type(kind.storage_type)
    if pt.is_dictionary(kind):
        return sql_type(kind.value_type)
    return _SCALARS.get(kind) or _with_parameters(kind) or _nested(kind)


def _with_parameters(kind: pa.DataType) -> str | None:
    if pt.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp_ntz"
    if pt.is_decimal(kind):
        return _decimal(kind)
    if pt.is_fixed_size_binary(kind):
        return "binary"
    return "string" if pt.is_time(kind) else None


def _decimal(kind: pa.DataType) -> str:
    """Decimals with too many digits for SQL are kept as text."""
    scale = max(kind.scale, 0)
    precision = max(kind.precision - kind.scale + scale, scale)
    return f"decimal({precision},{scale})" if precision <= MAX_PRECISION else "string"


def _nested(kind: pa.DataType) -> str:
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    if pt.is_map(kind):
        return f"map<{sql_type(kind.key_type)},{sql_type(kind.item_type)}>"
    if pt.is_struct(kind):
        return f"struct<{','.join(f'{quoted(f.name)}:{sql_type(f.type)}' for f in kind)}>"
    raise UnsupportedTypeError(str(kind))


def is_nanos(kind: pa.DataType) -> bool:
    return bool(pt.is_timestamp(kind) and kind.unit == "ns")
