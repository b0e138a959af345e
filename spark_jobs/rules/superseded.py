"""Changes on which no state depends (docs/semantics.md, section 8: `changes_retention`).

Needs all changes of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.rules.fold import segments
from spark_jobs.rules.order import ordered
from spark_jobs.table.table_schema import TableSchema


def events_that_matter(happened: pa.Table, schema: TableSchema) -> pa.Table:
    """Events on which the state of their key depends: its last one, or with partial changes its last segment.

    Args:
        happened: see `order.events`; all events of each key.
    """
    found = ordered(happened, schema)
    if not len(found.at):
        return happened
    starts, ends = found.starts, found.ends
    last = segments(found)[1][ends] if schema.partial else ends
    return happened.take(pa.array(found.at[np.arange(len(found.at)) >= np.repeat(last, ends - starts + 1)]))
