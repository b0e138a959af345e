"""Splits a batch's files into parts for tasks: row groups of a large Parquet file, other files whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from spark_jobs.dialects.probed import Probed

_PARTS_A_SLOT = 4
"""Enough that one long part doesn't leave the other slots idle."""
_LEAST_BYTES = 4 * 1024**2
MOST_BYTES = 32 * 1024**2
"""Of a part that is held in memory whole: decoded, a byte of Parquet takes about ten."""


@dataclass(frozen=True, kw_only=True)
class Split:
    """Attributes:
    group: index of the file's group.
    ordinal: index of the file in the batch.
    row_groups: those of the file to read; null: the whole file.
    size: approximate bytes.
    """

    file: Probed
    group: int
    ordinal: int
    size: int
    row_groups: range | None = None


def splits(
    groups: Sequence[Sequence[Probed]], ordinals: dict[str, int], slots: int, *, keep_rows: bool = False, most: int = 0
) -> list[Split]:
    """Every row of the files in one part.

    Args:
        groups: files that look alike.
        ordinals: ledger path to index of the file in the batch.
        slots: tasks that run at once.
        keep_rows: keep translated rows with their file.
        most: bytes of a part, where its file can be read in parts; 0: no limit.
    """
    total = sum(file.file.size for group in groups for file in group)
    target = max(_LEAST_BYTES, total // (slots * _PARTS_A_SLOT))
    target = min(target, most) if most else target
    found = []
    for number, group in enumerate(groups):
        for file in group:
            lean = file if keep_rows else replace(file, columns=group[0].columns, table=None)  # equal: sent once
            ordinal = ordinals[file.file.path]
            for part, size in _parts(file, target):
                found.append(Split(file=lean, group=number, ordinal=ordinal, size=size, row_groups=part))
    return found


def _parts(file: Probed, target: int) -> Iterator[tuple[range | None, int]]:
    """Runs of row groups of about `target` bytes, by their share of the rows."""
    size, rows = file.file.size, sum(file.row_groups)
    if size <= target or len(file.row_groups) < 2 or not rows:
        yield None, size
        return
    start, held = 0, 0
    for number, count in enumerate(file.row_groups, start=1):
        held += count
        if held * size >= target * rows or number == len(file.row_groups):
            yield range(start, number), held * size // rows
            start, held = number, 0


def dealt(parts: Sequence[Split], slots: int) -> list[tuple[Split, ...]]:
    """Parts into tasks of about equal size, the largest first."""
    bins: list[list[Split]] = [[] for _ in range(min(len(parts), slots * _PARTS_A_SLOT))]
    load = [0] * len(bins)
    for part in sorted(parts, key=lambda p: -p.size):
        least = load.index(min(load))
        bins[least].append(part)
        load[least] += part.size + 1
    return [tuple(found) for found in bins]
