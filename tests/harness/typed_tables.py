"""Tables with columns of every small, unsigned, decimal, time and nested type."""

from __future__ import annotations

import random
import string
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
import pyarrow.types as pt

_START = datetime(2020, 1, 1, tzinfo=UTC)
_SMALL = 1000
# Marks, accents, an emoji: what breaks careless writers and readers of text.
_ALPHABET = string.ascii_letters + string.digits + " ,;'\"äßé中🛫"


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

_TYPES: dict[str, pa.DataType] = {
    "t_int8": pa.int8(), "t_int16": pa.int16(), "t_int32": pa.int32(), "t_int64": pa.int64(),
    "t_uint8": pa.uint8(), "t_uint16": pa.uint16(), "t_uint32": pa.uint32(), "t_uint64": pa.uint64(),
    "t_float32": pa.float32(), "t_float64": pa.float64(), "t_decimal_9_2": pa.decimal128(9, 2),
    "t_decimal_38_10": pa.decimal128(38, 10), "t_boolean": pa.bool_(), "t_date": pa.date32(),
    "t_timestamp": pa.timestamp("us", "UTC"), "t_string": pa.string(),
    "t_struct": pa.struct([("a", pa.int32()), ("b", pa.string())]),
}  # fmt: skip


def with_typed_columns(table: pa.Table) -> pa.Table:
    """The table with a column `t_...` of each type, about one value in ten null."""
    for column, kind in _TYPES.items():
        rng = random.Random(column)  # noqa: S311 - made-up data
        values = [make(kind, rng) if rng.random() < 0.9 else None for _ in range(table.num_rows)]
        table = table.append_column(column, pa.array(values, kind))
    return table
