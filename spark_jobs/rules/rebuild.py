"""What a full refresh makes of all changes (docs/semantics.md, section 13).

`restamped` holds row by row; the others need all changes of a key together, and hold for any partition of the keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.codes import shared_codes, table_codes
from spark_jobs.rules.errors_table import ROW_BITS
from spark_jobs.rules.fold import COLUMNS_BEFORE_DELETE, net_changes, newest_state
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


def held_by(changes: pa.Table, files: Mapping[str, int]) -> pa.Array:
    """Mask of changes that came in one of these files, in its generation."""
    gddl = gddl_fields(changes)
    encoded = pc.dictionary_encode(gddl["source_file"], null_encoding="encode")
    generations = pa.array([files.get(path) for path in encoded.dictionary.to_pylist()], pa.int32())
    return pc.fill_null(pc.equal(generations.take(encoded.indices), gddl["generation"]), False)


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


def rebuilt_rows(happened: pa.Table, schema: TableSchema, swept: int) -> pa.Table:
    """Rows of the replica: without deleted ones; under soft deletes those that had a row at some time stay, marked.

    Args:
        happened: see `order.events`; all events of each key, of all generations.
    """
    if schema.spec.delete == "hard":
        rows = newest_state(happened, schema, swept)
        return rows.filter(pc.not_equal(gddl_fields(rows)["op"], "D")).select([*schema.columns, GDDL])
    rows = newest_state(happened, schema, 0)
    gddl = gddl_fields(rows)
    gone = pc.or_(pc.equal(gddl["op"], "D"), pc.less(gddl["generation"], swept))
    had, rows = _with_last_columns(rows, happened, schema)
    return with_gddl(rows, deleted=gone).filter(had)


def _with_last_columns(rows: pa.Table, happened: pa.Table, schema: TableSchema) -> tuple[pa.Array, pa.Table]:
    """Whether each key had a row in any generation, and the rows with the columns of the last one it had."""
    had = flat(rows.column(COLUMNS_BEFORE_DELETE))
    rows, generation = rows.select([*schema.columns, GDDL]), gddl_fields(happened)["generation"]
    for older in sorted(pc.unique(generation).to_pylist(), reverse=True):
        if pc.all(had).as_py() is not False:
            break
        net = net_changes(happened.filter(pc.equal(generation, older)), schema, partial=True)
        net = net.filter(net.column(COLUMNS_BEFORE_DELETE))
        mine, found = table_codes((rows, net), schema.keys)
        place = np.full(int(max(mine.max(initial=0), found.max(initial=0))) + 1, -1)
        place[found] = np.arange(net.num_rows)
        at = np.where(np.asarray(had), -1, place[mine])
        rows, had = _columns_from(rows, net, at, schema), pc.or_(had, pa.array(at >= 0))
    return had, rows


def _columns_from(rows: pa.Table, others: pa.Table, at: np.ndarray, schema: TableSchema) -> pa.Table:
    """The rows with the columns of these rows of `others`; -1: their own."""
    taken, indices = pa.array(at >= 0), pa.array(at, pa.int64(), mask=at < 0)
    for name in schema.columns:
        if name not in schema.keys:
            chosen = pc.if_else(taken, flat(others.column(name)).take(indices), flat(rows.column(name)))
            rows = rows.set_column(rows.schema.get_field_index(name), name, chosen)
    return rows
