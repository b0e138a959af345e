"""Files of a table written anew: rows that stay as they are never leave Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.batch_context import KeyMatches
from spark_jobs.engines.delta_rs.tables import DataFile
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.merge import ACTION, AT


def rewritten(found: KeyMatches, outcome: pa.Table, schema: pa.Schema) -> tuple[list[pa.Table], list[DataFile]]:
    """New contents of the files that hold a changed row, and these files.

    Args:
        outcome: see `merge.decided`; columns that only the table has keep their value.
    """
    touched = outcome.filter(outcome.column(AT).is_valid())
    if not touched.num_rows:
        return [], []
    places = found.at.take(touched.column(AT).combine_chunks())
    numbers = places.column("file").to_numpy()
    added, removed = [], []
    for number in sorted(set(numbers.tolist())):
        mine = pa.array(np.flatnonzero(numbers == number))
        gone = places.column("row").take(mine)
        added.append(_without(found.whole[number], gone, touched.take(mine), found, schema))
        removed.append(found.files[number])
    return added, removed


def _without(
    rows: pa.Table, gone: pa.ChunkedArray, outcome: pa.Table, found: KeyMatches, schema: pa.Schema
) -> pa.Table:
    """A file's rows less some, and with what becomes of these."""
    kept = np.ones(rows.num_rows, dtype=bool)
    kept[gone.to_numpy()] = False
    left = rows.filter(pa.array(kept))
    updates = outcome.filter(pc.equal(outcome.column(ACTION), "update"))
    if not updates.num_rows:
        return left
    return pa.concat_tables([left, _updated(updates, found, schema)])


def _updated(updates: pa.Table, found: KeyMatches, schema: pa.Schema) -> pa.Table:
    old = [n for n in schema.names if n not in updates.column_names]
    if old:
        before = found.rows.take(updates.column(AT).combine_chunks())
        for name in old:
            updates = updates.append_column(name, before.column(name))
    return by_name(updates, schema)
