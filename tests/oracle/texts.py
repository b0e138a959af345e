"""The grammar of texts once more, with fractions and splitting instead of patterns (semantics, section 11)."""

from __future__ import annotations

import struct
import zoneinfo
from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Context, Decimal
from fractions import Fraction

from tests.oracle.model import NotModelledError, Value

BLANKS = " \t\n\r\f\v"
DIGITS = frozenset("0123456789")
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE, _FALSE = ("t", "true", "y", "yes", "1"), ("f", "false", "n", "no", "0")
_WIDE = Context(prec=80)
_LONGEST = 500


class _NoValueError(Exception):
    """The text is none of the type's values."""


def cast_text(text: str, sql_type: str) -> Value:
    """Raises ValueError when the text is no such value; times come naive, in UTC."""
    kind = sql_type.lower().replace(" ", "")
    if kind in ("string", "binary"):
        return text if kind == "string" else text.encode()
    try:
        return _reader(kind)(text.strip(BLANKS))
    except _NoValueError as error:
        raise ValueError(f"{text!r} is no {sql_type}") from error


def _reader(kind: str) -> Callable[[str], Value]:
    if kind in _BITS:
        return lambda text: _whole(text, _BITS[kind])
    if kind.startswith("decimal("):
        precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
        return lambda text: _decimal(text, precision, scale)
    readers: dict[str, Callable[[str], Value]] = {
        "boolean": _boolean,
        "double": _double,
        "float": lambda text: _single(_double(text)),
        "date": _day,
        "timestamp": lambda text: _moment(text, zoned=True),
        "timestamp_ntz": lambda text: _moment(text, zoned=False),
    }
    if kind not in readers:
        raise NotModelledError(kind)
    return readers[kind]


def _require(condition: bool) -> None:
    if not condition:
        raise _NoValueError


def _natural(text: str, least: int = 1, most: int = _LONGEST) -> int:
    _require(least <= len(text) <= most and set(text) <= DIGITS)
    return int(text)


def _signed(text: str) -> tuple[int, str]:
    return (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))


def _whole(text: str, bits: int) -> int:
    _require(len(text) <= _LONGEST)
    sign, rest = _signed(text)
    value = sign * _natural(rest)
    _require(-(2 ** (bits - 1)) <= value < 2 ** (bits - 1))
    return value


def _number(text: str) -> Fraction:
    sign, rest = _signed(text)
    mantissa, mark, exponent = rest.replace("E", "e").partition("e")
    power = 0
    if mark:
        up, digits = _signed(exponent)
        power = up * _natural(digits)
    whole, _, part = mantissa.partition(".")
    _require(bool(whole or part) and set(whole + part) <= DIGITS)
    return sign * Fraction(int(whole + part)) * Fraction(10) ** (power - len(part))


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    _require(len(text) <= _LONGEST)
    lower = text.lower()
    if "e" in lower:
        _, digits = _signed(lower.partition("e")[2])
        _require(_natural(digits) <= _LONGEST)
    value = _number(text) * Fraction(10) ** scale
    _require(value.denominator == 1 and abs(value) < 10**precision)
    return Decimal(value.numerator).scaleb(-scale, context=_WIDE)


def _double(text: str) -> float:
    sign, rest = _signed(text)
    if rest.lower() in ("inf", "infinity", "nan"):
        return sign * float(rest)
    try:
        value = float(_number(text))
    except OverflowError:
        raise _NoValueError from None
    return -0.0 if value == 0 and sign < 0 else value


def _single(value: float) -> float:
    if value in (float("inf"), float("-inf")):
        return value
    try:
        found: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        raise _NoValueError from None
    return found


def _boolean(text: str) -> bool:
    _require(text.lower() in _TRUE + _FALSE)
    return text.lower() in _TRUE


def _day(text: str) -> date:
    """A fraction of a second is no midnight, however small. The zone of a day without a time says nothing."""
    if _zone_of_day(text):
        return _moment(text, zoned=False).date()
    found = _moment(text, zoned=True)
    fraction = text.partition(".")[2]
    _require((found.hour, found.minute, found.second, found.microsecond) == (0, 0, 0, 0))
    digits = fraction[: len(fraction) - len(fraction.lstrip("0123456789"))]
    _require(not digits.strip("0"))
    return found.date()


def _moment(text: str, *, zoned: bool) -> datetime:
    day, clock = _halves(text)
    zone = _zone_of_day(text)
    numbers = day.removesuffix(zone).split("-")
    _require(not zone or len(numbers) == 3)
    _require(1 <= len(numbers) <= 3 and (len(numbers) == 3 or not clock))
    year = _natural(numbers[0], 4, 4)
    month, number = ([_natural(n, 1, 2) for n in numbers[1:]] + [1, 1])[:2]
    try:
        found = datetime(year, month, number)  # noqa: DTZ001 - naive is meant
    except ValueError:
        raise _NoValueError from None
    if zone:
        return _at(found, f"00:00{zone}", zoned=zoned)
    return found if not clock else _at(found, clock, zoned=zoned)


def _zone_of_day(text: str) -> str:
    """`Z` or an offset of hours and minutes right behind a day; empty: neither."""
    if text.endswith("Z") and set(text[:-1]) <= DIGITS | {"-"}:
        return "Z"
    offset = text[-6:]
    digits = {at: char for at, char in enumerate(offset) if at not in (0, 3)}
    is_offset = offset[:1] in ("+", "-") and offset[3:4] == ":" and set(digits.values()) <= DIGITS
    return offset if is_offset and set(text[:-6]) <= DIGITS | {"-"} else ""


def _halves(text: str) -> tuple[str, str]:
    for mark in (" ", "T"):
        if text[4:11].count(mark) and set(text[: text.index(mark)]) <= DIGITS | {"-"}:
            day, _, clock = text.partition(mark)
            _require(bool(clock))
            return day, clock
    return text, ""


def _at(day: datetime, clock: str, *, zoned: bool) -> datetime:
    end = next((i for i, c in enumerate(clock) if c not in DIGITS | {":", "."}), len(clock))
    time, zone = clock[:end], clock[end:].lstrip(" ")
    whole, _, fraction = time.partition(".")
    parts = whole.split(":")
    _require(2 <= len(parts) <= 3 and (len(parts) == 3 or "." not in time) and set(fraction) <= DIGITS)
    hour, minute, second = ([_natural(p, 1, 2) for p in parts] + [0])[:3]
    _require(hour < 24 and minute < 60 and second < 60)
    micros = int(fraction[:6].ljust(6, "0")) if fraction else 0
    found = day.replace(hour=hour, minute=minute, second=second, microsecond=micros)
    offset = _zone(found, zone)
    try:
        return found - offset if zoned else found
    except OverflowError:
        raise _NoValueError from None


def _zone(at: datetime, text: str) -> timedelta:
    """What a zone is ahead of UTC."""
    if text in ("", "Z", "UTC", "GMT", "UT"):
        return timedelta()
    bare = next((text.removeprefix(p) for p in ("UTC", "GMT", "UT") if text.startswith(p)), text)
    if bare[:1] in ("+", "-") and bare[:1]:
        return _offset(bare)
    _require(text in zoneinfo.available_timezones() and text != "localtime")
    ahead = at.replace(tzinfo=zoneinfo.ZoneInfo(text)).utcoffset()
    assert ahead is not None
    return ahead


def _offset(text: str) -> timedelta:
    sign, parts = (-1 if text[0] == "-" else 1), text[1:].split(":")
    if len(parts) == 1 and len(parts[0]) == 4:
        parts = [parts[0][:2], parts[0][2:]]
    _require(1 <= len(parts) <= 3)
    hours, minutes, seconds = [_natural(parts[0], 1, 2), *(_natural(p, 2, 2) for p in parts[1:]), 0, 0][:3]
    _require(minutes < 60 and seconds < 60)
    ahead = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    _require(ahead <= timedelta(hours=18))
    return sign * ahead
