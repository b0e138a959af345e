"""The source table itself: what it really holds, row by row."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa

from airflow_gddl.simulate.values import Key, SimulatedColumns

Row = dict[str, object]
_HOT_ROWS = 64
_HOT_SHARE = 0.25
_ATTEMPTS = 20


@dataclass
class SimulatedSourceTable:
    """Rows of the input plus what changed since; row ids count from 0, the input's rows first.

    Attributes:
        base: rows as of the last full load.
        overlay: rows changed or added since, null for deleted ones.
        freed: keys that no row has any more, free for reuse.
        phantoms: rows under their old key that a replica can't know to be gone.
        hot: ids changed lately, likely to change again.
    """

    base: pa.Table
    columns: SimulatedColumns
    overlay: dict[int, Row | None] = field(default_factory=dict)
    total: int = -1
    alive: int = -1
    freed: list[Key] = field(default_factory=list)
    phantoms: dict[Key, Row] = field(default_factory=dict)
    hot: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.total = self.alive = self.base.num_rows

    def row(self, row_id: int) -> Row | None:
        """A copy; null when deleted."""
        if row_id in self.overlay:
            changed = self.overlay[row_id]
            return None if changed is None else dict(changed)
        return {name: self.base[name][row_id].as_py() for name in self.base.schema.names}

    def key(self, row: Row) -> Key:
        return tuple(row[name] for name in self.columns.keys)

    def pick(self, rng: random.Random) -> int | None:
        """Id of a living row, a quarter of the time one that changed lately; null when there is none."""
        if self.alive == 0:
            return None
        for _ in range(_ATTEMPTS):
            hot = self.hot and rng.random() < _HOT_SHARE
            row_id = rng.choice(self.hot) if hot else rng.randrange(self.total)
            if self._lives(row_id):
                return row_id
        return rng.choice([row_id for row_id in range(self.total) if self._lives(row_id)])

    def insert(self, row: Row) -> None:
        if self.columns.keys:
            self.phantoms.pop(self.key(row), None)
        self.overlay[self.total] = row
        self._touch(self.total)
        self.total += 1
        self.alive += 1

    def update(self, row_id: int, row: Row) -> None:
        self.overlay[row_id] = row
        self._touch(row_id)

    def delete(self, row_id: int) -> None:
        row = self.row(row_id)
        if row is not None:
            self.freed.append(self.key(row))
            self.overlay[row_id] = None
            self.alive -= 1

    def move(self, row_id: int, row: Row, *, leaves_phantom: bool) -> None:
        """Give a row another key."""
        old = self.row(row_id)
        if old is not None:
            self.freed.append(self.key(old))
            if leaves_phantom:
                self.phantoms[self.key(old)] = old
        self.update(row_id, row)

    def rows(self, *, phantoms: bool) -> pa.Table:
        """What the table holds, in the order of its keys (of the input, without keys).

        Args:
            phantoms: also the rows that a replica can't know to be gone.
        """
        schema = self.columns.schema
        kept = self.base
        if self.overlay:
            kept = kept.take(pa.array([i for i in range(kept.num_rows) if i not in self.overlay], pa.int64()))
        changed = [row for _, row in sorted(self.overlay.items()) if row is not None]
        changed += self.phantoms.values() if phantoms else ()
        columns = [
            _column(kept, name, schema.field(name).type, [row.get(name) for row in changed]) for name in schema.names
        ]
        table = pa.table(columns, schema=schema).combine_chunks()
        return table.sort_by([(key, "ascending") for key in self.columns.keys]) if self.columns.keys else table

    def rebase(self) -> None:
        """Start from the present rows, as a new full load does: columns that it no longer brings are empty."""
        rows = self.rows(phantoms=False)
        for name in self.columns.dropped():
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), pa.nulls(rows.num_rows, rows.schema.field(at).type))
        self.base = rows
        self.total = self.alive = rows.num_rows
        self.overlay, self.phantoms, self.hot = {}, {}, []

    def _lives(self, row_id: int) -> bool:
        return row_id not in self.overlay or self.overlay[row_id] is not None

    def _touch(self, row_id: int) -> None:
        self.hot = [*self.hot[-_HOT_ROWS:], row_id]


def _column(kept: pa.Table, name: str, kind: pa.DataType, changed: list[object]) -> pa.ChunkedArray:
    old = _widened(kept[name].combine_chunks(), kind) if name in kept.schema.names else pa.nulls(kept.num_rows, kind)
    return pa.chunked_array([old, pa.array(changed, kind)], kind)


def _widened(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of a type that may have more fields; casts of pyarrow before 19 add none."""
    if not pa.types.is_struct(kind):
        return values.cast(kind)
    known = dict(zip((field.name for field in values.type), values.flatten(), strict=True))
    parts = [
        _widened(known[field.name], field.type) if field.name in known else pa.nulls(len(values), field.type)
        for field in kind
    ]
    return pa.StructArray.from_arrays(parts, fields=list(kind), mask=values.is_null())
