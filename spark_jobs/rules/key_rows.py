"""Rows of one key, found by the text of its parts."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.plan.table_schema import TableSchema
from spark_jobs.rules.codes import sortable, sorted_rows
from spark_jobs.rules.erased_rows import key_texts
from spark_jobs.rules.order import gddl_fields


@dataclass(frozen=True, kw_only=True)
class KeyRows:
    """Rows of one key of one table.

    Attributes:
        rows: some of them, in the table's columns.
        count: how many there are.
    """

    rows: pa.Table
    count: int


def with_key(rows: pa.Table, schema: TableSchema, key: tuple[str, ...]) -> pa.Table:
    """Rows that have a key, or had it before their change.

    Args:
        rows: of a change table, or of another one, which has no before images.
        key: its parts as `erased_keys.key_text` writes them, in the order of `schema.keys`.
    """
    own = key_texts(rows, schema)
    old = key_texts(rows, schema, old=True) if schema.before_of_key else own
    return rows.filter(pa.array([key in pair for pair in zip(own, old, strict=True)], pa.bool_()))


def highest(rows: pa.Table, limit: int) -> KeyRows:
    """At most `limit` of the rows: those of the highest generation, sequence, batch and position."""
    gddl = gddl_fields(rows)
    at = sorted_rows([gddl["generation"], *sortable(gddl["sequence"]), gddl["batch_id"], gddl["position"]])
    return KeyRows(rows=rows.take(pa.array(at[max(0, len(at) - limit) :])), count=rows.num_rows)
