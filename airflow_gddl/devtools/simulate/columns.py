"""The columns of a source table as its schema changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.devtools.simulate.spec import EventKind


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
        wanted: column that it must be; null: the first that fits (`drop_column`: the last). `add_column`: the new name.
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
