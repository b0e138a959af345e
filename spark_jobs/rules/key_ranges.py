"""Ranges of keys: cut points from samples of several tables, and the range of each row.

All rows of a key are in one range, and the ranges follow the order of the keys.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.codes import ranks, sortable, sorted_rows

WEIGHT = "weight"
"""Column of a sample: the number of rows that the row stands for."""
_SAMPLE = 256


def sample_of(rows: pa.Table, keys: pa.Schema) -> pa.Table:
    """Keys of a few of the rows, evenly spaced, each with `WEIGHT`."""
    count = min(_SAMPLE, rows.num_rows)
    at = np.linspace(0, rows.num_rows - 1, count).astype(np.int64)
    found = by_name(rows.take(pa.array(at)), keys)
    return found.append_column(WEIGHT, pa.repeat(rows.num_rows / max(1, count), count))


def cuts_of(samples: Sequence[pa.Table], keys: pa.Schema, ranges: int) -> pa.Table:
    """The first key of each range but the first; fewer ranges where few keys have most rows.

    Args:
        samples: see `sample_of`.
        ranges: number wanted.
    """
    rows = pa.concat_tables(samples) if samples else keys.empty_table()
    if not rows.num_rows:
        return keys.empty_table()
    order = _columns(rows.select(keys.names))
    at = sorted_rows(order)
    passed = np.cumsum(np.asarray(rows.column(WEIGHT))[at])
    ends = passed[-1] * np.arange(1, ranges) / ranges
    chosen = rows.select(keys.names).take(pa.array(at[np.minimum(np.searchsorted(passed, ends), len(at) - 1)]))
    places = ranks(_columns(chosen), chosen.num_rows) if chosen.num_rows else np.zeros(0, np.int64)
    return chosen.take(pa.array(np.unique(places, return_index=True)[1]))


def range_of(rows: pa.Table, cuts: pa.Table) -> np.ndarray:
    """The number of each row's range, from 0 on.

    Args:
        rows: with the columns of `cuts`, and others.
        cuts: see `cuts_of`.
    """
    if not cuts.num_rows:
        return np.zeros(rows.num_rows, np.int64)
    joined = pa.concat_tables([cuts, by_name(rows, cuts.schema)])
    place = ranks(_columns(joined), joined.num_rows)
    return np.searchsorted(place[: cuts.num_rows], place[cuts.num_rows :], side="right")


def _columns(rows: pa.Table) -> list[pa.Array]:
    return [part for column in rows.columns for part in sortable(column)]
