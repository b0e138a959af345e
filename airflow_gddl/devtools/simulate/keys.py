"""Keys that no row ever had."""

from __future__ import annotations

import random
import unicodedata
from datetime import date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

Key = tuple[object, ...]


class KeyMaker:
    """Makes keys by giving one key column a value it never had; the others are copied from a row."""

    def __init__(self, table: pa.Table, keys: tuple[str, ...], *, tricky: bool) -> None:
        self._keys = keys
        self._column = _varied(table.schema, keys, tricky)
        self._tricky = tricky
        self._kind = table.schema.field(self._column).type if self._column else None
        self._seen: set[object] = set()
        self._next: object = None
        if self._column and pt.is_string(self._kind):
            self._seen = set(pc.unique(table[self._column]).to_pylist())
        elif self._column:
            self._next = _step(pc.max(table[self._column]).as_py(), self._kind)

    def fresh(self, like: Key | None, rng: random.Random) -> Key | None:
        """A new key; null when its type has none left.

        Args:
            like: key whose other parts it takes; null only when the table never had a row.
        """
        value = self._text(like, rng) if pt.is_string(self._kind) else self._ordinal()
        if value is None or self._column is None or (like is None and len(self._keys) > 1):
            return None
        return tuple(value if k == self._column else part for k, part in zip(self._keys, like or (None,), strict=True))

    def _ordinal(self) -> object:
        value = self._next
        self._next = None if value is None else _step(value, self._kind)
        return value

    def _text(self, like: Key | None, rng: random.Random) -> str:
        old = like[self._keys.index(self._column)] if like and self._column else "k"
        tries = _lookalikes(str(old)) if self._tricky else []
        rng.shuffle(tries)
        new = next((text for text in tries if text not in self._seen), None)
        while new is None or new in self._seen:
            new = f"K{rng.randrange(36**6):06d}"
        self._seen.add(new)
        return new


def _varied(schema: pa.Schema, keys: tuple[str, ...], tricky: bool) -> str | None:
    ordered = (pt.is_string, pt.is_integer) if tricky else (pt.is_integer, pt.is_string)
    for fits in (*ordered, pt.is_timestamp, pt.is_date, pt.is_decimal):
        found = [key for key in reversed(keys) if fits(schema.field(key).type)]
        if found:
            return found[0]
    return None


def _step(value: object, kind: pa.DataType) -> object:
    """The next greater value; null when there is none."""
    if pt.is_integer(kind):
        top = 2 ** (kind.bit_width if pt.is_unsigned_integer(kind) else kind.bit_width - 1) - 1
        after = 1 if not isinstance(value, int) else value + 1
        return after if after <= top else None
    if isinstance(value, datetime):
        return value + timedelta(seconds=1)
    if isinstance(value, date):
        return value + timedelta(days=1)
    if isinstance(value, Decimal):
        after_ = value + 1
        return after_ if len(after_.as_tuple().digits) <= kind.precision else None
    return None


def _lookalikes(text: str) -> list[str]:
    forms = [text.swapcase(), f"{text} ", unicodedata.normalize("NFD", text), f"{text}é", f"{text}e\u0301"]
    return [form for form in forms if form != text]
