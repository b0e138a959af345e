"""What a full refresh makes of all changes (docs/semantics.md, section 13).

`restamped` holds row by row; the others need all changes of a key together, and hold for any partition of the keys.
"""

from __future__ import annotations

from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.codes import shared_codes
from spark_jobs.rules.errors_table import ROW_BITS
from spark_jobs.rules.fold import net_changes, of_newest_generation
from spark_jobs.rules.order import gddl_fields, with_gddl
from spark_jobs.rules.redelivery import new_changes

# A refresh packs the number of its bounded batch into the position too: 16 bits, then 14 for the file, 33 for the row.
_BATCH_BITS, _FILE_BITS = 47, 33
_NUMBER = f"{GDDL}__number"


def restamped(changes: pa.Table, batch_id: str, planned_at: str) -> pa.Table:
    """Changes of bounded batches stamped as of the refresh; positions keep the order in which they arrived."""
    gddl = gddl_fields(changes)
    batch = pc.shift_left(gddl["batch_id"].cast(pa.int64()), _BATCH_BITS)
    file = pc.shift_left(pc.shift_right(gddl["position"], ROW_BITS), _FILE_BITS)
    applied = pa.scalar(datetime.fromisoformat(planned_at), gddl["applied_at"].type)
    return with_gddl(
        changes,
        position=pc.add(pc.add(batch, file), row_in_file(gddl)),
        batch_id=pa.repeat(batch_id, changes.num_rows),
        applied_at=pa.repeat(applied, changes.num_rows),
    )


def row_in_file(gddl: dict[str, pa.Array]) -> pa.Array:
    """Row number in the file, out of a position as ordinary batches or refreshes pack it."""
    refreshed = pc.ends_with(gddl["batch_id"], pattern="r")
    bits = pc.if_else(refreshed, pa.scalar((1 << _FILE_BITS) - 1), pa.scalar((1 << ROW_BITS) - 1))
    return pc.bit_wise_and(gddl["position"], bits)


def lacking(changes: pa.Table, others: pa.Table, schema: TableSchema) -> pa.Table:
    """Changes that `others` lacks: a change is known by its content, and a full-load row by its place in its file too.

    Asked the other way round it says which stored changes their files no longer hold.
    """
    numbers = pa.array(np.arange(changes.num_rows))
    unknown = new_changes(changes.append_column(_NUMBER, numbers), _with_numbers(others, changes), schema)
    tables = (changes, others)
    places, known = shared_codes([_places(t, schema) for t in tables], [t.num_rows for t in tables])
    new = np.zeros(changes.num_rows, dtype=bool)
    new[np.asarray(unknown.column(_NUMBER))] = True
    return changes.filter(pa.array(new & ~np.isin(places, known)))


def _with_numbers(rows: pa.Table, like: pa.Table) -> pa.Table:
    return rows.select(like.column_names).append_column(_NUMBER, pa.nulls(rows.num_rows, pa.int64()))


def _places(rows: pa.Table, schema: TableSchema) -> list[pa.Array]:
    gddl = gddl_fields(rows)
    content = [rows.column(name) for name in dict.fromkeys((*schema.keys, *schema.content))]
    return [*content, gddl["source_file"], row_in_file(gddl), gddl["generation"], gddl["op"], gddl["sequence"]]


def rebuilt_state(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Net changes of each key's newest generation, from `swept` on.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    return net_changes(of_newest_generation(happened, schema, swept), schema, partial=schema.partial)


def rebuilt_rows(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Rows of the replica: without deleted ones; under soft deletes those that had a row at some time stay, marked.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    rows = rebuilt_state(happened, schema, swept)
    gone = np.asarray(pc.equal(gddl_fields(rows)["op"], "D"))
    if schema.spec.delete == "hard":
        return rows.filter(pa.array(~gone)).select([*schema.columns, GDDL])
    keys = [[table.column(k) for k in schema.keys] for table in (rows, happened)]
    mine, all_keys = shared_codes(keys, [rows.num_rows, happened.num_rows])
    had = all_keys[np.asarray(pc.not_equal(gddl_fields(happened)["op"], "D"))]
    kept = with_gddl(rows.select([*schema.columns, GDDL]), deleted=pa.array(gone))
    return kept.filter(pa.array(~gone | np.isin(mine, had)))
