"""Values as Debezium's connectors give them to Kafka Connect, and as its JSON converter writes them.

Sources: the pages of the connectors (documentation/modules/ROOT/pages/connectors/*.adoc, "Data type mappings"), the
classes of io.debezium.time, and of Kafka org.apache.kafka.connect.json.JsonConverter.
"""

from __future__ import annotations

import base64
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Context, Decimal
from typing import Any

from tests.conformance.history import COLORS, PRECISION, SCALE, Column, Interval, Kind

_EXACT = Context(prec=100)
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


def written(value: Any) -> str:
    """JSON as Jackson writes it: without spaces, and doubles as Java's Double.toString has them."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{written(name)}:{written(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(written, value)) + "]"
    return _double(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False)


def _double(value: float) -> str:
    """Scientific below a thousandth and from ten million on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    return f"{'-' * sign}{first}.{''.join(rest) or '0'}E{int(exponent) + len(rest)}"


def form_of(column: Column, settings: Mapping[str, Any]) -> Form:
    """The form of a column under a connector's settings."""
    kind = column.kind
    if kind in _PLAIN:
        literal, told = _PLAIN[kind]
        return Form({"type": literal}, _same, _same, told)
    if kind in _TEXTS:
        return Form({"type": "string", **_TEXTS[kind]}, _same, _same, "text")
    if kind == "timestamptz":
        return Form({"type": "string", "name": "io.debezium.time.ZonedTimestamp", "version": 1}, _zoned, _same, kind)
    make, setting = _BY_SETTING.get(kind, (functools.partial(_temporal, kind), "time.precision.mode"))
    return make(settings[setting])


_PLAIN: Mapping[Kind, tuple[str, Kind]] = {
    "int2": ("int16", "int4"), "int4": ("int32", "int4"), "int8": ("int64", "int8"), "float4": ("float", "float8"),
    "float8": ("double", "float8"), "text": ("string", "text"), "bool": ("boolean", "bool"),
}  # fmt: skip
_TEXTS: Mapping[Kind, Mapping[str, Any]] = {
    "uuid": {"name": "io.debezium.data.Uuid", "version": 1}, "json": {"name": "io.debezium.data.Json", "version": 1},
    "color": {"name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": ",".join(COLORS)}},
}  # fmt: skip


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


def _any_scale(mode: str) -> Form:
    """`VariableScaleDecimal`, of a `numeric` without precision and scale."""
    if mode != "precise":
        form = _decimal(mode)
        return replace(form, kind="numeric") if mode == "string" else form
    parts = [
        {"type": "int32", "optional": False, "field": "scale"},
        {"type": "bytes", "optional": False, "field": "value"},
    ]
    named = {"name": "io.debezium.data.VariableScaleDecimal", "version": 1, "doc": "Variable scaled decimal"}

    def shown(value: Decimal) -> dict[str, Any]:
        value = _EXACT.normalize(value)  # without zeros at the end
        scale = max(-int(value.as_tuple().exponent), 0)
        return {"scale": scale, "value": _unscaled(value, scale)}

    return Form({"type": "struct", "fields": parts, **named}, shown, _same, "numeric")


_MONTH_DAYS = 365.25 / 12


def _interval(mode: str) -> Form:
    """MicroDuration.durationMicros, where a month has as many days as on average; Interval.toIsoString."""
    if mode == "string":
        return Form(
            {"type": "string", "name": "io.debezium.time.Interval", "version": 1}, _iso_interval, _iso_interval, "text"
        )
    schema = {"type": "int64", "name": "io.debezium.time.MicroDuration", "version": 1}
    return Form(schema, _approximated, _approximated, "int8")


def _approximated(value: Interval) -> int:
    hours, minutes, seconds = _clock(value.micros)
    in_days = value.months * _MONTH_DAYS + value.days
    return int(((((in_days * 24 + hours) * 60) + minutes) * 60 + float(seconds)) * 1e6)


def _iso_interval(value: Interval) -> str:
    years, months = int(value.months / 12), int(abs(value.months) % 12 * (1 if value.months >= 0 else -1))
    hours, minutes, seconds = _clock(value.micros)
    return f"P{years}Y{months}M{value.days}DT{hours}H{minutes}M{seconds.normalize():f}S"


def _clock(micros: int) -> tuple[int, int, Decimal]:
    """Hours, minutes and seconds, each with the sign of all."""
    sign, rest = (-1 if micros < 0 else 1), abs(micros)
    return sign * (rest // 3_600_000_000), sign * (rest // 60_000_000 % 60), sign * Decimal(rest % 60_000_000) / 10**6


def _unscaled(value: Decimal, scale: int = SCALE) -> str:
    digits = int(_EXACT.scaleb(value, scale))
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


_BY_SETTING: Mapping[Kind, tuple[Callable[[str], Form], str]] = {
    "decimal": (_decimal, "decimal.handling.mode"), "numeric": (_any_scale, "decimal.handling.mode"),
    "bytes": (_bytes, "binary.handling.mode"), "interval": (_interval, "interval.handling.mode"),
}  # fmt: skip


def _temporal(kind: Kind, mode: str) -> Form:
    """time.precision.mode, for columns with six digits after the second, or three."""
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
    "timestamp3": {
        "adaptive": (_OWN + "Timestamp", "int64"), "connect": (_CONNECT + "Timestamp", "int64"),
        "isostring": (_OWN + "IsoTimestamp", "string"), "nanoseconds": (_OWN + "NanoTimestamp", "int64"),
    },
    "time3": {
        "adaptive": (_OWN + "Time", "int32"), "connect": (_CONNECT + "Time", "int32"),
        "isostring": (_OWN + "IsoTime", "string"), "nanoseconds": (_OWN + "NanoTime", "int64"),
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


def _zoned(value: datetime) -> str:
    """ZonedTimestamp.getDateTimeFormatter: as many digits as the column has, which are six."""
    return f"{value.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


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
