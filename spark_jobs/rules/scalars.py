"""Text as typed values, by the rules of Spark's `try_cast` under ANSI; None: there is no such value."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa

from spark_jobs.plan.types import DecimalType, ScalarType, SqlType

BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_WHOLE = re.compile(r"[+-]?[0-9]+")
_REAL = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_HEXADECIMAL = re.compile(r"[+-]?0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+")
_INFINITE = {"inf": math.inf, "+inf": math.inf, "infinity": math.inf, "+infinity": math.inf,
             "-inf": -math.inf, "-infinity": -math.inf, "nan": math.nan}  # fmt: skip
_DATE = r"(?P<y>[0-9]{4,5})(?:-(?P<m>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})"
_DAY = re.compile(_DATE + r"(?:[ T].*)?)?)?")
_MOMENT = re.compile(
    _DATE
    + r"(?:[ T](?P<H>[0-9]{1,2}):(?P<M>[0-9]{1,2})(?::(?P<S>[0-9]{1,2})(?:\.(?P<f>[0-9]*))?)?\s*(?P<z>\S.*)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])([0-9]{1,2})(?::?([0-9]{1,2}))?(?::?([0-9]{2}))?")

Reader = Callable[[str], Any]


def reader(kind: SqlType) -> Reader:
    """Reads text, blanks around it already gone, as a value of the type."""
    if isinstance(kind, DecimalType):
        return lambda text: decimal_of(text, kind)
    name = kind.name if isinstance(kind, ScalarType) else ""
    if name in BITS:
        return lambda text: _whole(text, BITS[name])
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


def _whole(text: str, bits: int) -> int | None:
    if not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def rounded(value: Decimal, kind: DecimalType) -> Decimal | None:
    """To the type's scale, half up; None where it has too many digits."""
    with localcontext() as context:
        context.prec = 1000
        found = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return found if len(found.as_tuple().digits) <= kind.precision else None


def decimal_of(text: str, kind: DecimalType) -> Decimal | None:
    if not _REAL.fullmatch(text) or abs(_exponent(text)) > 500:
        return None
    return rounded(Decimal(text), kind)


def _exponent(text: str) -> int:
    return int(text.lower().partition("e")[2] or 0)


def real(text: str) -> float | None:
    if text.lower() in _INFINITE:
        return _INFINITE[text.lower()]
    bare = text[:-1] if text[-1:] in "dDfF" else text
    if _HEXADECIMAL.fullmatch(bare):
        return float.fromhex(bare)
    return float(bare) if _REAL.fullmatch(bare) else None


def _single(value: float | None) -> float | None:
    return None if value is None else float(pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py())


def _boolean(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def day(text: str) -> date | None:
    found = _DAY.fullmatch(text.strip())
    if found is None:
        return None
    try:
        return date(int(found["y"]), int(found["m"] or 1), int(found["d"] or 1))
    except ValueError:
        return None


def moment(text: str, *, zoned: bool = True) -> datetime | None:
    """A time; without a zone in the text UTC is meant. Digits past microseconds are cut, as Spark cuts them.

    Args:
        zoned: else the result has no zone, and one in the text says nothing.
    """
    found = _MOMENT.fullmatch(text.strip())
    if found is None:
        return None
    zone = _zone(found["z"])
    if zone is None:
        return None
    try:
        naive = datetime(  # noqa: DTZ001 - the zone is put on below
            int(found["y"]), int(found["m"] or 1), int(found["d"] or 1), int(found["H"] or 0), int(found["M"] or 0),
            int(found["S"] or 0), int((found["f"] or "").ljust(6, "0")[:6]),
        )  # fmt: skip
        return naive.replace(tzinfo=zone).astimezone(UTC) if zoned else naive
    except (ValueError, OverflowError):
        return None


def _zone(text: str | None) -> tzinfo | None:
    """None where there is no such zone."""
    if text is None or text in ("Z", "UTC", "GMT", "UT"):
        return UTC
    if offset := _OFFSET.fullmatch(text):
        size = timedelta(hours=int(offset[2]), minutes=int(offset[3] or 0), seconds=int(offset[4] or 0))
        if size > timedelta(hours=18) or int(offset[3] or 0) > 59:
            return None
        return timezone(size if offset[1] == "+" else -size)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None
