"""Removes rows from a table in one commit."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.tables import DataFile, Tables, Write

Hit = Callable[[pa.Table], pa.Array | pa.ChunkedArray]
"""Mask of the rows of a file to remove; null: keep."""


def remove_rows(tables: Tables, path: str, hit: Hit, *, dry_run: bool = False) -> int:
    """Remove the rows of the mask; returns their number. Other files are unchanged.

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
            added.append(rows.filter(pc.invert(gone)))
    if removed and not dry_run:
        tables.commit(path, Write(added=added, removed=removed))
    return count
