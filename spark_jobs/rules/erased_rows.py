"""Rows of erased keys, found and taken out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.sql_types import SqlType, parse_type
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrays import flat
from spark_jobs.rules.decode import DecodedGroup
from spark_jobs.rules.erased_keys import ErasedKeys, key_text
from spark_jobs.rules.order import gddl_fields, old_key_columns, old_keys, with_gddl
from spark_jobs.rules.value_text import json_writer

Holds = Callable[[int, Sequence[str | None]], bool]
"""Whether a key is meant, given the number of its row."""


def without_erased(group: DecodedGroup, table_schema: TableSchema, erased: ErasedKeys) -> tuple[DecodedGroup, int]:
    """The group without rows of erased keys, good or bad, and how many these were; before images of one are emptied.

    An update that moved a row to an erased key becomes the delete of the old key, which it was too.
    """
    if not erased or not group.rows.num_rows:
        return group, 0
    bad = np.zeros(group.rows.num_rows, dtype=bool)
    bad[list(group.bad)] = True
    matches = ErasedMatches.of(group.rows, table_schema, _of_erased(group.rows, table_schema, erased))
    turned = matches.turned & ~bad
    gone = (matches.own & ~turned) | (matches.old & bad)  # a bad one's record would hold the before image
    if not (gone | matches.old | turned).any():
        return group, 0
    numbers = np.cumsum(~gone) - 1
    left = [(int(numbers[row]), p, r) for row, p, r in zip(group.bad, group.problems, group.records, strict=True)
            if not gone[row]]  # fmt: skip
    rows = emptied(as_deletes(group.rows, table_schema, turned), table_schema, matches.old | turned).filter(
        pa.array(~gone)
    )
    kept = replace(
        group, rows=rows, bad=tuple(row for row, _, _ in left), problems=tuple(p for _, p, _ in left),
        records=tuple(r for _, _, r in left),
    )  # fmt: skip
    return kept, int(gone.sum())


def _of_erased(rows: pa.Table, table_schema: TableSchema, erased: ErasedKeys) -> Holds:
    """Whether a row, or the row before it, is of an erased key and of a time before its erasure."""
    gddl, write = rows.column(GDDL), json_writer(parse_type(table_schema.sequence_type))

    def holds(row: int, key: Sequence[str | None]) -> bool:
        found = erased.held(key)
        if found is None:
            return False
        facts = gddl[row].as_py()
        sequence = None if facts["sequence"] is None else write(facts["sequence"])
        return erased.is_kept_out(found, facts["commit_ts"], sequence, facts["source_file"])

    return holds


@dataclass(frozen=True, kw_only=True)
class ErasedMatches:
    """Which changes are of a key, were of it before, and moved a row to it from another key."""

    own: np.ndarray
    old: np.ndarray
    turned: np.ndarray
    others: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, rows: pa.Table, table_schema: TableSchema, holds: Holds) -> ErasedMatches:
        texts = key_texts(rows, table_schema)
        own = np.array([holds(row, key) for row, key in enumerate(texts)], dtype=bool)
        nothing = np.zeros(rows.num_rows, dtype=bool)
        if not table_schema.before_of_key:
            return cls(own=own, old=nothing, turned=nothing, others=())
        olds = key_texts(rows, table_schema, old=True)
        old = np.array([holds(row, key) for row, key in enumerate(olds)], dtype=bool)
        ops = pc.struct_field(rows.column(GDDL), "op").to_pylist()
        moved = np.array([op == "U" and a != b for op, a, b in zip(ops, texts, olds, strict=True)], dtype=bool)
        turned = own & ~old & moved
        others = dict.fromkeys(tuple(map(str, olds[row])) for row in np.flatnonzero(turned))
        return cls(own=own, old=old, turned=turned, others=tuple(others))


def as_deletes(rows: pa.Table, table_schema: TableSchema, where: np.ndarray) -> pa.Table:
    """Moved rows, where it is known, as the deletes of their old keys."""
    if not where.any():
        return rows
    chosen = pa.array(where)
    for column, value in old_key_columns(rows, table_schema).items():
        at = rows.schema.get_field_index(column)
        rows = rows.set_column(at, rows.schema.field(at), pc.if_else(chosen, value, rows.column(at)))
    return with_gddl(rows, op=pc.if_else(chosen, "D", gddl_fields(rows)["op"]))


def emptied(rows: pa.Table, table_schema: TableSchema, where: np.ndarray) -> pa.Table:
    """Before images set to null where the mask is true."""
    for column in table_schema.before if where.any() else ():
        at = rows.schema.get_field_index(column.name)
        if at >= 0:
            values = pc.if_else(pa.array(where), pa.scalar(None, rows.schema.field(at).type), rows.column(at))
            rows = rows.set_column(at, column.name, values)
    return rows


def with_images(rows: pa.Table, table_schema: TableSchema) -> np.ndarray:
    """Rows with any before image."""
    found = np.zeros(rows.num_rows, dtype=bool)
    for column in table_schema.before:
        if column.name in rows.column_names:
            found |= np.asarray(flat(rows.column(column.name)).is_valid())
    return found


def key_texts(rows: pa.Table, table_schema: TableSchema, *, old: bool = False) -> list[tuple[str | None, ...]]:
    """Keys as text; `old`: those before the change, which are the same where no image says otherwise."""
    kinds: Mapping[str, SqlType] = {c.name: c.type for c in table_schema.data}
    columns = old_keys(rows, table_schema) if old else {key: rows.column(key) for key in table_schema.keys}
    texts = [[key_text(value, kinds[key]) for value in columns[key].to_pylist()] for key in table_schema.keys]
    return list(zip(*texts, strict=True))
