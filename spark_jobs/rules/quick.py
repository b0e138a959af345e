"""The short cut for the batch that small tables see most: whole rows, nothing forced, no key that moves, hard deletes.

The same rules as `order`, `fold.net` and `merge.decided`, on Python's own values, for a few thousand rows need no
query: planning one costs more than the work. Whatever is beyond it goes through those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from spark_jobs.rules.fold import FIRST, UNSEEN
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.order import OP
from spark_jobs.table.table_schema import GDDL, TableSchema

MOST_ROWS = 20_000
_RANK = 2
"""Parts of an order that the source decides: generation and sequence."""
Key = tuple[Any, ...]
Order = tuple[Any, ...]


def suits(changes: pa.Table, table_schema: TableSchema) -> bool:
    """Whether a batch can go this way. Floating point can't: its order is not Python's."""
    spec = table_schema.spec
    if table_schema.partial or table_schema.before_of_key or spec.force_update is not None or spec.delete == "soft":
        return False
    kinds = [changes.schema.field(k).type for k in table_schema.keys]
    sequence = changes.schema.field(GDDL).type.field("sequence").type
    kinds += [f.type for f in sequence] if pt.is_struct(sequence) else [sequence]
    return changes.num_rows <= MOST_ROWS and not any(pt.is_nested(k) or pt.is_floating(k) for k in kinds)


def orders(rows: pa.Table, table_schema: TableSchema) -> list[Order]:
    """What grows with the order of changes (see `order.order_of`), for each row."""
    gddl = rows.column(GDDL).combine_chunks()
    parts = dict(zip((f.name for f in gddl.type), gddl.flatten(), strict=True))
    sequence = parts["sequence"].to_pylist()
    if pt.is_struct(parts["sequence"].type):
        sequence = [None if s is None else tuple(s.values()) for s in sequence]
    ranked = [(0, 0) if s is None else (1, s) for s in sequence]
    if table_schema.spec.tie_break == "delete_wins":
        deletes = [op == "D" for op in parts["op"].to_pylist()]
        tail = [deletes, parts["source_file"].to_pylist(), parts["position"].to_pylist()]
    else:
        tail = [parts["batch_id"].to_pylist(), parts["position"].to_pylist()]
    return list(zip(parts["generation"].to_pylist(), ranked, *tail, strict=True))


def keys_of(rows: pa.Table, table_schema: TableSchema) -> list[Key]:
    return list(zip(*(rows.column(k).to_pylist() for k in table_schema.keys), strict=True))


@dataclass(frozen=True)
class QuickNet:
    """Net changes: rows of the batch, one a key, with `OP` and `FIRST`; keys and orders in the same order."""

    rows: pa.Table
    keys: Sequence[Key]
    orders: Sequence[Order]


def net(changes: pa.Table, table_schema: TableSchema) -> QuickNet:
    """The highest change of each key, and the operation of its lowest."""
    keys, by = keys_of(changes, table_schema), orders(changes, table_schema)
    highest: dict[Key, int] = {}
    lowest: dict[Key, int] = {}
    for row, key in enumerate(keys):
        best = highest.setdefault(key, row)
        if best != row and by[row] > by[best]:
            highest[key] = row
        least = lowest.setdefault(key, row)
        if least != row and by[row] < by[least]:
            lowest[key] = row
    ops = changes.column(GDDL).combine_chunks().field("op").to_pylist()
    picked = list(highest.values())
    rows = changes if len(picked) == changes.num_rows else changes.take(pa.array(picked, pa.int64()))
    rows = rows.append_column(OP, pa.array([ops[r] for r in picked], pa.string()))
    rows = rows.append_column(FIRST, pa.array([ops[lowest[k]] for k in highest], pa.string()))
    return QuickNet(rows, list(highest), [by[r] for r in picked])


def never_seen(found: QuickNet, known: Sequence[pa.Table], table_schema: TableSchema) -> pa.Table:
    """See `merge.never_seen`."""
    stored = {key for rows in known for key in keys_of(rows, table_schema)}
    firsts = found.rows.column(FIRST).to_pylist()
    at = [i for i, key in enumerate(found.keys) if firsts[i] == UNSEEN and key not in stored]
    return found.rows.take(pa.array(at, pa.int64()))


@dataclass(frozen=True)
class QuickDecision:
    """What becomes of rows (see `merge.decided`), and how many net changes are late (see `Applied.late`)."""

    rows: pa.Table
    late: int


def decided(found: QuickNet, stored: pa.Table, tombstones: pa.Table | None, table_schema: TableSchema) -> QuickDecision:
    """See `merge.decided`."""
    places = {key: at for at, key in enumerate(keys_of(stored, table_schema))}
    known = orders(stored, table_schema)
    buried = _buried(tombstones, table_schema)
    ops = found.rows.column(OP).to_pylist()
    picked: list[int] = []
    actions: list[str] = []
    at: list[int | None] = []
    late = 0
    for row, (key, order) in enumerate(zip(found.keys, found.orders, strict=True)):
        place = places.get(key)
        newest = buried[key] if key in buried and buried[key] > order else None if place is None else known[place]
        if newest is not None and newest >= order:
            late += ops[row] != "R" and newest[:_RANK] > order[:_RANK]
            continue
        if place is None and ops[row] == "D":
            continue
        picked.append(row)
        at.append(place)
        actions.append("insert" if place is None else "delete" if ops[row] == "D" else "update")
    rows = found.rows.take(pa.array(picked, pa.int64())).drop_columns([OP, FIRST])
    rows = rows.append_column(ACTION, pa.array(actions, pa.string())).append_column(AT, pa.array(at, pa.int64()))
    return QuickDecision(rows, late)


def _buried(tombstones: pa.Table | None, table_schema: TableSchema) -> Mapping[Key, Order]:
    """The greatest order of each key's tombstones."""
    found: dict[Key, Order] = {}
    if tombstones is not None:
        for key, order in zip(keys_of(tombstones, table_schema), orders(tombstones, table_schema), strict=True):
            if key not in found or order > found[key]:
                found[key] = order
    return found
