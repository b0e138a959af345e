"""Delta's change data feed: which rows differ between the files that a commit removes and those that it adds.

Needs all removed and added rows of the commit together.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from spark_jobs.rules.codes import changes, table_codes

CHANGE_TYPE = "_change_type"


def row_changes(before: pa.Table, after: pa.Table, keys: Sequence[str]) -> pa.Table:
    """Rows that a reader of the feed gets, with `_change_type`; empty where both sides hold the same rows.

    Args:
        before, after: rows of one schema; equal rows on both sides cancel each other out, one by one.
        keys: columns that identify a row; a row with the same key on both sides is an update. Empty: no updates.
    """
    old, new = table_codes((before, after), after.column_names)
    gone, come = before.take(pa.array(_surplus(old, new))), after.take(pa.array(_surplus(new, old)))
    kept_key, same_key = _with_common_keys(gone, come, keys)
    return pa.concat_tables(
        [
            _typed(gone, np.where(kept_key, "update_preimage", "delete")),
            _typed(come, np.where(same_key, "update_postimage", "insert")),
        ]
    )


def _surplus(mine: np.ndarray, theirs: np.ndarray) -> np.ndarray:
    """Numbers of the rows on one side that have no equal on the other; of several equal rows, the last ones."""
    size = max(int(mine.max(initial=-1)), int(theirs.max(initial=-1))) + 1
    others = np.bincount(theirs, minlength=size)
    order = np.argsort(mine, kind="stable")
    ranked = mine[order]
    starts = np.flatnonzero(changes(ranked))
    lengths = np.diff(np.r_[starts, len(ranked)])
    rank = np.arange(len(ranked)) - np.repeat(starts, lengths)
    return np.sort(order[rank >= others[ranked]])


def _with_common_keys(gone: pa.Table, come: pa.Table, keys: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Which rows of each side have a key that the other side has too."""
    if not keys:
        return np.zeros(gone.num_rows, bool), np.zeros(come.num_rows, bool)
    old, new = table_codes((gone, come), keys)
    return np.isin(old, new), np.isin(new, old)


def _typed(rows: pa.Table, types: np.ndarray) -> pa.Table:
    return rows.append_column(CHANGE_TYPE, pa.array(types.tolist(), pa.string()))
