"""The placeholder that Debezium writes for a value which the source did not send, in each form that a type gives it.

PostgreSQL's connector makes one element for each byte of it where it has no form for the type of an array's elements
(dbz#2418): numbers, and what is made of them by the element's own type, e.g. texts, dates, decimals. Geometries have
places that no point of the earth has.
"""

from __future__ import annotations

import base64
import hashlib
import struct
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Any

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)
_NOT_SUCH = (TypeError, ValueError, ArithmeticError, KeyError, AttributeError)
_WGS84 = 4326
_PLACES = ((-99999999.0, -99999999.0), (179.999999, 89.999999))
"""Longitude and latitude of the placeholders of geometries and points, and of geographies."""


_SEND_ALL = ("mysql", "mariadb", "mongodb")
"""Connectors that write no placeholder."""


def may_lack_values(source: Mapping[str, Any], *, is_read: bool) -> bool:
    """Whether an event may have placeholders: what looks like one in others is a value of the source.

    Args:
        is_read: it is a row that a snapshot has read, which PostgreSQL's connector has whole.
    """
    connector = source.get("connector")
    return connector not in _SEND_ALL and not (is_read and connector == "postgresql")


@dataclass(frozen=True)
class Unavailable:
    """
    Attributes:
        text: `unavailable.value.placeholder` of the connector.
    """

    text: str

    @cached_property
    def _bytes(self) -> bytes:
        return self.text.encode()

    @cached_property
    def forms(self) -> list[Any]:
        """Its forms by the type of its column, but for arrays with an element for each byte.

        Bytes have one for each `binary.handling.mode`: `bytes`, in JSON as `base64`, `base64-url-safe` and `hex`.
        """
        text, name = (
            self.text,
            str(uuid.UUID(bytes=hashlib.md5(self._bytes, usedforsecurity=False).digest(), version=3)),
        )
        encoded = dict.fromkeys([
            base64.b64encode(self._bytes).decode(), base64.urlsafe_b64encode(self._bytes).decode(), self._bytes.hex(),
        ])  # fmt: skip
        alone = [text, *encoded, self._bytes]
        return [*alone, *([form] for form in (*alone, name)), {text: text}, [(text, text)], f'{{"{text}":"{text}"}}']

    def may_be_in(self, text: str) -> bool:
        """Whether one of `forms` may be in a file at all."""
        forms = (form[0] if isinstance(form, list) else form for form in self.forms)
        return any(isinstance(form, str) and form in text for form in forms)

    def is_spelled_by(self, value: Any) -> bool:
        """Whether a value is a list with an element for each byte, or the placeholder of a place."""
        if isinstance(value, list):
            return len(value) == len(self._bytes) and self._is_spelled(value)
        return isinstance(value, Mapping) and _is_no_place(value)

    def _is_spelled(self, values: Sequence[Any]) -> bool:
        """Each way of reading all elements as numbers; their unit may be a power of ten of the byte's."""
        for read in _READ:
            try:
                numbers = [read(value) for value in values]
            except _NOT_SUCH:
                continue
            unit = numbers[0] / self._bytes[0]
            if _is_power_of_ten(unit) and all(n == b * unit for n, b in zip(numbers, self._bytes, strict=True)):
                return True
        return False


def _is_power_of_ten(number: Decimal) -> bool:
    return number.is_finite() and number > 0 and number.normalize().as_tuple().digits == (1,)


def _number(value: Any) -> Decimal:
    if isinstance(value, bool):
        raise TypeError(value)
    try:
        return Decimal(repr(float(value)) if isinstance(value, float) else value)
    except InvalidOperation as error:
        raise ValueError(value) from error


def _unscaled(value: Any) -> Decimal:
    """A decimal of Connect: big-endian, in the JSON's base64, with a scale beside it or in the schema."""
    value = value["value"] if isinstance(value, Mapping) else value
    digits = value if isinstance(value, bytes) else base64.b64decode(value, validate=True)
    return Decimal(int.from_bytes(digits, "big", signed=True))


def _moment(value: Any) -> Decimal:
    """A date in days, a time in microseconds since the epoch or midnight; also as text."""
    if isinstance(value, str):
        value = _of_text(value)
    if isinstance(value, datetime):
        return Decimal(((value if value.tzinfo else value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND)
    if isinstance(value, date):
        return Decimal((value - _EPOCH.date()) // _DAY)
    return Decimal((datetime.combine(_EPOCH.date(), value.replace(tzinfo=UTC)) - _EPOCH) // _MICROSECOND)


def _of_text(text: str) -> date | time | datetime:
    bare = text.removesuffix("Z")
    for read in (date.fromisoformat, time.fromisoformat):
        try:
            return read(bare)
        except ValueError:
            continue
    return datetime.fromisoformat(text)


_READ: tuple[Callable[[Any], Decimal], ...] = (_number, _unscaled, _moment)


def _is_no_place(value: Mapping[Any, Any]) -> bool:
    """Whether a struct of a geometry has a place of the placeholder: as well-known binary, or as `x` and `y`."""
    if "x" in value and "y" in value:
        return (value["x"], value["y"]) == _PLACES[0]
    if "wkb" not in value:
        return False
    wkb = value["wkb"]
    known = [struct.pack("<bIIdd", 1, 0x20000001, _WGS84, *place) for place in _PLACES]
    return wkb in known or wkb in [base64.b64encode(one).decode() for one in known]
