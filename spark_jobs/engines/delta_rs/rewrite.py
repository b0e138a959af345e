"""Rewrites files of a table in Arrow."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.engines.delta_rs.batch_context import KeyMatches
from spark_jobs.engines.delta_rs.tables import DataFile
from spark_jobs.rules.merge import AT
from spark_jobs.rules.outcome import replaced


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
        at = places.column("row").take(mine).to_numpy()
        added.append(replaced(found.whole[number], at, touched.take(mine), schema))
        removed.append(found.files[number])
    return added, removed
