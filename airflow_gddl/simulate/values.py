"""New values for a column: mostly others of the same column, sometimes made up from its type."""

from __future__ import annotations

import random
import string
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from airflow_gddl.simulate.spec import EventKind

T = TypeVar("T")


def chance(*purpose: object) -> random.Random:
    """A generator that depends on nothing but the purpose, e.g. `(seed, table, round, "late")`."""
    return random.Random("/".join(map(str, purpose)))  # noqa: S311 - made-up data, no secrets


def some(rng: random.Random, items: Sequence[T], share: float) -> list[T]:
    """About `share` of the items, in their order; at least one when the share is above 0 and there is any."""
    count = min(len(items), max(1, round(share * len(items)))) if share > 0 else 0
    return [items[i] for i in sorted(rng.sample(range(len(items)), count))]


@dataclass(frozen=True)
class SimulatedColumn:
    """A column under its original name, which the replica uses.

    Attributes:
        delivered: its name in files from now on.
        live: false once the source dropped it.
    """

    name: str
    type: pa.DataType
    delivered: str
    live: bool = True


@dataclass(frozen=True)
class SimulatedColumns:
    """All columns that the table ever had, in order of appearance.

    Attributes:
        order: names of the live ones in the order in which files bring them.
    """

    all: tuple[SimulatedColumn, ...]
    order: tuple[str, ...]
    keys: tuple[str, ...]

    @classmethod
    def of(cls, schema: pa.Schema, keys: tuple[str, ...]) -> SimulatedColumns:
        return cls(tuple(SimulatedColumn(f.name, f.type, f.name) for f in schema), tuple(schema.names), keys)

    @property
    def live(self) -> tuple[SimulatedColumn, ...]:
        """As files bring them."""
        by_name = {column.name: column for column in self.all}
        return tuple(by_name[name] for name in self.order)

    @property
    def free(self) -> tuple[SimulatedColumn, ...]:
        """Live columns that are not part of the key."""
        return tuple(column for column in self.live if column.name not in self.keys)

    @property
    def schema(self) -> pa.Schema:
        """Of the truth: dropped columns too."""
        return pa.schema([(column.name, column.type) for column in self.all])

    def dropped(self) -> frozenset[str]:
        return frozenset(column.name for column in self.all if not column.live)


def evolve(columns: SimulatedColumns, kind: EventKind, wanted: str | None) -> SimulatedColumns | None:
    """Columns after the event; null when no column fits it.

    Args:
        wanted: column that it must be; None: the first that fits (`drop_column`: the last). `add_column`: the new name.
    """
    if kind == "add_column":
        return _add(columns, wanted)
    if kind == "reorder":
        return replace(columns, order=(*columns.order[1:], columns.order[0])) if len(columns.order) > 1 else None
    fits, change = _CHANGES[kind]
    candidates = [c for c in columns.free if fits(c) and wanted in (None, c.name)]
    if not candidates or (kind == "drop_column" and len(columns.order) == 1):
        return None
    changed = change(candidates[-1] if kind == "drop_column" else candidates[0])
    return replace(
        columns,
        all=tuple(changed if c.name == changed.name else c for c in columns.all),
        order=tuple(name for name in columns.order if changed.live or name != changed.name),
    )


def _add(columns: SimulatedColumns, wanted: str | None) -> SimulatedColumns | None:
    taken = {column.name.lower() for column in columns.all}
    name = wanted or next(n for n in (f"added_{i}" for i in range(1, len(taken) + 2)) if n not in taken)
    if name.lower() in taken:
        return None
    return replace(columns, all=(*columns.all, SimulatedColumn(name, pa.string(), name)), order=(*columns.order, name))


def _is_narrow_int(column: SimulatedColumn) -> bool:
    return bool(pt.is_signed_integer(column.type)) and not pt.is_int64(column.type)


def _has_case(column: SimulatedColumn) -> bool:
    return column.delivered.swapcase() != column.delivered


def _deeper(column: SimulatedColumn) -> SimulatedColumn:
    fields = [column.type.field(i) for i in range(column.type.num_fields)]
    return replace(column, type=pa.struct([*fields, pa.field(f"added_{len(fields)}", pa.int64())]))


_CHANGES: dict[EventKind, tuple[Callable[[SimulatedColumn], bool], Callable[[SimulatedColumn], SimulatedColumn]]] = {
    "drop_column": (lambda column: column.live, lambda column: replace(column, live=False)),
    "rename_case": (_has_case, lambda column: replace(column, delivered=column.delivered.swapcase())),
    "widen": (_is_narrow_int, lambda column: replace(column, type=pa.int64())),
    "add_nested_field": (lambda column: bool(pt.is_struct(column.type)), _deeper),
}


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


def _lookalikes(text: str) -> list[str]:
    forms = [text.swapcase(), f"{text} ", unicodedata.normalize("NFD", text), f"{text}é", f"{text}e\u0301"]
    return [form for form in forms if form != text]


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
