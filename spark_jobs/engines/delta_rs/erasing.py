"""Erased keys: kept out of what comes in, and taken out of what is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.decode import DecodedGroup
from spark_jobs.engines.delta_rs.removal import remove_rows
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.shape import Shape
from spark_jobs.erased_keys import ErasedKeys, key_text
from spark_jobs.plan.types import SqlType


def without_erased(group: DecodedGroup, shape: Shape, erased: ErasedKeys) -> tuple[DecodedGroup, int]:
    """The group without rows of erased keys, good or bad, and how many these were; before images of one are emptied."""
    if not erased or not group.rows.num_rows:
        return group, 0
    gone = _held(group.rows, shape, erased, old=False)
    old = _held(group.rows, shape, erased, old=True) & ~gone
    bad = np.zeros(group.rows.num_rows, dtype=bool)
    bad[list(group.bad)] = True
    gone |= old & bad  # its record would hold the before image
    if not (gone | old).any():
        return group, 0
    numbers = np.cumsum(~gone) - 1
    left = [(int(numbers[row]), p, r) for row, p, r in zip(group.bad, group.problems, group.records, strict=True)
            if not gone[row]]  # fmt: skip
    rows = emptied(group.rows, shape, old).filter(pa.array(~gone))
    kept = replace(
        group, rows=rows, bad=tuple(row for row, _, _ in left), problems=tuple(p for _, p, _ in left),
        records=tuple(r for _, _, r in left),
    )  # fmt: skip
    return kept, int(gone.sum())


def emptied(rows: pa.Table, shape: Shape, where: np.ndarray) -> pa.Table:
    """Before images null where it is told."""
    for column in shape.before if where.any() else ():
        at = rows.schema.get_field_index(column.name)
        if at >= 0:
            values = pc.if_else(pa.array(where), pa.scalar(None, rows.schema.field(at).type), rows.column(at))
            rows = rows.set_column(at, column.name, values)
    return rows


def _held(rows: pa.Table, shape: Shape, erased: ErasedKeys, *, old: bool) -> np.ndarray:
    """Rows whose key (`old`: whose key by their before image) was erased."""
    if old and not shape.before_of_key:
        return np.zeros(rows.num_rows, dtype=bool)
    return np.array([erased.holds(texts) for texts in key_texts(rows, shape, old=old)], dtype=bool)


def key_texts(rows: pa.Table, shape: Shape, *, old: bool = False) -> list[tuple[str | None, ...]]:
    """Keys as text; `old`: those before the change, which are the same where no image says otherwise."""
    kinds: Mapping[str, SqlType] = {c.name: c.type for c in shape.data}
    columns = []
    for key in shape.keys:
        values = rows.column(key).to_pylist()
        before = shape.before_of_key.get(key) if old else None
        if before is not None and before in rows.column_names:
            images = rows.column(before).to_pylist()
            values = [v if b is None else b for v, b in zip(values, images, strict=True)]
        columns.append([key_text(value, kinds[key]) for value in values])
    return list(zip(*columns, strict=True))


@dataclass(frozen=True)
class DeltaRsEraser:
    """See `Eraser`."""

    tables: Tables

    def remove_key(self, path: str, shape: Shape, key: tuple[str, ...]) -> int:
        def hit(rows: pa.Table) -> pa.Array:
            return pa.array([texts == key for texts in key_texts(rows, shape)], pa.bool_())

        return remove_rows(self.tables, path, hit, shape.keys)

    def empty_images(self, path: str, shape: Shape, key: tuple[str, ...]) -> int:
        if not shape.before_of_key:
            return 0
        snapshot, count = self.tables.existing(path), 0
        added, removed = [], []
        for file in snapshot.files:
            rows = self.tables.read_files(snapshot, [file])
            where = np.array([texts == key for texts in key_texts(rows, shape, old=True)], dtype=bool)
            if where.any():
                count += int(where.sum())
                added.append(emptied(rows, shape, where))
                removed.append(file)
        if removed:
            self.tables.commit(path, Write(added=added, removed=removed, indexed=shape.keys))
        return count

    def remove_records(self, path: str, holds: Callable[[str], bool]) -> int:
        def hit(rows: pa.Table) -> pa.Array:
            records = rows.column("record").to_pylist()
            return pa.array([record is not None and holds(record) for record in records], pa.bool_())

        return remove_rows(self.tables, path, hit, ())
