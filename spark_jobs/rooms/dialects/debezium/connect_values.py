"""Values of one column as an Arrow array: of the kind that the metadata or the file states, else as JSON has them."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.sql_types import MAX_PRECISION

_EXACT = 16
"""Characters of a text without exponent that has at most fifteen digits, which a double represents exactly."""


class Written(float):
    """A fraction whose digits a double may not represent, as the nearest double.

    Attributes:
        text: the digits as delivered.
    """

    text: str


def fraction(text: str) -> float:
    """The value of a JSON fraction; `Written` unless the double represents it exactly."""
    if len(text) <= _EXACT and "e" not in text and "E" not in text:
        return float(text)
    value = float(text)
    if repr(value) == text:
        return value
    written = Written(value)
    written.text = text
    return written


def digits(value: float) -> str:
    """The digits of a fraction as delivered, where they are known."""
    return value.text if isinstance(value, Written) else repr(value)


_CYCLE_YEARS = 400
_CYCLE = timedelta(days=146_097)
"""After so many days the calendar begins again."""


class BeyondYears(str):
    """A time outside the years 1 to 9999, as text: a misfit of its column."""

    @classmethod
    def of(cls, milliseconds: int) -> BeyondYears:
        """ISO 8601 with a sign and at least six digits of the year; `milliseconds` since 1970, UTC."""
        cycles, rest = divmod(milliseconds, _CYCLE // timedelta(milliseconds=1))
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=rest)
        return cls(f"{moment.year + _CYCLE_YEARS * cycles:+07d}{moment.isoformat()[4:]}")


Value = Any
_INSTANT = pa.timestamp("us", "UTC")
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


_COLUMN = "__debezium.source.column."
_PROPAGATED = f"{_COLUMN}type"
_SPECIAL = {"NAN": "NaN", "POSITIVE_INFINITY": "Infinity", "NEGATIVE_INFINITY": "-Infinity"}
"""The connector's names of what is no number, as the database writes them."""
_MOST_DIGITS = 1000
"""That any database lets a type state; PostgreSQL's connector gives more for one that states none."""


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
        case "string" if is_propagated(schema.get("parameters") or {}):
            return _number_in_text(schema["parameters"])
        case scalar:
            return _SCALARS.get(str(scalar))


def is_propagated(parameters: Mapping[str, Any]) -> bool:
    """Whether the connector states the type of the source's column."""
    return _PROPAGATED in parameters


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
    return json_of(value) if _holds_special_fraction(value) else _ENCODER.encode(value)


_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), default=text_of)


def _is_special(value: Value) -> bool:
    """Whether the encoder would lose a fraction's digits, or write NaN or infinity, which JSON has no number for."""
    return isinstance(value, Written) or (isinstance(value, float) and not math.isfinite(value))


def _holds_special_fraction(value: Value) -> bool:
    """Whether one is inside; the value itself is none."""
    waiting = [value] if isinstance(value, _NESTED) else []
    while waiting:
        one = waiting.pop()
        for part in one.values() if isinstance(one, dict) else one:
            if isinstance(part, _NESTED):
                waiting.append(part)
            elif _is_special(part):
                return True
    return False


_NESTED = (dict, list, tuple)


def json_of(value: Value) -> str:
    """JSON with the digits of fractions as delivered. NaN and infinity are texts, as Spark's `to_json` has them."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{_ENCODER.encode(name)}:{json_of(part)}" for name, part in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(json_of, value)) + "]"
    if not _is_special(value):
        return _ENCODER.encode(value)
    return value.text if isinstance(value, Written) else f'"{_ENCODER.encode(value)}"'


def _array(element: Kind | None) -> Kind | None:
    if element is None:
        return None
    return Kind(pa.list_(element.type), lambda values: [_or_null(element, value) for value in values])


def _map(key: Kind | None, value: Kind | None) -> Kind | None:
    if key is None or value is None:
        return None

    def pairs(entries: Value) -> Value:
        items = entries.items() if isinstance(entries, Mapping) else entries
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
    number = float(value)
    if math.isinf(number) and any(char.isdigit() for char in text_of(value)):
        raise OverflowError(value)
    return number


def _single(value: Value) -> float:
    number = _real(value)
    if math.isfinite(number) and abs(number) >= _BEYOND_SINGLE:
        raise OverflowError(value)
    return number


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


def _number_in_text(parameters: Mapping[str, Any]) -> Kind:
    """Of a column whose type the connector has propagated: `numeric(p, s)` is one also where numbers come as text."""
    name = str(parameters[_PROPAGATED]).upper()
    precision, scale = (int(parameters.get(f"{_COLUMN}{part}") or 0) for part in ("length", "scale"))
    if name == "MONEY":
        precision, scale = MAX_PRECISION, 2
    if name not in ("NUMERIC", "DECIMAL", "MONEY") or not 0 <= scale <= precision <= _MOST_DIGITS:
        return Kind(pa.string(), lambda value: _SPECIAL.get(value, value))
    return Kind(pa.decimal128(min(precision, MAX_PRECISION), scale), _finite)


def _finite(value: Value) -> Decimal:
    number = Decimal(value)
    if not number.is_finite():  # NaN and infinity, which no decimal of the lake can be
        raise ValueError(value)
    return number


def _of_any_scale(value: Value) -> str:
    return text_of(_unscaled(value["value"], int(value["scale"])))


def _instant(value: Value) -> datetime:
    moment = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    if moment.tzinfo is None or (isinstance(value, str) and _FINER.search(value)):
        raise ValueError(value)
    return moment.astimezone(UTC)


def time_of_day(units: int) -> Callable[[Value], str]:
    """`HH:MM:SS` and the fraction, of so many units a second; Delta has no type for a time of day.

    MySQL's TIME is a span of time, too: below zero it has a minus, and beyond a day more hours than 24.
    """

    def text(value: Value) -> str:
        number = _whole(value)
        whole, fraction = divmod(abs(number), units)
        digits = str(fraction).zfill(len(str(units)) - 1).rstrip("0")
        clock = f"{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}"
        return f"{'-' if number < 0 else ''}{clock}{'.' + digits if digits else ''}"

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
    "io.debezium.time.Time": Kind(pa.string(), time_of_day(1000)),
    "io.debezium.time.MicroTime": Kind(pa.string(), time_of_day(1_000_000)),
    "io.debezium.time.NanoTime": Kind(pa.string(), time_of_day(1_000_000_000)),
    "io.debezium.data.VariableScaleDecimal": Kind(pa.string(), _of_any_scale),
    "org.apache.kafka.connect.data.Date": Kind(pa.date32(), _whole),
    "org.apache.kafka.connect.data.Time": Kind(pa.string(), time_of_day(1000)),
    "org.apache.kafka.connect.data.Timestamp": Kind(pa.timestamp("us", "UTC"), _milliseconds),
}


_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}


def joined(parts: Sequence[Values], places: Sequence[Sequence[int]]) -> Values:
    """
    Args:
        places: of each part, the indexes of its values in the result.

    Returns:
        Values in the common type by Delta's widening rules; text where there is none.
    """
    given = [part for part in parts if part.array.null_count < len(part.array)] or parts[:1]
    kind = given[0].type
    for part in given[1:]:
        kind = _wider(kind, part.type)
    has_misfit = any(part.stated is not None for part in given)
    whole = pa.concat_arrays([_as(part.array, pa.string() if has_misfit else kind) for part in parts])
    order = [at for rows in places for at in rows]
    back = sorted(range(len(order)), key=order.__getitem__)
    in_order = whole.take(pa.array(back, pa.int64()))
    return Values(in_order, kind if has_misfit and is_read_from_text(kind) else None)


def _wider(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if one == other:
        return one
    numbers = [_joined_decimal(kind) for kind in (one, other)]
    if one in _DIGITS and other in _DIGITS:
        return max(one, other, key=_DIGITS.__getitem__)
    if numbers[0] is not None and numbers[1] is not None:
        (whole, scale), (others_whole, others_scale) = numbers[0], numbers[1]
        most = max(scale, others_scale)
        precision = max(whole, others_whole) + most
        return pa.decimal128(precision, most) if precision <= MAX_PRECISION else pa.string()
    if pt.is_floating(one) and pt.is_floating(other):
        return pa.float64()
    if {one, other} == {pa.date32(), pa.timestamp("us")}:
        return pa.timestamp("us")
    return pa.string()


def _joined_decimal(kind: pa.DataType) -> tuple[int, int] | None:
    """Digits before and after the point; null for what is no exact number."""
    if kind in _DIGITS:
        return _DIGITS[kind], 0
    return (kind.precision - kind.scale, kind.scale) if pt.is_decimal(kind) else None


def _as(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.null_count == len(array):
        return pa.nulls(len(array), kind)
    if array.type == kind:
        return array
    if kind == pa.string():
        return texts(array)
    if pt.is_integer(array.type) and pt.is_decimal(kind):
        array = array.cast(pa.decimal128(MAX_PRECISION, 0))
    return array.cast(kind)


_NUMBERS = {32: pa.int32(), 64: pa.int64()}
_NOT_SUCH = (TypeError, ValueError, OverflowError, KeyError, AttributeError, pa.ArrowException)


@dataclass(frozen=True)
class Values:
    """Values of one column.

    Attributes:
        stated: the type that they have by their schema where a misfit is among them, so that all are text; None: that
            of the array.
    """

    array: pa.Array
    stated: pa.DataType | None = None

    @property
    def type(self) -> pa.DataType:
        return self.array.type if self.stated is None else self.stated


def array_of(values: Sequence[Any], kind: Kind | None) -> Values:
    """If a value is not of the kind, all are text; those are converted one by one when rows are decoded."""
    if kind is None:
        return _inferred(values)
    try:
        return Values(pa.array([None if value is None else kind.of(value) for value in values], kind.type))
    except _NOT_SUCH:
        as_text = text_array([_text(value, kind) for value in values])
        return Values(as_text, kind.type if is_read_from_text(kind.type) else None)


def is_read_from_text(kind: pa.DataType) -> bool:
    """Whether texts of this module are values of the type by the grammar of texts: no bytes, nothing nested."""
    return not (pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_string(kind))


def text_array(values: Sequence[str | None]) -> pa.Array:
    """Texts; those with surrogates (see `change_events.read_events`) as bytes that aren't UTF-8."""
    try:
        return pa.array(values, pa.string())
    except UnicodeEncodeError:
        raw = pa.array([None if value is None else _values_bytes(value) for value in values], pa.binary())
        return pa.Array.from_buffers(pa.string(), len(raw), raw.buffers())


def _values_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def kind_for(name: str, fields: Mapping[str, Mapping[str, Any]], options: DebeziumOptions) -> Kind | None:
    """What a column's values are: by the metadata, by the file; text where `types` says what they are cast to."""
    if (semantic := _named(options.semantic_types, name)) is not None:
        return named_kind(semantic, {})
    if name in fields:
        return kind_of(fields[name])
    return Kind(pa.string(), text_of) if _named(options.types, name) is not None else None


def _named(by_column: Mapping[str, str], name: str) -> str | None:
    return next((value for column, value in by_column.items() if column.lower() == name.lower()), None)


def texts(array: pa.Array) -> pa.Array:
    """The values as text: times in SQL format, nested values as JSON."""
    if pa.types.is_temporal(array.type):
        written = zip(array.cast(pa.string()).to_pylist(), array.cast(_NUMBERS[array.type.bit_width]), strict=True)
        values = [None if text is None else _time(text, number.as_py()) for text, number in written]
        return pa.array(values, pa.string())
    return pa.array([None if value is None else text_of(value) for value in array.to_pylist()], pa.string())


def _time(text: str, number: int) -> str:
    """Instants in ISO format; out of the calendar's range (e.g. `infinity`) as a number."""
    if text.startswith("<"):
        return str(number)
    return f"{text[:-1].replace(' ', 'T')}+00:00" if text.endswith("Z") else text


def _text(value: Any, kind: Kind) -> str | None:
    if value is None:
        return None
    try:
        converted = kind.of(value)
        return (
            texts(pa.array([converted], kind.type))[0].as_py()
            if pa.types.is_temporal(kind.type)
            else text_of(converted)
        )
    except _NOT_SUCH:
        return text_of(value)


def _inferred(values: Sequence[Any]) -> Values:
    """JSON's own types: whole numbers, fractions, texts, truth, and arrays of one of them; all else as text.

    A number beyond the greatest double is a misfit, and so is a time outside the years 1 to 9999.
    """
    held = [None if _is_too_great(value) or isinstance(value, BeyondYears) else value for value in values]
    try:
        inferred = pa.array(held)
    except _NOT_SUCH:
        inferred = None
    texts = [None if value is None else text_of(value) for value in values]
    if inferred is None or "struct" in str(inferred.type) or _takes_truth_for_numbers(inferred.type, values):
        return Values(text_array(texts))
    if all(one is other for one, other in zip(held, values, strict=True)):
        return Values(inferred)
    return Values(text_array(texts), _stated(inferred.type, values))


def _takes_truth_for_numbers(kind: pa.DataType, values: Sequence[Any]) -> bool:
    """Whether Arrow makes fractions of truth among them: `true` would be 1.0."""
    return "double" in str(kind) and _holds_truth(values)


def _holds_truth(values: Sequence[Any]) -> bool:
    """Also in lists inside; of a column that is no text there are no objects inside."""
    kinds = set(map(type, values))
    return bool in kinds or (list in kinds and any(_holds_truth(one) for one in values if isinstance(one, list)))


def _stated(kind: pa.DataType, values: Sequence[Any]) -> pa.DataType | None:
    """The type of a column with misfits, by its other values; of misfits alone, by what they are."""
    if pa.types.is_null(kind):
        return _INSTANT if any(isinstance(value, BeyondYears) for value in values) else pa.float64()
    if pa.types.is_timestamp(kind):
        return _INSTANT
    return pa.float64() if pa.types.is_floating(kind) or pa.types.is_integer(kind) else None


def _is_too_great(value: Any) -> bool:
    """Whether a number of JSON, or an array of them, is none of a double."""
    if isinstance(value, list):
        return any(map(_is_too_great, value))
    return isinstance(value, Written) and math.isinf(value)
