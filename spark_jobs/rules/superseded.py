"""Changes on which no state depends (docs/semantics.md, section 8: `changes_retention`).

Needs all changes of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.fold import segments
from spark_jobs.rules.order import OrderedEvents, ordered


def events_that_matter(happened: pa.Table, schema: TableSchema) -> pa.Table:
    """Events on which the state of their key depends: its last one, or with partial changes its last segment.

    The delete before that segment is kept, too: it ends what came before it, should some of that be kept as a part of
    a key update that another key needs.

    Args:
        happened: see `order.events`; all events of each key.
    """
    found = ordered(happened, schema)
    if not len(found.at):
        return happened
    starts, ends = found.starts, found.ends
    last = _last_segments(found) if schema.partial else ends
    return happened.take(pa.array(found.at[np.arange(len(found.at)) >= np.repeat(last, ends - starts + 1)]))


def _last_segments(found: OrderedEvents) -> np.ndarray:
    """The first event of each key's last segment, or the delete before it."""
    last = segments(found)[1][found.ends]
    after_delete = (last > found.starts) & (found.op[np.maximum(last - 1, 0)] == "D")
    result: np.ndarray = last - after_delete
    return result
