"""Rows of one key, found by the text of its parts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.arrays import flat, is_text
from spark_jobs.rules.codes import sortable, sorted_rows
from spark_jobs.rules.erased_rows import key_texts
from spark_jobs.rules.order import gddl_fields


@dataclass(frozen=True, kw_only=True)
class KeyRows:
    """Rows of one key of one table.

    Attributes:
        rows: some of them, in the table's columns.
        count: number of all rows.
    """

    rows: pa.Table
    count: int


def with_key(rows: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> pa.Table:
    """Rows that have a key, or had it before their change.

    Args:
        rows: of a change table, or of another one, which has no before images.
        key: its parts as `erased_keys.key_text` writes them, in the order of `schema.keys`.
    """
    rows = _candidates(rows, schema, key)
    own = key_texts(rows, schema)
    old = key_texts(rows, schema, old=True) if schema.before_of_key else own
    return rows.filter(pa.array([key in pair for pair in zip(own, old, strict=True)], pa.bool_()))


def _candidates(rows: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> pa.Table:
    """Rows whose first key part may be the wanted one, now or before: `key_texts` takes seconds for a million rows.

    Only of whole numbers and text, whose text is their cast in the type that the table has by now; else all rows.
    """
    names = (schema.keys[0], schema.before_of_key.get(schema.keys[0]))
    columns = [flat(rows.column(name)) for name in names if name in rows.column_names]
    if not (all(pt.is_integer(c.type) for c in columns) or all(is_text(c.type) for c in columns)):
        return rows
    hits = [np.asarray(pc.fill_null(pc.equal(column.cast(pa.string()), key[0]), False)) for column in columns]
    return rows.filter(pa.array(np.logical_or.reduce(hits)))


def highest(rows: pa.Table, limit: int) -> KeyRows:
    """At most `limit` of the rows: those of the highest generation, sequence, batch and position."""
    gddl = gddl_fields(rows)
    at = sorted_rows([gddl["generation"], *sortable(gddl["sequence"]), gddl["batch_id"], gddl["position"]])
    return KeyRows(rows=rows.take(pa.array(at[max(0, len(at) - limit) :])), count=rows.num_rows)
