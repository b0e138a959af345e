"""Small files of a table: which are joined, and the joining in passing of tables that get a file a batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_jobs.engines.delta_rs.tables import DataFile, Tables, TableSnapshot, Write
from spark_jobs.plan.table_schema import GDDL

FULL = 32 * 1024**2
_SMALL = 4 * 1024**2
_FEWEST = 4
"""Files that are joined at least, so that a full one is not written again for each small one beside it."""
MANY = 64
"""So many small files are joined in passing, as Spark's Delta would with automatic compaction (at 50)."""


def with_smallest(tables: Tables, snapshot: TableSnapshot, rows: pa.Table) -> tuple[pa.Table, list[DataFile]]:
    """New rows, together with those of the smallest file where it is small, so that files stay few; and that file."""
    smallest = min(snapshot.files, key=lambda f: f.size, default=None)
    if smallest is None or smallest.size > _SMALL:
        return rows, []
    return pa.concat_tables([tables.read_files(snapshot, [smallest]), rows]), [smallest]


def join(tables: Tables, path: str, files: Sequence[DataFile]) -> None:
    """One file of the rows of these; who follows the table's changes passes over it."""
    rows = tables.read_files(tables.existing(path), files)
    tables.commit(path, Write(added=[rows], removed=files, rearranged=True))


def join_in_passing(tables: Tables, path: str) -> None:
    """Where many small files have gathered, join the oldest.

    For tables that get a file a batch and are never rewritten; between batches, for a batch that has begun finds its
    rows by the files that it added. Without it a table that gets a file every few seconds would be slower to open each
    day until its maintenance.
    """
    snapshot = tables.existing(path)
    if pa.table(snapshot.delta.get_add_actions()).num_rows < MANY:
        return
    small = [file for file in snapshot.files if file.size <= FULL // 2]
    found = next(bins(small), None) if len(small) >= MANY else None
    if found is not None:
        join(tables, path, found)


def bins(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Small files that are joined, neighbours by their batches, so that ranges of sequences stay narrow."""
    waiting: list[DataFile] = []
    size = 0
    for file in sorted((f for f in files if f.size <= FULL // 2), key=_age):
        if size + file.size > FULL:
            if len(waiting) >= _FEWEST:
                yield waiting
            waiting, size = [], 0
        waiting.append(file)
        size += file.size
    if len(waiting) >= _FEWEST:
        yield waiting


def _age(file: DataFile) -> tuple[str, str]:
    return ((file.low.get(GDDL) or {}).get("batch_id") or "", file.path)
