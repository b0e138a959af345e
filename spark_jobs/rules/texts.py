"""Texts of values: how they are read, written, and ordered in sequences; and years that readers know."""

from __future__ import annotations

import base64
import functools
import json
import math
import re
import zoneinfo
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, Literal, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.contract.sql_types import (
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SqlType,
    StructType,
    is_complex,
)
from spark_jobs.plan.sequence import (
    DECIMAL,
    DIGIT_GROUPS,
    DIGITS,
    DIGITS_ALONE,
    EPOCH,
    EXPONENT,
    HEX_GROUPS,
    HEXADECIMAL,
    LSN,
    LSN_DIGITS,
    MONTH,
    OTHER_DATES,
    POWER,
    PREFIX,
    TIME,
    ULID,
    UUID,
    UUID_BY_TIME,
    texts_of,
)
from spark_jobs.rules.arrays import is_true, parts_of, with_leaves

FIRST_DAY, LAST_DAY = -719_162, 2_932_896
FIRST_MICROSECOND, LAST_MICROSECOND = -62_135_596_800_000_000, 253_402_300_799_999_999
"""Of the years 1 and 9999, since 1970."""
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - of times without zone, too


def outside_years(values: pa.Array) -> np.ndarray | None:
    """Which values are such a date or time, or hold one; None where no one does.

    Args:
        values: of any type; timestamps in microseconds.
    """
    if pt.is_nested(values.type):
        if all(outside_years(part) is None for part in parts_of(values)):
            return None
        return np.array([not _is_readable(value) for value in values])
    if pt.is_date32(values.type):
        return _outside(values.cast(pa.int32()), FIRST_DAY, LAST_DAY)
    if pt.is_timestamp(values.type):
        return _outside(values.cast(pa.int64()), FIRST_MICROSECOND, LAST_MICROSECOND)
    return None


def _outside(numbers: pa.Array, first: int, last: int) -> np.ndarray | None:
    ends = pc.min_max(numbers)
    least, most = ends["min"].as_py(), ends["max"].as_py()
    if least is None or (least >= first and most <= last):
        return None
    return is_true(pc.or_(pc.less(numbers, first), pc.greater(numbers, last)))


def _is_readable(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except (OverflowError, ValueError):
        return False
    return True


def python_values(values: pa.Array) -> list[Any]:
    """Python's values; such a date as days, such a time as microseconds since 1970."""
    try:
        return list(values.to_pylist())
    except (OverflowError, ValueError):
        numbers = values.cast(with_leaves(values.type, _as_numbers))
        return [_value(number, values.type) for number in numbers.to_pylist()]


def _as_numbers(kind: pa.DataType) -> pa.DataType:
    """The scalar type with a number in place of a date or time."""
    if pt.is_date32(kind):
        return pa.int32()
    return pa.int64() if pt.is_timestamp(kind) else kind


def _value(number: Any, kind: pa.DataType) -> Any:
    if number is None:
        return None
    if pt.is_struct(kind):
        return {field.name: _value(number[field.name], field.type) for field in kind}
    if pt.is_map(kind):
        return [(_value(k, kind.key_type), _value(v, kind.item_type)) for k, v in number]
    if pt.is_list(kind) or pt.is_large_list(kind):
        return [_value(item, kind.value_type) for item in number]
    return _scalar(number, kind)


def _scalar(number: Any, kind: pa.DataType) -> Any:
    if pt.is_date32(kind) and FIRST_DAY <= number <= LAST_DAY:
        return date.fromordinal(number - FIRST_DAY + 1)
    if pt.is_timestamp(kind) and FIRST_MICROSECOND <= number <= LAST_MICROSECOND:
        timestamp = _EPOCH + timedelta(microseconds=number)
        return timestamp.replace(tzinfo=UTC) if kind.tz else timestamp
    return number


BLANKS = " \t\n\r\f\v"
"""Characters that don't count at either end; others, such as a no-break space, are part of the text."""
WHOLE_NUMBERS = {
    name: range(-(2 ** (bits - 1)), 2 ** (bits - 1))
    for name, bits in {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}.items()
}
"""Types of whole numbers, and their values."""
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_WHOLE = re.compile(r"[+-]?[0-9]+")
# Possessive: 60,000 digits and a letter would else be tried in as many ways as there are digits.
_REAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INFINITE = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}
_MOST_DIGITS = 500
_MOMENT = re.compile(
    r"(?P<y>[0-9]{4})(?:-(?P<m>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})"
    r"(?:(?P<dz>Z|[+-][0-9]{2}:[0-9]{2})"
    r"|[ T](?P<H>[0-9]{1,2}):(?P<M>[0-9]{1,2})(?::(?P<S>[0-9]{1,2})(?:\.(?P<f>[0-9]*))?)?[ ]*(?P<z>[^ ].*)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)?|([0-9]{2})([0-9]{2}))")
_LONGEST_OFFSET = timedelta(hours=18)
_LONGEST_ZONE = 64
"""More characters than any name of a zone has; what is remembered of zones stays small."""
FINER = r"\.[0-9]{6}[0-9]*[1-9]"
"""Digits of a time past the microsecond, as a pattern."""
_MIDNIGHT = time()

Reader = Callable[[str], Any]


def reader(kind: SqlType) -> Reader:
    """Reads trimmed text as a value of a type; text of JSON as an array, a map or a struct."""
    if is_complex(kind):
        return _nested_reader(kind)
    if isinstance(kind, DecimalType):
        return lambda text: decimal_of(text, kind)
    name = kind.name if isinstance(kind, ScalarType) else ""
    if name in WHOLE_NUMBERS:
        return lambda text: _whole(text, WHOLE_NUMBERS[name])
    readers: dict[str, Reader] = {
        "float": lambda text: _single(real(text)),
        "double": real,
        "boolean": _boolean,
        "binary": str.encode,
        "date": day,
        "timestamp": moment,
        "timestamp_ntz": lambda text: moment(text, zoned=False),
        "string": str,
    }
    return readers[name]


def _nested_reader(kind: SqlType) -> Reader:
    """None for text that is no JSON, or of which the type does not hold every part."""
    part = _part(kind)

    def read(text: str) -> Any:
        try:
            # Numbers as they are written.
            return part(
                json.loads(text, parse_int=str, parse_float=str, parse_constant=str, object_pairs_hook=_members)
            )
        except (ValueError, RecursionError):
            return None

    return read


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Members of a JSON object as a dict.

    Raises:
        ValueError: two members of one name, of which one value would be lost.
    """
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError(pairs)
    return members


def _part(kind: SqlType) -> Callable[[Any], Any]:
    """Reads a parsed part of JSON, null or not, for Arrow to take. The function raises `ValueError` for a misfit."""
    if isinstance(kind, StructType):
        read = _struct_reader(kind)
    elif isinstance(kind, ArrayType):
        read = _array_reader(kind)
    else:
        read = _map_reader(kind) if isinstance(kind, MapType) else _scalar_reader(kind)
    return lambda value: None if value is None else read(value)


def _array_reader(kind: ArrayType) -> Callable[[Any], Any]:
    item = _part(kind.element)
    return lambda value: [item(one) for one in _of(list, value)]


def _map_reader(kind: MapType) -> Callable[[Any], Any]:
    key, inner = _part(kind.key), _part(kind.value)

    def read(value: Any) -> list[tuple[Any, Any]]:
        entries = {key(name): inner(one) for name, one in _of(dict, value).items()}
        if len(entries) < len(value):
            raise ValueError(value)
        return list(entries.items())

    return read


def _of(form: type, value: Any) -> Any:
    if not isinstance(value, form):
        raise ValueError(value)  # noqa: TRY004 - one error says that a value does not fit
    return value


def _struct_reader(kind: StructType) -> Callable[[Any], Any]:
    readers = {field.name.lower(): (field.name, _part(field.type)) for field in kind.fields}

    def read(value: Any) -> dict[str, Any]:
        members = {name.lower(): one for name, one in _of(dict, value).items()}
        if len(members) < len(value) or not members.keys() <= readers.keys():
            raise ValueError(value)
        return {name: part(members.get(lower)) for lower, (name, part) in readers.items()}

    return read


def _scalar_reader(kind: SqlType) -> Callable[[Any], Any]:
    read = (lambda text: base64.b64decode(text, validate=True)) if str(kind) == "binary" else reader(kind)
    is_time = str(kind).startswith("timestamp")

    def scalar(value: Any) -> Any:
        if isinstance(value, bool):
            value = str(value).lower() if str(kind) in ("boolean", "string") else None
        text = _of(str, value)
        text.encode()  # half a surrogate pair is no text
        parsed = None if is_time and re.search(FINER, text) else read(text.strip(BLANKS) if trims(kind) else text)
        if parsed is None:
            raise ValueError(value)
        return parsed

    return scalar


def trims(kind: SqlType) -> bool:
    """Whether blanks around a text of the type don't count."""
    return str(kind) not in ("string", "binary")


def _whole(text: str, values: range) -> int | None:
    if len(text) > _MOST_DIGITS or not _WHOLE.fullmatch(text):
        return None
    return value if (value := int(text)) in values else None


def rounded(value: Decimal, kind: DecimalType) -> Decimal | None:
    """To the type's scale, half up; None where it has too many digits."""
    with localcontext() as context:
        context.prec = 2 * _MOST_DIGITS
        number = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return number if len(number.as_tuple().digits) <= kind.precision else None


def decimal_of(text: str, kind: DecimalType) -> Decimal | None:
    """The number, where the type holds all of its digits."""
    if len(text) > _MOST_DIGITS or not _REAL.fullmatch(text) or abs(_exponent(text)) > _MOST_DIGITS:
        return None
    value = Decimal(text)
    number = rounded(value, kind)
    return number if number == value else None


def _exponent(text: str) -> int:
    return int(text.lower().partition("e")[2] or 0)


def real(text: str) -> float | None:
    """The nearest double; None where it is beyond the greatest one."""
    sign, bare = (-1.0, text[1:]) if text[:1] == "-" else (1.0, text.removeprefix("+"))
    if bare.lower() in _INFINITE:
        return sign * _INFINITE[bare.lower()]
    number = float(text) if _REAL.fullmatch(text) else math.inf
    return number if math.isfinite(number) else None


def _single(value: float | None) -> float | None:
    """The nearest float."""
    if value is None or not math.isfinite(value):
        return value
    number = float(pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py())
    return number if math.isfinite(number) else None


def _boolean(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def day(text: str) -> date | None:
    """A day, whose zone says nothing; also as its midnight; with a zone, midnight in UTC."""
    match = _MOMENT.fullmatch(text)
    value = moment(text, zoned=match is None or match["dz"] is None)
    if value is not None and value.tzinfo is None:
        return value.date()
    if match is None or value is None or value.timetz() != _MIDNIGHT.replace(tzinfo=UTC):
        return None
    return None if (match["f"] or "").strip("0") else value.date()


def moment(text: str, *, zoned: bool = True) -> datetime | None:
    """A time of a day that is named; without a zone in the text UTC is meant. Digits past microseconds are cut.

    Args:
        zoned: else the result has no zone, and one in the text says nothing.
    """
    match = _MOMENT.fullmatch(text)
    if match is None:
        return None
    named = match["dz"] or match["z"]
    zone = UTC if named is None else _zone(named[:_LONGEST_ZONE])
    if zone is None:
        return None
    try:
        naive = datetime(  # noqa: DTZ001 - the zone is put on below
            int(match["y"]), int(match["m"] or 1), int(match["d"] or 1), int(match["H"] or 0), int(match["M"] or 0),
            int(match["S"] or 0), int((match["f"] or "").ljust(6, "0")[:6]),
        )  # fmt: skip
        return naive.replace(tzinfo=zone).astimezone(UTC) if zoned else naive
    except (ValueError, OverflowError):
        return None


@functools.lru_cache(maxsize=1024)
def _zone(text: str) -> tzinfo | None:
    """`Z`, an offset of at most 18 hours, or a name of the IANA database; None where there is no such zone."""
    if text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if offset := _OFFSET.fullmatch(text):
        hours, minutes, seconds = offset[2] or offset[5], offset[3] or offset[6] or "0", offset[4] or "0"
        size = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(seconds))
        if size > _LONGEST_OFFSET or int(minutes) > 59 or int(seconds) > 59:
            return None
        return timezone(size if offset[1] == "+" else -size)
    return zoneinfo.ZoneInfo(text) if text in _names() else None


@functools.cache
def _names() -> frozenset[str]:
    """Asked for the whole list, since a name is looked up as a file, whose case some file systems pass over."""
    return frozenset(zoneinfo.available_timezones()) - {"localtime"}


WIDE = Context(prec=80)
"""For decimals of 38 digits; Python's usual context has 28."""
MICROS, MILLIS = "microseconds", "milliseconds"


def as_text(value: Any, kind: SqlType) -> str:
    """A scalar cast to text; not null."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return real_text(value, single=str(kind) == "float")
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return _moment_text(value)
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


MIDNIGHT = " 00:00:00"
"""What is left out of the text of a time where a date of the same value has that text, too."""


def plain_number(value: Decimal) -> str:
    """Its digits without an exponent, and without zeros that say nothing."""
    text = format(value, "f")
    short = text.rstrip("0").rstrip(".") if "." in text else text
    return "0" if short == "-0" else short


def _moment_text(value: datetime) -> str:
    whole = value.replace(tzinfo=None).isoformat(sep=" ", timespec="seconds")
    return f"{whole}.{value.microsecond:06d}".rstrip("0") if value.microsecond else whole


def real_text(value: float, *, single: bool) -> str:
    """As Java writes a float or double: its shortest digits, an exponent below 10^-3 and from 10^7 on."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    shortest = str(pa.scalar(value, pa.float32()).cast(pa.string()).as_py()) if single else repr(value)
    sign, digits, scale = Decimal(shortest).as_tuple()
    exponent = cast("int", scale)  # text only of infinite values
    text = "".join(map(str, digits)).rstrip("0") or "0"
    point = exponent + len(digits)  # value = 0.text * 10^point
    mark = "-" if sign else ""
    if text == "0":
        return f"{mark}0.0"
    if -3 < point <= 7:
        padded = "0" * max(0, 1 - point) + text.ljust(point, "0")
        whole = padded[: max(1, point)]
        return f"{mark}{whole}.{padded[max(1, point) :] or '0'}"
    return f"{mark}{text[0]}.{text[1:] or '0'}E{point - 1}"


Json = Callable[[Any], str]


def json_writer(kind: SqlType, *, nulls: bool = False, times: str = MICROS) -> Json:
    """Writes a value of a type, not null, as `to_json` does.

    Args:
        nulls: write fields that are null; else leave them out.
        times: precision of times.
    """
    writer = functools.partial(json_writer, nulls=nulls, times=times)
    if isinstance(kind, StructType):
        fields = [(f.name, writer(f.type)) for f in kind.fields]
        return lambda value: object_json(((n, value.get(n), w) for n, w in fields), nulls=nulls)
    if isinstance(kind, ArrayType):
        item = writer(kind.element)
        return lambda value: "[" + ",".join("null" if v is None else item(v) for v in value) + "]"
    if isinstance(kind, MapType):
        inner, key = writer(kind.value), kind.key
        return lambda value: (
            "{" + ",".join(f"{_quoted(as_text(k, key))}:{'null' if v is None else inner(v)}" for k, v in value) + "}"
        )
    return _scalar_writer(kind, times)


def object_json(fields: Iterable[tuple[str, Any, Json]], *, nulls: bool) -> str:
    """An object of (name, value, writer)."""
    parts = [
        f"{_quoted(name)}:{'null' if value is None else write(value)}"
        for name, value, write in fields
        if nulls or value is not None
    ]
    return "{" + ",".join(parts) + "}"


def _scalar_writer(kind: SqlType, times: str) -> Json:
    if isinstance(kind, DecimalType):
        return str
    name = kind.name if isinstance(kind, ScalarType) else ""
    writers: dict[str, Json] = {
        "float": lambda value: _real_json(real_text(value, single=True)),
        "double": lambda value: _real_json(real_text(value, single=False)),
        "timestamp": lambda value: _quoted(_iso(value, times) + "Z"),
        "timestamp_ntz": lambda value: _quoted(_iso(value, times)),
        "binary": lambda value: _quoted(base64.b64encode(value).decode()),
        "boolean": lambda value: str(value).lower(),
        "string": _quoted,
        "date": lambda value: _quoted(_beyond(value, "D") if isinstance(value, int) else str(value)),
    }
    return writers.get(name, str)


def _real_json(text: str) -> str:
    return _quoted(text) if text[-1] in "Ny" else text


def _iso(value: datetime | int, times: str) -> str:
    if isinstance(value, int):
        return _beyond(value, "us")
    naive = value.astimezone(UTC).replace(tzinfo=None) if value.tzinfo else value
    if times == MILLIS:
        return naive.isoformat(timespec="milliseconds" if naive.microsecond // 1000 else "seconds")
    return naive.isoformat(timespec="microseconds")


def utc_text(moment: datetime) -> str:
    """ISO 8601 with microseconds and `Z` of a time in UTC, with or without a zone."""
    return f"{moment.replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def read_json(value: Any, kind: SqlType) -> Any:
    """A parsed JSON value (numbers with a point as Decimal) back as a value of the type, for Arrow to take."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {f.name: read_json(value.get(f.name), f.type) for f in kind.fields}
    if isinstance(kind, ArrayType):
        return [read_json(v, kind.element) for v in value]
    if isinstance(kind, MapType):
        return [(_key(k, kind.key), read_json(v, kind.value)) for k, v in value.items()]
    return _read_scalar(value, kind)


def _read_scalar(value: Any, kind: SqlType) -> Any:
    if isinstance(kind, DecimalType):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-kind.scale), context=WIDE)
    readers: dict[str, Callable[[Any], Any]] = {
        "float": float,
        "double": float,
        "timestamp": lambda text: _read_time(text, datetime.fromisoformat, "us"),
        "timestamp_ntz": lambda text: _read_time(text, datetime.fromisoformat, "us"),
        "date": lambda text: _read_time(text, date.fromisoformat, "D"),
        "binary": base64.b64decode,
    }
    read = readers.get(str(kind))
    return value if read is None else read(value)


def _beyond(number: int, unit: Literal["D", "us"]) -> str:
    return str(np.datetime64(number, unit))


def _read_time(text: str, read: Callable[[str], Any], unit: Literal["D", "us"]) -> Any:
    """Read a time; encode a year outside 1 to 9999 as Arrow's integer, which Python's datetime can't hold."""
    try:
        return read(text)
    except ValueError:
        return int(np.datetime64(text.removesuffix("Z"), unit).astype(np.int64))


def _key(text: str, kind: SqlType) -> Any:
    return text if str(kind) == "string" else read_json(json.loads(text, parse_float=Decimal), kind)


def rows_json(columns: Sequence[tuple[str, pa.Array, SqlType]], *, nulls: bool) -> list[str]:
    """A JSON object for each row."""
    parts = [(name, python_values(values), json_writer(kind, nulls=nulls)) for name, values, kind in columns]
    count = len(parts[0][1]) if parts else 0
    return [object_json(((n, values[i], write) for n, values, write in parts), nulls=nulls) for i in range(count)]


_FRACTION, _MICROS = 9, 10**6


def normal_form(values: pa.Array) -> pa.Array:
    """Text of the known forms in its normal form, other text as it is.

    Args:
        values: of type string.
    """
    upper = pc.utf8_upper(values)
    bare = pc.replace_substring_regex(upper, PREFIX, "")
    whole = pc.if_else(pc.match_substring_regex(upper, HEXADECIMAL), _padded(bare, DIGITS), None)
    return pc.coalesce(_lsn(upper), _decimal(upper), whole, _instant(upper), values)


def forms(values: pa.Array) -> pa.Array:
    """The form of each text, by which it compares with others of the form; empty where its order is not known.

    Args:
        values: of type string, as delivered or in normal form.
    """
    upper = pc.utf8_upper(values)
    names = pa.nulls(len(values), pa.string())
    for pattern, name in ((MONTH, "month"), (LSN, "lsn"), (DECIMAL, "decimal"), (DIGITS_ALONE, "digits"),
                          (POWER, "power"), (HEXADECIMAL, "hex")):  # fmt: skip
        names = pc.coalesce(names, pc.if_else(pc.match_substring_regex(upper, pattern), name, None))
        if not names.null_count:
            return names
    times = pc.if_else(pc.is_valid(_instant(upper)), "time", None)
    names = pc.coalesce(names, times, pc.if_else(pc.match_substring_regex(values, ULID), "ulid", None), _groups(values))
    return pc.if_else(pc.is_valid(values), pc.fill_null(names, ""), None)


def nano_text(times: pa.Array, past: pa.Array) -> pa.Array:
    """Times in microseconds, and their nanoseconds past them, as text with all digits."""
    micros = times.cast(pa.timestamp("us")).cast(pa.int64())
    whole = pc.divide(micros, _MICROS)  # rounded to zero
    remainder = pc.subtract(micros, pc.multiply(whole, _MICROS))
    before = pc.less(remainder, 0)
    whole = pc.if_else(before, pc.subtract(whole, 1), whole)
    remainder = pc.if_else(before, pc.add(remainder, _MICROS), remainder)
    digits = pc.add(pc.multiply(remainder, 1000), pc.fill_null(past, 0))  # null: of a file in microseconds
    return _written(whole, pc.utf8_lpad(digits.cast(pa.string()), _FRACTION, "0"))


def finer_text(texts: pa.Array, past: pa.Array) -> pa.Array:
    """Texts of times as `as_text` has them, with their nanoseconds past the microsecond."""
    digits = pc.utf8_rtrim(pc.utf8_lpad(past.cast(pa.string()), 3, "0"), "0")
    pointed = pc.if_else(pc.match_substring(texts, "."), texts, pc.binary_join_element_wise(texts, "", "."))
    whole = pc.binary_join_element_wise(pc.utf8_rpad(pointed, _WITH_MICROS, "0"), digits, "")
    return pc.if_else(pc.fill_null(pc.greater(past, 0), False), whole, texts)


_WITH_MICROS = len("2024-01-01 00:00:00.000000")


def width(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """How long texts are that must be equally long; digits after a decimal point don't count."""
    bare = pc.replace_substring_regex(values, EPOCH, "")
    return pc.utf8_length(pc.replace_substring_regex(bare, DECIMAL, r"\1"))


def _lsn(upper: pa.Array) -> pa.Array:
    parts = pc.extract_regex(upper, LSN.replace("(", "(?P<high>", 1).replace("/(", "/(?P<low>", 1))
    high, low = (_padded(pc.struct_field(parts, name), LSN_DIGITS) for name in ("high", "low"))
    return pc.binary_join_element_wise(high, low, "/")


def _decimal(upper: pa.Array) -> pa.Array:
    parts = pc.extract_regex(upper, DECIMAL.replace("(", "(?P<whole>", 1).replace(".(", ".(?P<part>", 1))
    part = pc.utf8_rtrim(pc.struct_field(parts, "part"), "0")
    joined = pc.binary_join_element_wise(_padded(pc.struct_field(parts, "whole"), DIGITS), part, ".")
    return pc.utf8_rtrim(joined, ".")


def _instant(upper: pa.Array) -> pa.Array:
    """Times as UTC with nine digits after the second; null where the text is no time."""
    parts = pc.extract_regex(upper, TIME)
    if parts.null_count == len(parts):
        return pa.nulls(len(upper), pa.string())
    day, clock, second, fraction, sign, hours, minutes = (
        pc.struct_field(parts, name) for name in ("day", "clock", "second", "fraction", "sign", "hours", "minutes")
    )
    clock = pc.if_else(pc.equal(clock, ""), "00:00", clock)
    second = pc.if_else(pc.equal(second, ""), "00", second)
    local = pc.binary_join_element_wise(day, pc.binary_join_element_wise(clock, second, ":"), " ")
    ahead = pc.add(pc.multiply(_number(hours), 3600), pc.multiply(_number(minutes), 60))
    ahead = pc.if_else(pc.equal(sign, "-"), pc.negate(ahead), ahead)
    seconds = pc.subtract(_seconds(local), ahead)
    return _written(seconds, pc.utf8_rpad(fraction, _FRACTION, "0"))


def _number(digits: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(digits, ""), "0", digits).cast(pa.int64())


def _seconds(local: pa.Array) -> pa.Array:
    """Seconds since 1970; null where a month has no such day."""
    try:
        seconds = local.cast(pa.timestamp("s"))
    except pa.ArrowInvalid:
        read = [None if text is None else moment(text) for text in local.to_pylist()]
        seconds = pa.array([None if value is None else int(value.timestamp()) for value in read], pa.int64())
    return seconds.cast(pa.int64())


def _written(seconds: pa.Array, digits: pa.Array) -> pa.Array:
    text = pc.replace_substring(seconds.cast(pa.timestamp("s")).cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(pc.binary_join_element_wise(text, digits, "."), "Z", "")


def _groups(values: pa.Array) -> pa.Array:
    """Groups of digits, or of hexadecimal digits in one case, between marks; and identifiers that begin with a time."""
    lower, upper = pc.utf8_lower(values), pc.utf8_upper(values)
    random = pc.and_not(pc.match_substring_regex(upper, UUID), pc.match_substring_regex(upper, UUID_BY_TIME))
    refused = pc.or_(random, pc.match_substring_regex(upper, f"{OTHER_DATES}|{EXPONENT}"))
    digits = pc.match_substring_regex(values, DIGIT_GROUPS)
    hexadecimal = pc.match_substring_regex(upper, HEX_GROUPS)
    case = pc.if_else(pc.equal(values, lower), "lower", pc.if_else(_is_upper(values), "upper", None))
    kind = pc.if_else(digits, "digits", pc.if_else(hexadecimal, case, None))
    pattern = pc.if_else(digits, pc.replace_substring_regex(values, "[0-9]", "0"),
                         pc.replace_substring_regex(lower, "[0-9a-f]", "0"))  # fmt: skip
    groups = pc.binary_join_element_wise("groups", kind, pattern, " ")
    return pc.if_else(pc.and_(refused, pc.is_valid(values)), None, groups)


def _is_upper(values: pa.Array) -> pa.Array:
    """The `x` of a prefix may be lower."""
    bare = pc.replace_substring(values, "0x", "0X")
    return pc.equal(bare, pc.utf8_upper(bare))


def _padded(digits: pa.Array, least: int) -> pa.Array:
    """Longer ones stay as long as they are."""
    return pc.utf8_lpad(digits, least, "0")


def forms_of(sequence: str | None, columns: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Column to the form of its text in a sequence as the ledger keeps it; columns of other types are left out."""
    return {name: (_form(text),) for name, text in texts_of(sequence, columns).items()}


@functools.lru_cache(maxsize=1_000)
def _form(text: str) -> str:
    """See `forms`; a batch asks for that of the same text several times."""
    return str(forms(pa.array([text]))[0].as_py())
