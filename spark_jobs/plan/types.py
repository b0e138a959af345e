"""Types of a column: what goes into another type, what a table may grow to, and what a merge of two is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from airflow_gddl.contract.sql_types import (
    MAX_PRECISION,
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    is_complex,
    quote,
    without_void,
)

Family = Literal["number", "boolean", "text", "binary", "time"]
_INTEGER_MAX = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}
_EXACT_UP_TO = {"float": 2**24, "double": 2**53}
_FAMILIES: dict[str, Family] = {
    **dict.fromkeys((*_INTEGER_MAX, *_EXACT_UP_TO), "number"),
    "boolean": "boolean",
    "string": "text",
    "binary": "binary",
    **dict.fromkeys(("date", "timestamp", "timestamp_ntz"), "time"),
}
_TIMES = {
    "date": ("date", "timestamp", "timestamp_ntz"),
    "timestamp": ("timestamp", "timestamp_ntz"),
    "timestamp_ntz": ("timestamp", "timestamp_ntz"),
}


def lossless(source: SqlType, target: SqlType) -> bool:
    """Every value of the scalar `source` is a value of the scalar `target`: the data need not be read.

    Integers and decimals by range, numbers to `double` and `float` where these are exact, dates to timestamps, and the
    two timestamps into each other, which is exact because every session runs in UTC. Transitive; contains all of
    Delta's widenings. Complex types are only lossless to themselves here; their parts are handled one by one.
    """
    if source in (target, VOID):
        return True
    if isinstance(source, DecimalType):
        return _decimal_into(source, target)
    if not isinstance(source, ScalarType):
        return False
    if source.name in _INTEGER_MAX:
        return _range_into(_INTEGER_MAX[source.name], target)
    if isinstance(target, ScalarType) and source.name in _TIMES:
        return target.name in _TIMES[source.name]
    return source == ScalarType("float") and target == ScalarType("double")


def convertible(source: SqlType, target: SqlType) -> bool:
    """Some values of `source` have an equal in `target`, so that trying them one by one makes sense.

    Text with every scalar, numbers with numbers, times with times, 0 and 1 with booleans. Numbers are never taken for
    times (seconds or microseconds?), nor anything complex for a scalar.
    """
    pair = {_family(source), _family(target)}
    return None not in pair and (len(pair) == 1 or "text" in pair or pair == {"number", "boolean"})


def integral_digits(kind: SqlType) -> int | None:
    """Digits before the point that the widest value of an integer or decimal needs; null for other types."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale
    if isinstance(kind, ScalarType) and kind.name in _INTEGER_MAX:
        return len(str(_INTEGER_MAX[kind.name]))
    return None


def _family(kind: SqlType) -> Family | None:
    if isinstance(kind, DecimalType):
        return "number"
    return _FAMILIES.get(kind.name) if isinstance(kind, ScalarType) else None


def _decimal_into(source: DecimalType, target: SqlType) -> bool:
    if isinstance(target, DecimalType):
        grown = target.scale - source.scale
        return 0 <= grown <= target.precision - source.precision
    return source.scale == 0 and _range_into(10**source.precision - 1, target)


def _range_into(largest: int, target: SqlType) -> bool:
    """Whole numbers up to `largest` in size; below zero integers reach one further, sources and targets alike."""
    if isinstance(target, DecimalType):
        return len(str(largest)) <= target.precision - target.scale
    if not isinstance(target, ScalarType):
        return False
    return largest <= {**_INTEGER_MAX, **_EXACT_UP_TO}.get(target.name, 0)


_BY_NAME: dict[str, tuple[str, ...]] = {
    "tinyint": ("smallint", "int", "bigint", "double"),
    "smallint": ("int", "bigint", "double"),
    "int": ("bigint", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
# Parquet stores the small integers as INT32, which its readers turn into decimal(10,0) and wider; INT64: decimal(20,0).
_DIGITS = {"tinyint": 10, "smallint": 10, "int": 10, "bigint": 20}
_STEPS = tuple(ScalarType(name) for name in ("smallint", "int", "bigint"))
_LAST = (ScalarType("double"), ScalarType("timestamp_ntz"))


def widens(before: SqlType, after: SqlType) -> bool:
    """Delta may change a column of the scalar type `before` to `after`; false for equal types. Transitive."""
    if before == after:
        return False
    if before == VOID:
        return True
    if isinstance(after, DecimalType):
        digits, scale = _delta_digits(before)
        return digits is not None and after.scale >= scale and after.precision - after.scale >= digits
    return (
        isinstance(before, ScalarType) and isinstance(after, ScalarType) and after.name in _BY_NAME.get(before.name, ())
    )


def common_type(table: SqlType, incoming: SqlType) -> SqlType | None:
    """The type a column of scalar type `table` must have to hold every value of scalar type `incoming` too.

    `table` itself where that is enough, else the first that the list allows of: `incoming`, a wider integer, the
    narrowest decimal that holds both, `double`, `timestamp_ntz`. Null when the list allows none.
    """
    if lossless(incoming, table):
        return table
    return next((t for t in _candidates(table, incoming) if widens(table, t) and lossless(incoming, t)), None)


def _candidates(table: SqlType, incoming: SqlType) -> Iterator[SqlType]:
    yield incoming
    yield from _STEPS
    decimal = _common_decimal(table, incoming)
    if decimal is not None:
        yield decimal
    yield from _LAST


def _common_decimal(table: SqlType, incoming: SqlType) -> DecimalType | None:
    before, scale = _delta_digits(table)
    digits = integral_digits(incoming)
    if before is None or digits is None:
        return None
    scale = max(scale, incoming.scale if isinstance(incoming, DecimalType) else 0)
    precision = max(before, digits) + scale
    return DecimalType(precision, scale) if precision <= MAX_PRECISION else None


def _delta_digits(kind: SqlType) -> tuple[int | None, int]:
    """Integral digits that Delta asks of a decimal which follows this type (None: none may), and its scale."""
    if isinstance(kind, DecimalType):
        return kind.precision - kind.scale, kind.scale
    return (_DIGITS.get(kind.name) if isinstance(kind, ScalarType) else None), 0


def widened_number(stored: SqlType, incoming: SqlType) -> SqlType:
    """The type that holds numbers of both; `stored` where it is no number, or Delta's list allows none."""
    if isinstance(stored, DecimalType) or (isinstance(stored, ScalarType) and stored.name in (*_DIGITS, "float")):
        return common_type(stored, incoming) or stored
    return stored


Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class TypeChange:
    """A change at the path of a column (of one part) or nested field.

    Parts of arrays are named `element`, of maps `key` and `value`, as Delta's `ALTER TABLE` names them.
    """

    path: Path

    @property
    def name(self) -> str:
        """The path as SQL text: dots between parts, backticks where a part needs them."""
        return dotted(self.path)


@dataclass(frozen=True)
class Addition(TypeChange):
    """A new column or nested field, at the end of its parent."""

    type: SqlType


@dataclass(frozen=True)
class Widening(TypeChange):
    """A scalar column or nested part whose type grows."""

    before: SqlType
    after: SqlType


@dataclass(frozen=True)
class Allowed:
    """What a merge may do to the table's type: add nested fields, widen parts."""

    add: bool
    widen: bool


NOTHING = Allowed(add=False, widen=False)


def dotted(path: Path) -> str:
    """A path as SQL text."""
    return ".".join(quote(part) for part in path)


def merge(table: SqlType, incoming: SqlType, allowed: Allowed) -> SqlType | None:
    """The type that holds both, as far as allowed; null when values of `incoming` might not fit it.

    Fields that `incoming` has alone are no conflict: where they may not be added they are left out (`extra_fields`).
    Fields that it lacks are null.
    """
    if incoming == VOID:
        return table
    if table == VOID:
        return without_void(incoming) if allowed.widen else None
    if is_complex(table) or is_complex(incoming):
        return _merge_complex(table, incoming, allowed)
    if lossless(incoming, table):
        return table
    return common_type(table, incoming) if allowed.widen else None


def _merge_complex(table: SqlType, incoming: SqlType, allowed: Allowed) -> SqlType | None:
    if isinstance(table, StructType) and isinstance(incoming, StructType):
        return _merge_structs(table, incoming, allowed)
    if isinstance(table, ArrayType) and isinstance(incoming, ArrayType):
        element = merge(table.element, incoming.element, allowed)
        return None if element is None else ArrayType(element)
    if isinstance(table, MapType) and isinstance(incoming, MapType):
        key, value = merge(table.key, incoming.key, allowed), merge(table.value, incoming.value, allowed)
        return None if key is None or value is None else MapType(key, value)
    return None


def _merge_structs(table: StructType, incoming: StructType, allowed: Allowed) -> SqlType | None:
    merged: list[StructField] = []
    for field in table.fields:
        other = incoming.field(field.name)
        kind = field.type if other is None else merge(field.type, other.type, allowed)
        if kind is None:
            return None
        merged.append(StructField(field.name, kind))
    if allowed.add:
        for field in incoming.fields:
            kind = without_void(field.type)
            if table.field(field.name) is None and kind is not None:
                merged.append(StructField(field.name, kind))
    return StructType(tuple(merged))


def extra_fields(table: SqlType, incoming: SqlType, path: Path) -> Iterator[Addition]:
    """Nested fields that only `incoming` has, outermost first; those that are void throughout don't count."""
    if isinstance(table, StructType) and isinstance(incoming, StructType):
        for field in incoming.fields:
            known = table.field(field.name)
            kind = without_void(field.type)
            if known is not None:
                yield from extra_fields(known.type, field.type, (*path, known.name))
            elif kind is not None:
                yield Addition((*path, field.name), kind)
    for part, ours, theirs in _parts(table, incoming):
        yield from extra_fields(ours, theirs, (*path, part))


def widenings(before: SqlType, after: SqlType, path: Path) -> Iterator[Widening]:
    """The scalar parts of `before` that have another type in `after`, which `merge` made of it."""
    if isinstance(before, StructType) and isinstance(after, StructType):
        for field in before.fields:
            grown = after.field(field.name)
            if grown is not None:
                yield from widenings(field.type, grown.type, (*path, field.name))
        return
    parts = _parts(before, after)
    for part, old, new in parts:
        yield from widenings(old, new, (*path, part))
    if not parts and before != after:
        yield Widening(path, before, after)


def are_of_one_kind(stored: SqlType, wanted: SqlType) -> bool:
    """Whether one of two types may be widened to the other, field by field."""
    if isinstance(stored, StructType) and isinstance(wanted, StructType):
        pairs = [(field.type, wanted.field(field.name)) for field in stored.fields]
        known = all(other is not None and are_of_one_kind(kind, other.type) for kind, other in pairs)
        return known and len(stored.fields) == len(wanted.fields)
    return stored == wanted or widens(stored, wanted) or widens(wanted, stored)


def grown(stored: SqlType, wanted: SqlType) -> SqlType:
    """The stored type with what the wanted one has beyond it; fields that only the table has stay, and wider types."""
    if isinstance(stored, StructType) and isinstance(wanted, StructType):
        kept = [replace(f, type=grown(f.type, w.type) if (w := wanted.field(f.name)) else f.type)
                for f in stored.fields]  # fmt: skip
        new = [f for f in wanted.fields if stored.field(f.name) is None]
        return StructType((*kept, *new))
    differs = any(extra_fields(stored, wanted, ())) or any(widenings(stored, wanted, ()))
    return wanted if differs and not widens(wanted, stored) else stored


def _parts(first: SqlType, second: SqlType) -> tuple[tuple[str, SqlType, SqlType], ...]:
    if isinstance(first, ArrayType) and isinstance(second, ArrayType):
        return (("element", first.element, second.element),)
    if isinstance(first, MapType) and isinstance(second, MapType):
        return (("key", first.key, second.key), ("value", first.value, second.value))
    return ()
