"""New values for a column: mostly others of the same column, sometimes made up from its type."""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.devtools.simulate.columns import SimulatedColumn

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

    def draw(self, column: SimulatedColumn, rng: random.Random) -> object:
        known = self.pool.get(column.name)
        return rng.choice(known) if known and rng.random() >= self.made_up else make(column.type, rng)

    def other(self, column: SimulatedColumn, old: object, rng: random.Random) -> object:
        """A value that differs from the old one; null if none is found and the old one is not."""
        drawn = (self.draw(column, rng) for _ in range(_ATTEMPTS))
        return next((value for value in drawn if value != old), None if old is not None else make(column.type, rng))

    def varying(self, columns: Sequence[SimulatedColumn]) -> list[SimulatedColumn]:
        """Columns that an update may change: without made-up values those of more than one value, if there are any."""
        found = [c for c in columns if self.made_up > 0 or c.name not in self.pool or self._varies(c.name)]
        return found or list(columns)

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
