"""Rows taken out of a table, in one commit."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.tables import DataFile, Tables, Write
from spark_jobs.plan.table_schema import GDDL

Hit = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Whether each row of a file is meant; null: it isn't."""
Changes = frozenset[tuple[str, int]]
"""Rows of the change table by batch and position."""


def remove_rows(tables: Tables, path: str, hit: Hit, *, dry_run: bool = False) -> int:
    """Remove the rows that are hit; how many they are. Files without any stay as they are.

    Args:
        dry_run: only count.
    """
    snapshot, count = tables.existing(path), 0
    added: list[pa.Table] = []
    removed: list[DataFile] = []
    for file in snapshot.files:
        rows = tables.read_files(snapshot, [file])
        gone = pc.fill_null(hit(rows), False)
        here = pc.sum(gone).as_py() or 0
        if here:
            count += here
            removed.append(file)
            left = rows.filter(pc.invert(gone))
            added += [left] if left.num_rows else []
    if removed and not dry_run:
        tables.commit(path, Write(added=added, removed=removed))
    return count


def applied_before(moment: datetime) -> Hit:
    limit = pa.scalar(moment)
    return lambda rows: pc.less(pc.struct_field(rows.column(GDDL), "applied_at"), limit)


def remove_changes(tables: Tables, path: str, changes: Changes, *, dry_run: bool = False) -> int:
    """Remove changes from the change table; how many they are."""

    def hit(part: pa.Table) -> pa.Array:
        return pa.array([change in changes for change in _numbered(part)], pa.bool_())

    return remove_rows(tables, path, hit, dry_run=dry_run) if changes else 0


def without_changes(rows: pa.Table, changes: Changes) -> pa.Table:
    return rows.filter(pa.array([change not in changes for change in _numbered(rows)], pa.bool_()))


def changes_in(rows: pa.Table) -> Changes:
    return frozenset(_numbered(rows))


def _numbered(rows: pa.Table) -> list[tuple[str, int]]:
    gddl = rows.column(GDDL)
    batches, positions = (pc.struct_field(gddl, name).to_pylist() for name in ("batch_id", "position"))
    return list(zip(batches, positions, strict=True))
