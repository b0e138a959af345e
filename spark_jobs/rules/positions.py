"""`_gddl.position`: where a change stands in its batch (docs/semantics.md, section 1).

Ordinal of the file, 23 bits; number of the run of its place, 7; row in the file, 33. Of a change with a key the run is
1 where its file has a row at its place in quarantine. Of a row that is replayed the sign is set, and the batch that has
read its file takes the place of the ordinal.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.planned_batch import number_of
from spark_jobs.rules.arrays import changes, numbered, row_codes, shared_codes

_Numbers = TypeVar("_Numbers", int, np.ndarray)

FILE_BITS = 40
"""Bits of a position below the ordinal of the file."""
_ROW_BITS = 33
ROW_MASK = (1 << _ROW_BITS) - 1
"""Bits of a position that hold the row in its file."""
_IN_FILE = (1 << FILE_BITS) - 1
_MOST_RUNS = (1 << (FILE_BITS - _ROW_BITS)) - 1
# A refresh packs the number of its bounded batch into the position too: 16 bits, then 14 for the file, 33 for the row.
_BATCH_IN_REFRESH, _FILE_IN_REFRESH = 47, 33
_REPLAYED, _OF_REFRESH, _MOST_BATCHES = -(1 << 63), 1 << 62, (1 << 22) - 1
_LAST = ((1 << 63) - 1) & ~_IN_FILE


def row_in_file(gddl: dict[str, pa.Array]) -> pa.Array:
    return pc.bit_wise_and(gddl["position"], ROW_MASK)


def with_runs(positions: pa.Array, files: pa.Array, sequence: pa.Array) -> pa.Array:
    """Positions with the number of the run of each row: how often its file had rows of the same sequence before, with
    other ones between.

    Args:
        positions: of all rows that files have, also of those that are left out later.
        sequence: null where a row has none, which ends no run.
    """
    numbers = np.asarray(positions)
    at = np.flatnonzero(np.asarray(sequence.is_valid()))
    at = at[np.argsort(numbers[at], kind="stable")]
    taken = pa.array(at)
    file = row_codes([files.take(taken)], len(at))
    place = row_codes([file, sequence.take(taken)], len(at))
    begins = changes(place) | changes(file)
    runs = np.zeros(len(numbers), np.int64)
    first = place[begins]
    number = numbered(first, np.argsort(first, kind="stable"))
    runs[at] = np.minimum(number[np.cumsum(begins) - 1], _MOST_RUNS)
    return pa.array(numbers + (runs << _ROW_BITS), pa.int64())


def with_marks(positions: pa.Array, files: pa.Array, sequence: pa.Array, bad: np.ndarray) -> pa.Array:
    """Positions with a mark where the file has one of these rows at the same place, itself included."""
    place = row_codes([files, sequence], len(bad))
    marked = np.isin(place, place[bad & np.asarray(sequence.is_valid())])
    return pa.array(np.asarray(positions) + (marked.astype(np.int64) << _ROW_BITS), pa.int64())


def runs_of(gddl: dict[str, pa.Array]) -> np.ndarray:
    """See `with_runs` and `with_marks`; 0 for changes of a refresh, whose positions have none."""
    position = np.asarray(gddl["position"])
    of_refresh = np.asarray(pc.ends_with(gddl["batch_id"], pattern="r")) | (
        (position < 0) & (position & _OF_REFRESH > 0)
    )
    result: np.ndarray = np.where(of_refresh, 0, (position & _IN_FILE) >> _ROW_BITS)
    return result


def replayed_position(batch_id: str, position: int) -> int:
    """Position of a row from the quarantine.

    Args:
        batch_id: of the batch that has put it there, and its position in that.
    """
    of_refresh = _OF_REFRESH if batch_id.endswith("r") else 0
    batch = min(number_of(batch_id), _MOST_BATCHES) << FILE_BITS
    return _REPLAYED + of_refresh + batch + (position & _IN_FILE)


def position_in_refresh(batch: _Numbers, position: _Numbers) -> _Numbers:
    """Position in a refresh of what one of its bounded batches has brought: the order of arrival stays."""
    file = position >> FILE_BITS << _FILE_IN_REFRESH
    result: _Numbers = (batch << _BATCH_IN_REFRESH) + file + (position & ROW_MASK)
    return result


def position_beside(batch_id: str, other: int, position: int) -> int:
    """Position of a row in the batch that has read its file, by that of another row there, and one of any batch."""
    bits = ROW_MASK if batch_id.endswith("r") else _IN_FILE
    return (other & ~bits) + (position & bits)


def are_replayed(gddl: dict[str, pa.Array]) -> np.ndarray:
    result: np.ndarray = np.asarray(gddl["position"]) < 0
    return result


def readings(gddl: dict[str, pa.Array]) -> tuple[pa.Array, pa.Array]:
    """Batch that has read the file of each change, and its position there: those of the change but for replayed ones.

    A replayed change stands among those of its file; where none of them is given, behind all of that batch.
    """
    replayed = are_replayed(gddl)
    if not replayed.any():
        return gddl["batch_id"], gddl["position"]
    places, batches = np.asarray(gddl["position"]), gddl["batch_id"]
    mine, others = np.flatnonzero(replayed), np.flatnonzero(~replayed)
    read = map(_reading_batch, batches.take(mine).to_pylist(), places[mine].tolist())
    batch_ids = pc.replace_with_mask(batches, replayed, pa.array(list(read), pa.string()))
    sides = [[part.take(at) for part in (gddl["source_file"], batch_ids)] for at in (mine, others)]
    wanted, known = shared_codes(sides, [len(mine), len(others)])
    files = np.full(len(places) + 1, _LAST)
    bits = np.where(places[mine] & _OF_REFRESH, ROW_MASK, _IN_FILE)
    files[known] = places[others]
    positions = places.copy()
    positions[mine] = (files[wanted] & ~bits) + (places[mine] & bits)
    return batch_ids, pa.array(positions, pa.int64())


def _reading_batch(batch_id: str, position: int) -> str:
    shard = batch_id.rpartition("/")
    number = (position >> FILE_BITS) & _MOST_BATCHES
    return f"{shard[0]}{shard[1]}{number:012d}" + ("r" if position & _OF_REFRESH else "")
