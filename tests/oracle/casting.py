"""Text to typed values, and the text that is hashed for a mask, as Spark casts them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation

from tests.oracle.model import NotModelledError, Value

_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_TRUE = {"t", "true", "y", "yes", "1"}
_FALSE = {"f", "false", "n", "no", "0"}


def normal_text(value: str) -> str:
    """Log sequence numbers, digits (decimal or hexadecimal) and decimal numbers, filled up with zeros."""
    upper = value.upper()
    if found := re.fullmatch(r"([0-9A-F]{1,8})/([0-9A-F]{1,8})", upper):
        return f"{int(found[1], 16):08X}/{int(found[2], 16):08X}"
    if found := re.fullmatch(r"([0-9]+)\.([0-9]+)", upper):
        return f"{found[1]:0>20}.{found[2]}".rstrip("0").rstrip(".") if int(found[2]) else f"{found[1]:0>20}"
    if found := re.fullmatch(r"(?:0X)?([0-9A-F]+)", upper):
        return f"{found[1]:0>20}"
    return _instant(upper) or value


def _instant(text: str) -> str | None:
    """A time as UTC with nine digits after the second; None where it is none."""
    clock, zone = r"(\d\d:\d\d)(:\d\d)?(?:(?<=:\d\d:\d\d)\.(\d{1,9}))?", r"(Z|UTC|GMT|[+-]\d\d(?::?\d\d)?)"
    shape = rf"(\d{{4}}-\d\d-\d\d)(?:[T ]{clock} ?{zone}?)?"
    found = re.fullmatch(shape, text, re.ASCII)
    if found is None:
        return None
    zone = (found[5] or "Z").replace(":", "")
    zone = "+0000" if zone in ("Z", "UTC", "GMT") else zone.ljust(5, "0")
    try:
        local = datetime.fromisoformat(f"{found[1]}T{found[2] or '00:00'}{found[3] or ':00'}")
    except ValueError:
        return None
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[3:]))
    if int(zone[1:3]) > 17 or int(zone[3:]) > 59:
        return None
    at = local + ahead if zone[0] == "-" else local - ahead
    return f"{at.isoformat(timespec='seconds')}.{found[4] or '':0<9}Z"


def cast_text(text: str, sql_type: str) -> Value:
    """Raises ValueError when the text is no such value."""
    kind = sql_type.lower().replace(" ", "")
    if kind == "string":
        return text
    text = text.strip()
    if kind in _BITS:
        return _whole(text, _BITS[kind])
    if kind.startswith("decimal("):
        return _decimal(text, kind)
    if kind not in _PARSERS:
        raise NotModelledError(sql_type)
    return _PARSERS[kind](text)


def naive_utc(moment: datetime) -> datetime:
    """A time of day without a zone is meant in UTC."""
    return moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment


def _whole(text: str, bits: int) -> int:
    if not re.fullmatch(r"[+-]?[0-9]+", text) or not -(2 ** (bits - 1)) <= int(text) < 2 ** (bits - 1):
        raise ValueError(f"{text!r} is not a whole number of {bits} bits")
    return int(text)


def _decimal(text: str, kind: str) -> Decimal:
    precision, scale = map(int, kind.removeprefix("decimal(").removesuffix(")").split(","))
    try:
        exact = Decimal(text)
    except InvalidOperation as error:
        raise ValueError(f"{text!r} is not a decimal") from error
    value = exact.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP)
    if len(value.as_tuple().digits) > precision:
        raise ValueError(f"{text!r} does not fit {kind}")
    return value


def _boolean(text: str) -> bool:
    if text.lower() not in _TRUE | _FALSE:
        raise ValueError(f"{text!r} is not a boolean")
    return text.lower() in _TRUE


def masked(value: Value, method: str) -> str | None:
    """`hash`: SHA-256 of the text, hexadecimal; `null`: null. Null stays null."""
    if value is None or method == "null":
        return None
    return hashlib.sha256(as_text(value).encode()).hexdigest()


def as_text(value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value.normalize(), "f")
    if isinstance(value, date):
        return str(value).removesuffix(" 00:00:00")
    if isinstance(value, (str, int)):
        return str(value)
    raise NotModelledError(f"text of {type(value).__name__}")


def _moment(text: str) -> datetime:
    return naive_utc(datetime.fromisoformat(text))


_PARSERS: dict[str, Callable[[str], Value]] = {
    "boolean": _boolean,
    "double": float,
    "date": date.fromisoformat,
    "timestamp": _moment,
    "timestamp_ntz": _moment,
}
