"""What becomes of rows outside the row filter (`where`, docs/semantics.md, section 17). Each row for itself."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.erasure import emptied
from spark_jobs.rules.evaluate import holds
from spark_jobs.rules.order import gddl_fields, moved_rows, old_keys, with_gddl


def within_filter(group: DecodedGroup, schema: TableSchema) -> DecodedGroup:
    """The group without rows outside the filter; an update that leaves it is a delete, which has its key alone."""
    if group.outside is None:
        return group
    rows, leaving = as_left(group.rows, schema, group.outside)
    gone = group.outside & ~leaving
    return replace(replace(group, rows=rows).without(gone), outside=None, filtered=int(gone.sum()))


def as_left(rows: pa.Table, schema: TableSchema, outside: np.ndarray) -> tuple[pa.Table, np.ndarray]:
    """Rows with updates outside the filter as deletes, and which these are."""
    leaving: np.ndarray = outside & holds(pc.equal(gddl_fields(rows)["op"], "U"))
    if not leaving.any():
        return rows, leaving
    rows = _with_old_keys(rows, schema, leaving & moved_rows(rows, schema))
    rows = with_gddl(rows, op=pc.if_else(pa.array(leaving), "D", gddl_fields(rows)["op"]))
    rows = emptied(rows, schema, leaving)
    kept = pa.array(np.arange(rows.num_rows), mask=leaving)
    for name in schema.columns:
        if name not in schema.keys and not schema.is_technical(name):
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), flat(rows.column(at)).take(kept))
    return rows, leaving


def _with_old_keys(rows: pa.Table, schema: TableSchema, moved: np.ndarray) -> pa.Table:
    """Rows that an update moved, under the key that they had before."""
    for key, before in old_keys(rows, schema).items() if moved.any() else ():
        at = rows.schema.get_field_index(key)
        values = pc.if_else(pa.array(moved), before, flat(rows.column(at)))
        rows = rows.set_column(at, rows.schema.field(at), values)
    return rows
