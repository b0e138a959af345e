"""Small data files of a table: put together with new rows, and compacted between batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.delta_values import PartitionText, split
from spark_jobs.tables.delta_tables import DataFile, Tables, TableSnapshot, Write

FULL = 32 * 1024**2


_SMALL = 4 * 1024**2


_FEWEST = 4
"""Minimum number of files to compact, so that a full one is not rewritten for each small one."""


MANY = 64
"""Number of small files that starts a compaction between batches, as Delta's auto compaction on Spark (at 50)."""


def with_smallest(tables: Tables, snapshot: TableSnapshot, rows: pa.Table) -> tuple[pa.Table, list[DataFile]]:
    """New rows together with the rows of the smallest file of their partition if it is small; and these files.

    This limits the number of files.
    """
    if not tables.arranges_files:
        return rows, []
    mine = {partition for partition, _ in split(rows, snapshot.partition_by)}
    smallest: dict[PartitionText, DataFile] = {}
    for file in snapshot.files:
        known = smallest.get(file.partition)
        if file.size <= _SMALL and file.partition in mine and (known is None or file.size < known.size):
            smallest[file.partition] = file
    files = list(smallest.values())
    return pa.concat_tables([tables.read_files(snapshot, files), rows]), files


def place_new_rows(
    tables: Tables, snapshot: TableSnapshot, rows: pa.Table, added: list[pa.Table], removed: list[DataFile]
) -> None:
    """Add new rows to the smallest file that is rewritten anyway, else to the smallest of all, else to a new one.

    Args:
        added: new contents of each file in `removed`; both are extended.
    """
    if not rows.num_rows:
        return
    least = min(range(len(removed)), key=lambda i: removed[i].size, default=None)
    if least is None:
        whole, small = with_smallest(tables, snapshot, rows)
        added.append(whole)
        removed += small
    elif removed[least].size <= FULL:  # so that no file grows without limit
        added[least] = pa.concat_tables([added[least], rows])
    else:
        added.append(rows)


def join(tables: Tables, path: str, files: Sequence[DataFile]) -> None:
    """Compact these files, into one of each partition; readers of the table's changes skip it (`dataChange` false)."""
    rows = tables.read_files(tables.existing(path), files)
    tables.commit(path, Write(added=[rows], removed=files, rearranged=True))


def join_in_passing(tables: Tables, path: str) -> None:
    """Compact the oldest small files if there are many.

    For tables that get a file per batch and are never rewritten. Runs between batches, since a started batch finds its
    rows by the files that it added. Without it a table that gets a file every few seconds would open more slowly each
    day until its maintenance.
    """
    snapshot = tables.existing(path)
    if not tables.arranges_files or len(snapshot.log.files) < MANY:
        return
    small = [file for file in snapshot.files if file.size <= FULL // 2]
    if len(small) >= MANY and (chosen := at_once(list(bins(small)))):
        join(tables, path, [file for files in chosen for file in files])


def at_once(groups: Sequence[list[DataFile]]) -> list[list[DataFile]]:
    """Groups of files to compact in one commit: of most files first, as many groups as have the bytes of one full file.

    A batch adds a file to each partition that it has a row of: with one group a batch their number would grow with the
    square of the partitions.
    """
    chosen, left = [], FULL
    for files in sorted(groups, key=lambda files: -len(files)):
        size = sum(file.size for file in files)
        if size <= left:
            chosen.append(files)
            left -= size
    return chosen


def bins(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
    """Small files of a partition to compact, adjacent by batch, so that ranges of sequences stay narrow."""
    partitions: dict[PartitionText, list[DataFile]] = {}
    for file in files:
        partitions.setdefault(file.partition, []).append(file)
    for members in partitions.values():
        yield from _bins(members)


def _bins(files: Sequence[DataFile]) -> Iterator[list[DataFile]]:
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
