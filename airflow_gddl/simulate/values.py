"""New values for a column: mostly others of the same column, sometimes made up from its type."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

T = TypeVar("T")


def chance(*purpose: object) -> random.Random:
    """A generator that depends on nothing but the purpose, e.g. `(seed, table, round, "late")`."""
    return random.Random("/".join(map(str, purpose)))  # noqa: S311 - made-up data, no secrets


def some(rng: random.Random, items: Sequence[T], share: float) -> list[T]:
    """About `share` of the items, in their order; at least one when the share is above 0 and there is any."""
    count = min(len(items), max(1, round(share * len(items)))) if share > 0 else 0
    return [items[i] for i in sorted(rng.sample(range(len(items)), count))]


@dataclass(frozen=True)
class SimulatedColumns:
    """Columns of a table, and the names of those that are its key."""

    schema: pa.Schema
    keys: tuple[str, ...]

    @property
    def free(self) -> tuple[pa.Field, ...]:
        """Those that are not part of the key."""
        return tuple(column for column in self.schema if column.name not in self.keys)


Key = tuple[object, ...]


class KeyMaker:
    """Makes keys by giving one key column a value it never had; the others are copied from a row."""

    def __init__(self, table: pa.Table, keys: tuple[str, ...]) -> None:
        self._keys = keys
        self._column = _varied(table.schema, keys)
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
        value = self._text(rng) if pt.is_string(self._kind) else self._ordinal()
        if value is None or self._column is None or (like is None and len(self._keys) > 1):
            return None
        return tuple(value if k == self._column else part for k, part in zip(self._keys, like or (None,), strict=True))

    def _ordinal(self) -> object:
        value = self._next
        self._next = None if value is None else _step(value, self._kind)
        return value

    def _text(self, rng: random.Random) -> str:
        new = f"K{rng.randrange(36**6):06d}"
        while new in self._seen:
            new = f"K{rng.randrange(36**6):06d}"
        self._seen.add(new)
        return new


def _varied(schema: pa.Schema, keys: tuple[str, ...]) -> str | None:
    for fits in (pt.is_integer, pt.is_string, pt.is_timestamp, pt.is_date, pt.is_decimal):
        candidates = [key for key in reversed(keys) if fits(schema.field(key).type)]
        if candidates:
            return candidates[0]
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


_START = datetime(2020, 1, 1, tzinfo=UTC)
_SMALL = 1000
_POOL_ROWS = 512
# Marks, accents, an emoji: what breaks careless writers and readers of text.
_ALPHABET = string.ascii_letters + string.digits + " ,;'\"äßé中🛫"
_ATTEMPTS = 20


@dataclass(frozen=True)
class Values:
    """Draws values.

    Attributes:
        pool: column to values that the input holds, nulls among them; a column may be missing.
        made_up: share of values that don't come from the pool.
    """

    pool: Mapping[str, Sequence[object]]
    made_up: float

    @classmethod
    def of(cls, table: pa.Table, rng: random.Random, made_up: float) -> Values:
        picked = sorted(rng.sample(range(table.num_rows), min(_POOL_ROWS, table.num_rows)))
        return cls(table.take(pa.array(picked, pa.int64())).to_pydict(), made_up)

    def draw(self, column: pa.Field, rng: random.Random) -> object:
        known = self.pool.get(column.name)
        return rng.choice(known) if known and rng.random() >= self.made_up else make(column.type, rng)

    def other(self, column: pa.Field, old: object, rng: random.Random) -> object:
        """A value that differs from the old one; null if none is found and the old one is not."""
        drawn = (self.draw(column, rng) for _ in range(_ATTEMPTS))
        return next((value for value in drawn if value != old), None if old is not None else make(column.type, rng))

    def varying(self, columns: Sequence[pa.Field]) -> list[pa.Field]:
        """Columns that an update may change: without made-up values those of more than one value, if there are any."""
        candidates = [c for c in columns if self.made_up > 0 or c.name not in self.pool or self._varies(c.name)]
        return candidates or list(columns)

    def _varies(self, name: str) -> bool:
        values = self.pool[name]
        return any(value != values[0] for value in values)


def make(kind: pa.DataType, rng: random.Random) -> object:
    """A value of the type, never null; null for a type that isn't known here."""
    for fits, maker in _MAKERS:
        if fits(kind):
            return maker(kind, rng)
    return None


def _integer(kind: pa.DataType, rng: random.Random) -> int:
    bits = kind.bit_width if pt.is_unsigned_integer(kind) else kind.bit_width - 1
    top: int = 2**bits - 1
    return rng.randrange(min(top, _SMALL)) if rng.random() < 0.5 else top - rng.randrange(min(top, _SMALL))


def _decimal(kind: pa.DataType, rng: random.Random) -> Decimal:
    # Built from digits, for arithmetic would round to the 28 digits of the default context.
    digits = tuple(rng.randrange(10) for _ in range(rng.randint(1, kind.precision)))
    return Decimal((rng.randrange(2), digits, -kind.scale))


def _text(_kind: pa.DataType, rng: random.Random) -> str:
    return "".join(rng.choices(_ALPHABET, k=rng.randint(1, 12))).strip() or "x"


def _timestamp(kind: pa.DataType, rng: random.Random) -> datetime:
    moment = _START + timedelta(milliseconds=rng.randrange(10**11))
    return moment if kind.tz else moment.replace(tzinfo=None)


def _struct(kind: pa.DataType, rng: random.Random) -> dict[str, object]:
    return {kind.field(i).name: make(kind.field(i).type, rng) for i in range(kind.num_fields)}


def _list(kind: pa.DataType, rng: random.Random) -> list[object]:
    return [make(kind.value_type, rng) for _ in range(rng.randrange(3))]


_MAKERS: tuple[tuple[Callable[[pa.DataType], bool], Callable[[pa.DataType, random.Random], object]], ...] = (
    (pt.is_integer, _integer),
    (pt.is_floating, lambda _kind, rng: rng.randrange(-(10**6), 10**6) / 4),
    (pt.is_decimal, _decimal),
    (pt.is_boolean, lambda _kind, rng: rng.random() < 0.5),
    (pt.is_string, _text),
    (pt.is_binary, lambda _kind, rng: rng.randbytes(rng.randint(1, 8))),
    (pt.is_date, lambda _kind, rng: date(2020, 1, 1) + timedelta(days=rng.randrange(3000))),
    (pt.is_timestamp, _timestamp),
    (pt.is_struct, _struct),
    (pt.is_list, _list),
)
