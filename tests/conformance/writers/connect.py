"""Values as Debezium's connectors give them to Kafka Connect, and as its JSON converter writes them.

Sources: the pages of the connectors (documentation/modules/ROOT/pages/connectors/*.adoc, "Data type mappings"), the
classes of io.debezium.time, and of Kafka org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

from tests.conformance.history import PRECISION, SCALE, Column, Kind

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICRO = timedelta(microseconds=1)


@dataclass(frozen=True)
class Form:
    """How a column's values are in events.

    Attributes:
        schema: type, and name and parameters where it has them, as in the schema of the converter.
        shown: a value as JSON has it.
        told: the value that it says, where it is not the source's.
        kind: of that value.
    """

    schema: Mapping[str, Any]
    shown: Callable[[Any], Any]
    told: Callable[[Any], Any]
    kind: Kind


def form_of(column: Column, settings: Mapping[str, Any]) -> Form:
    """The form of a column under a connector's settings."""
    kind = column.kind
    if kind == "decimal":
        return _decimal(settings["decimal.handling.mode"])
    if kind == "bytes":
        return _bytes(settings["binary.handling.mode"])
    if kind in ("timestamp", "date", "time", "longtime"):
        return _temporal(kind, settings["time.precision.mode"])
    if kind == "timestamptz":
        return Form({"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}, _iso, _same, kind)
    plain = {"int4": "int32", "int8": "int64", "float8": "double", "text": "string", "bool": "boolean"}
    return Form({"type": plain[kind]}, _same, _same, kind)


def _same(value: Any) -> Any:
    return value


def _decimal(mode: str) -> Form:
    """decimal.handling.mode; JsonConverter writes `Decimal` as base64 of its digits under `decimal.format=BASE64`."""
    if mode == "precise":
        parameters = {"scale": str(SCALE), "connect.decimal.precision": str(PRECISION)}
        named = {"name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}
        return Form({"type": "bytes", **named}, _unscaled, _same, "decimal")
    if mode == "double":
        return Form({"type": "double"}, float, float, "float8")
    return Form({"type": "string"}, lambda value: f"{value:f}", _same, "decimal")


def _unscaled(value: Decimal) -> str:
    digits = int(value.scaleb(SCALE))
    return base64.b64encode(digits.to_bytes(digits.bit_length() // 8 + 1, "big", signed=True)).decode()


def _bytes(mode: str) -> Form:
    """binary.handling.mode. JsonConverter writes bytes as base64."""
    encoded: Mapping[str, Callable[[bytes], str]] = {
        "bytes": lambda value: base64.b64encode(value).decode(),
        "base64": lambda value: base64.b64encode(value).decode(),
        "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
        "hex": lambda value: value.hex(),
    }
    if mode == "bytes":
        return Form({"type": "bytes"}, encoded[mode], _same, "bytes")
    return Form({"type": "string"}, encoded[mode], encoded[mode], "text")


def _temporal(kind: Kind, mode: str) -> Form:
    """time.precision.mode, for columns with six digits after the second."""
    family = "time" if kind == "longtime" else kind
    named = _NAMES[family].get(mode) or _NAMES[family]["adaptive"]
    name, literal = named
    schema = {"type": literal, "name": name, "version": 1}
    told = _to_millisecond if name.startswith("org.apache") and family != "date" else _same
    return Form(schema, _SHOWN[name.rpartition(".")[2], literal], told, kind)


_CONNECT, _OWN = "org.apache.kafka.connect.data.", "io.debezium.time."
_NAMES: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "timestamp": {
        "adaptive": (_OWN + "MicroTimestamp", "int64"), "connect": (_CONNECT + "Timestamp", "int64"),
        "isostring": (_OWN + "IsoTimestamp", "string"), "nanoseconds": (_OWN + "NanoTimestamp", "int64"),
    },
    "date": {
        "adaptive": (_OWN + "Date", "int32"), "connect": (_CONNECT + "Date", "int32"),
        "isostring": (_OWN + "IsoDate", "string"),
    },
    "time": {
        "adaptive": (_OWN + "MicroTime", "int64"), "connect": (_CONNECT + "Time", "int32"),
        "isostring": (_OWN + "IsoTime", "string"), "nanoseconds": (_OWN + "NanoTime", "int64"),
    },
}  # fmt: skip


def micros(value: datetime | timedelta) -> int:
    """Since 1970, or midnight."""
    if isinstance(value, timedelta):
        return value // _MICRO
    return ((value if value.tzinfo else value.replace(tzinfo=UTC)) - EPOCH) // _MICRO


def days(value: date) -> int:
    return (value - EPOCH.date()).days


def _to_millisecond(value: Any) -> Any:
    """`connect` has milliseconds alone; what is finer is cut."""
    if isinstance(value, timedelta):
        return timedelta(milliseconds=value // timedelta(milliseconds=1))
    return value.replace(microsecond=value.microsecond // 1000 * 1000)


def _iso(value: datetime) -> str:
    """ISO_OFFSET_DATE_TIME: no more digits after the second than there are."""
    text = value.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _iso_time(value: timedelta) -> str:
    return _iso(EPOCH + value)[11:]


_SHOWN: Mapping[tuple[str, str], Callable[[Any], Any]] = {
    ("MicroTimestamp", "int64"): micros,
    ("NanoTimestamp", "int64"): lambda value: micros(value) * 1000,
    ("Timestamp", "int64"): lambda value: micros(value) // 1000,
    ("IsoTimestamp", "string"): _iso,
    ("Date", "int32"): days,
    ("IsoDate", "string"): lambda value: f"{value.isoformat()}Z",
    ("MicroTime", "int64"): micros,
    ("NanoTime", "int64"): lambda value: micros(value) * 1000,
    ("Time", "int32"): lambda value: micros(value) // 1000,
    ("IsoTime", "string"): _iso_time,
}
