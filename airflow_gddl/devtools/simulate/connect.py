"""Arrow tables as Connect's JSON converter shows them: schemas with Debezium's names for types, and values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

_SCALARS = {
    pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes", pa.null(): "string",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(kind: pa.DataType) -> dict[str, Any]:
    """As PostgreSQL's connector would describe it."""
    kind = _SIGNED.get(kind, kind)
    if kind in _SCALARS:
        found: dict[str, Any] = {"type": _SCALARS[kind]}
    elif pt.is_date(kind):
        found = {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    elif pt.is_timestamp(kind):
        zoned = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
        found = {**(zoned if kind.tz else _LOCAL[kind.unit]), "version": 1}
    elif pt.is_decimal(kind):
        digits = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        name = "org.apache.kafka.connect.data.Decimal"
        found = {"type": "bytes", "name": name, "version": 1, "parameters": digits}
    elif pt.is_list(kind):
        found = {"type": "array", "items": schema_of(kind.value_type)}
    else:
        found = {"type": "struct", "fields": [{"field": f.name, **schema_of(f.type)} for f in kind]}
    return {**found, "optional": True}


_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_LOCAL: Mapping[str, dict[str, Any]] = {
    "s": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "ms": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "us": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "ns": {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
}


def value_of(scalar: pa.Scalar) -> Any:
    """A value as the converter writes it under `schema_of` its type."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pt.is_timestamp(kind):
        return scalar.as_py().isoformat().replace("+00:00", "Z") if kind.tz else _ticks(scalar)
    if pt.is_struct(kind):
        return {name: value_of(part) for name, part in scalar.items()}
    if pt.is_uint64(kind):
        return _plain(Decimal(scalar.as_py()))
    if pt.is_list(kind):
        return [value_of(part) for part in scalar.values]
    return _plain(scalar.as_py())


def _ticks(scalar: pa.Scalar) -> int:
    ticks: int = scalar.value
    return ticks * 1000 if scalar.type.unit == "s" else ticks


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        length = (unscaled.bit_length() + 8) // 8
        return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value
