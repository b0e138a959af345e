"""One column, two types: what the table's type must become, and which fields each side has alone.

Structs are matched by field name (case-insensitive), never by position; arrays and maps by their parts. A column is
merged wholly or not at all: one nested part that doesn't fit leaves the whole type as it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TypeAlias

from airflow_gddl.contract.sql_types import (
    VOID,
    ArrayType,
    MapType,
    SqlType,
    StructField,
    StructType,
    is_complex,
    quote,
    without_void,
)
from spark_jobs.plan.conversion import lossless
from spark_jobs.plan.widening import common_type, widens

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True)
class Addition:
    """A new column (`path` of one part) or nested field, at the end of its parent.

    Parts of arrays are named `element`, of maps `key` and `value`, as Delta's `ALTER TABLE` names them.
    """

    path: Path
    type: SqlType

    @property
    def name(self) -> str:
        """The path as SQL text: dots between parts, backticks where a part needs them."""
        return dotted(self.path)


@dataclass(frozen=True)
class Widening:
    """A scalar column or nested part whose type grows; `path` as for `Addition`."""

    path: Path
    before: SqlType
    after: SqlType

    @property
    def name(self) -> str:
        return dotted(self.path)


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
