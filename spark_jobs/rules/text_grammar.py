"""The grammar of texts: which text is which value of a type, and which is none (docs/semantics.md, section 11).

A reader takes the text without the blanks around it and gives the value, or None where there is no such value. What is
read doesn't depend on the machine, the day, the session or other rows.
"""

from __future__ import annotations

import functools
import math
import re
import zoneinfo
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import ROUND_HALF_UP, Decimal, localcontext
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.sql_types import DecimalType, ScalarType, SqlType

BLANKS = " \t\n\r\f\v"
"""Characters that don't count at either end; others, such as a no-break space, are part of the text."""
BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
"""Types of whole numbers."""
_TRUE, _FALSE = {"t", "true", "y", "yes", "1"}, {"f", "false", "n", "no", "0"}
_WHOLE = re.compile(r"[+-]?[0-9]+")
# Possessive: 60,000 digits and a letter would else be tried in as many ways as there are digits.
_REAL = re.compile(r"[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?")
_INFINITE = {"inf": math.inf, "infinity": math.inf, "nan": math.nan}
_MOST_DIGITS = 500
_MOMENT = re.compile(
    r"(?P<y>[0-9]{4})(?:-(?P<m>[0-9]{1,2})(?:-(?P<d>[0-9]{1,2})"
    r"(?:[ T](?P<H>[0-9]{1,2}):(?P<M>[0-9]{1,2})(?::(?P<S>[0-9]{1,2})(?:\.(?P<f>[0-9]*))?)?[ ]*(?P<z>[^ ].*)?)?)?)?"
)
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(?:([0-9]{1,2})(?::([0-9]{2})(?::([0-9]{2}))?)?|([0-9]{2})([0-9]{2}))")
_LONGEST_OFFSET = timedelta(hours=18)
_LONGEST_ZONE = 64
"""More characters than any name of a zone has; what is remembered of zones stays small."""
_MIDNIGHT = time()

Reader = Callable[[str], Any]


def reader(kind: SqlType) -> Reader:
    """Reads trimmed text as a value of a scalar type."""
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


def trims(kind: SqlType) -> bool:
    """Whether blanks around a text of the type don't count."""
    return str(kind) not in ("string", "binary")


def _whole(text: str, bits: int) -> int | None:
    if len(text) > _MOST_DIGITS or not _WHOLE.fullmatch(text):
        return None
    value = int(text)
    return value if -(2 ** (bits - 1)) <= value < 2 ** (bits - 1) else None


def rounded(value: Decimal, kind: DecimalType) -> Decimal | None:
    """To the type's scale, half up; None where it has too many digits."""
    with localcontext() as context:
        context.prec = 2 * _MOST_DIGITS
        found = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP)
    return found if len(found.as_tuple().digits) <= kind.precision else None


def decimal_of(text: str, kind: DecimalType) -> Decimal | None:
    """The number, where the type holds all of its digits."""
    if len(text) > _MOST_DIGITS or not _REAL.fullmatch(text) or abs(_exponent(text)) > _MOST_DIGITS:
        return None
    value = Decimal(text)
    found = rounded(value, kind)
    return found if found == value else None


def _exponent(text: str) -> int:
    return int(text.lower().partition("e")[2] or 0)


def real(text: str) -> float | None:
    """The nearest double; None where it is beyond the greatest one."""
    sign, bare = (-1.0, text[1:]) if text[:1] == "-" else (1.0, text.removeprefix("+"))
    if bare.lower() in _INFINITE:
        return sign * _INFINITE[bare.lower()]
    found = float(text) if _REAL.fullmatch(text) else math.inf
    return found if math.isfinite(found) else None


def _single(value: float | None) -> float | None:
    """The nearest float."""
    if value is None or not math.isfinite(value):
        return value
    found = float(pa.scalar(value, pa.float64()).cast(pa.float32(), safe=False).as_py())
    return found if math.isfinite(found) else None


def _boolean(text: str) -> bool | None:
    lower = text.lower()
    return True if lower in _TRUE else False if lower in _FALSE else None


def day(text: str) -> date | None:
    """A day, also as its midnight; with a zone, midnight in UTC."""
    found = _MOMENT.fullmatch(text)
    value = moment(text)
    if found is None or value is None or value.timetz() != _MIDNIGHT.replace(tzinfo=UTC):
        return None
    return None if (found["f"] or "").strip("0") else value.date()


def moment(text: str, *, zoned: bool = True) -> datetime | None:
    """A time of a day that is named; without a zone in the text UTC is meant. Digits past microseconds are cut.

    Args:
        zoned: else the result has no zone, and one in the text says nothing.
    """
    found = _MOMENT.fullmatch(text)
    if found is None:
        return None
    zone = UTC if found["z"] is None else _zone(found["z"][:_LONGEST_ZONE])
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
