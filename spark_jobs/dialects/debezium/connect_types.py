"""Kafka Connect's types and Debezium's names for their meaning, as Arrow types and values.

Sources: Kafka Connect's JsonConverter; Debezium's reference, "Data type mappings" of its connectors.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import MAX_PRECISION
from spark_jobs.dialects.debezium.fractions import Written, digits

Value = Any
_DAY_US = 86_400_000_000
_BEYOND_SINGLE = 2.0**128 - 2.0**103
"""The least number that is rounded to an infinite float."""
_FINER = re.compile(r"\.\d{6}\d*[1-9]")
"""A fraction of a second finer than a microsecond, which Python would truncate."""


@dataclass(frozen=True)
class Kind:
    """An Arrow type, and the conversion of a non-null value to it.

    `of` raises TypeError, ValueError or OverflowError for a value of another type.
    """

    type: pa.DataType
    of: Callable[[Value], Value] = lambda value: value


def kind_of(schema: Mapping[str, Any]) -> Kind | None:
    """The kind of a Connect schema in its JSON form; null when it is unknown."""
    if (named := named_kind(schema.get("name"), schema.get("parameters") or {})) is not None:
        return named
    match schema.get("type"):
        case "array":
            return _array(kind_of(schema.get("items") or {}))
        case "map":
            return _map(kind_of(schema.get("keys") or {}), kind_of(schema.get("values") or {}))
        case "struct":
            return _struct({part["field"]: kind_of(part) for part in schema.get("fields") or ()})
        case scalar:
            return _SCALARS.get(str(scalar))


def named_kind(name: Any, parameters: Mapping[str, Any]) -> Kind | None:
    """The kind of a schema's name; null where the schema's type suffices."""
    if name == "org.apache.kafka.connect.data.Decimal":
        return _decimal(parameters)
    return _NAMED.get(str(name))


def text_of(value: Value) -> str:
    """A value as text: texts as they are, other JSON as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, Written):
        return value.text
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=text_of)
    return _json(value) if "Infinity" in text else text


def _json(value: Value) -> str:
    """JSON in which a number beyond the greatest double has its digits."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_json(name)}:{_json(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_json, value)) + "]"
    if isinstance(value, Written):
        return value.text
    return json.dumps(value, ensure_ascii=False, default=text_of)


def _array(element: Kind | None) -> Kind | None:
    if element is None:
        return None
    return Kind(pa.list_(element.type), lambda values: [_or_null(element, value) for value in values])


def _map(key: Kind | None, value: Kind | None) -> Kind | None:
    if key is None or value is None:
        return None

    def pairs(found: Value) -> Value:
        items = found.items() if isinstance(found, Mapping) else found
        return [(key.of(k), _or_null(value, v)) for k, v in items]

    return Kind(pa.map_(key.type, value.type), pairs)


def _struct(fields: Mapping[str, Kind | None]) -> Kind | None:
    known = {name: kind for name, kind in fields.items() if kind is not None}
    if len(known) < len(fields) or not known:
        return None
    kind = pa.struct([pa.field(name, each.type) for name, each in known.items()])
    return Kind(kind, lambda row: {name: _or_null(each, row.get(name)) for name, each in known.items()})


def _or_null(kind: Kind, value: Value) -> Value:
    return None if value is None else kind.of(value)


def _bytes(value: Value) -> bytes:
    return value if isinstance(value, bytes) else base64.b64decode(value, validate=True)


def _whole(value: Value) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(value)
    return value


def _real(value: Value) -> float:
    """No number is infinite: a text or constant that says so is."""
    found = float(value)
    if math.isinf(found) and any(char.isdigit() for char in text_of(value)):
        raise OverflowError(value)
    return found


def _single(value: Value) -> float:
    found = _real(value)
    if math.isfinite(found) and abs(found) >= _BEYOND_SINGLE:
        raise OverflowError(value)
    return found


def _milliseconds(value: Value) -> int:
    """In microseconds; times out of range of a timestamp are refused."""
    return _whole(value) * 1000


def _unscaled(value: Value, scale: int) -> Decimal:
    """Big-endian two's complement, in the JSON's base64, and digits after the point."""
    number = int.from_bytes(_bytes(value), "big", signed=True)
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def _decimal(parameters: Mapping[str, Any]) -> Kind:
    scale = int(parameters.get("scale", 0))
    precision = min(int(parameters.get("connect.decimal.precision", MAX_PRECISION)), MAX_PRECISION)

    def exact(value: Value) -> Decimal:
        if isinstance(value, (int, float, Decimal)):  # the converter's decimal.format NUMERIC
            return Decimal(digits(value) if isinstance(value, float) else value)
        return _unscaled(value, scale)

    if not 0 <= scale <= precision:
        return Kind(pa.string(), lambda value: text_of(exact(value)))
    return Kind(pa.decimal128(precision, scale), exact)


def _of_any_scale(value: Value) -> str:
    return text_of(_unscaled(value["value"], int(value["scale"])))


def _instant(value: Value) -> datetime:
    found = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if found.tzinfo is None or (isinstance(value, str) and _FINER.search(value)):
        raise ValueError(value)
    return found.astimezone(UTC)


def _time_of_day(units: int) -> Callable[[Value], str]:
    """`HH:MM:SS` and the fraction, of so many units a second; Delta has no type for a time of day."""

    def text(value: Value) -> str:
        whole, fraction = divmod(_whole(value), units)
        if not 0 <= whole <= _DAY_US // 1_000_000:
            raise ValueError(value)
        digits = str(fraction).zfill(len(str(units)) - 1).rstrip("0")
        hours = timedelta(seconds=whole) // timedelta(hours=1)
        return f"{hours:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{'.' + digits if digits else ''}"

    return text


_SCALARS: Mapping[str, Kind] = {
    "boolean": Kind(pa.bool_()), "string": Kind(pa.string()), "bytes": Kind(pa.binary(), _bytes),
    "int8": Kind(pa.int8(), _whole), "int16": Kind(pa.int16(), _whole), "int32": Kind(pa.int32(), _whole),
    "int64": Kind(pa.int64(), _whole), "float": Kind(pa.float32(), _single), "float32": Kind(pa.float32(), _single),
    "double": Kind(pa.float64(), _real), "float64": Kind(pa.float64(), _real),
}  # fmt: skip
_NAMED: Mapping[str, Kind] = {
    "io.debezium.time.Date": Kind(pa.date32(), _whole),
    "io.debezium.time.Timestamp": Kind(pa.timestamp("us"), _milliseconds),
    "io.debezium.time.MicroTimestamp": Kind(pa.timestamp("us"), _whole),
    "io.debezium.time.NanoTimestamp": Kind(pa.timestamp("ns"), _whole),
    "io.debezium.time.ZonedTimestamp": Kind(pa.timestamp("us", "UTC"), _instant),
    "io.debezium.time.Time": Kind(pa.string(), _time_of_day(1000)),
    "io.debezium.time.MicroTime": Kind(pa.string(), _time_of_day(1_000_000)),
    "io.debezium.time.NanoTime": Kind(pa.string(), _time_of_day(1_000_000_000)),
    "io.debezium.data.VariableScaleDecimal": Kind(pa.string(), _of_any_scale),
    "org.apache.kafka.connect.data.Date": Kind(pa.date32(), _whole),
    "org.apache.kafka.connect.data.Time": Kind(pa.string(), _time_of_day(1000)),
    "org.apache.kafka.connect.data.Timestamp": Kind(pa.timestamp("us", "UTC"), _milliseconds),
}
