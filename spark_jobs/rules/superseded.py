"""Changes on which no state depends (docs/semantics.md, section 8: `changes_retention`).

Needs all changes of a key together; holds for any partition of the keys.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.fold import segments
from spark_jobs.rules.order import OrderedEvents, ordered

Changes = frozenset[tuple[str, int]]
"""Rows of the change table by batch and position."""


def needed_changes(happened: pa.Table, schema: TableSchema, before: datetime) -> Changes:
    """Changes applied before a time on which some state depends, the delete of a key update included.

    Args:
        happened: see `order.events`; all events of each key.
    """
    if not schema.keys:
        return frozenset()
    matter = events_that_matter(happened, schema)
    return changes_in(matter.filter(applied_before(matter, before)))


def are_superseded(
    rows: pa.Table, needed: Changes, schema: TableSchema, before: datetime, swept: int
) -> pa.ChunkedArray:
    """Which changes were applied before a time, and no state depends on them: later ones undo all they do.

    Args:
        needed: see `needed_changes`, of all keys.
        swept: rows of generations before this one have vanished.
    """
    vanished = pc.less(pc.struct_field(rows.column(GDDL), "generation"), swept)
    if schema.keys:
        left = pc.invert(are_changes(rows, needed))
        vanished = pc.or_(vanished, left) if schema.spec.delete == "hard" else left
    return pc.and_(applied_before(rows, before), vanished)


def applied_before(rows: pa.Table, moment: datetime) -> pa.ChunkedArray:
    """Which rows of a change table or of tombstones were applied before a time."""
    return pc.less(pc.struct_field(rows.column(GDDL), "applied_at"), pa.scalar(moment))


def changes_in(rows: pa.Table) -> Changes:
    """The changes that these rows are."""
    return frozenset(_numbered(rows))


def are_changes(rows: pa.Table, changes: Changes) -> pa.Array:
    """Which rows are one of these changes."""
    return pa.array([change in changes for change in _numbered(rows)], pa.bool_())


def _numbered(rows: pa.Table) -> list[tuple[str, int]]:
    gddl = rows.column(GDDL)
    batches, positions = (pc.struct_field(gddl, name).to_pylist() for name in ("batch_id", "position"))
    return list(zip(batches, positions, strict=True))


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
