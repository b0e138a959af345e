"""From a batch's net changes to what becomes of the replica's rows, as SQL (docs/semantics.md, sections 3 to 8).

Relations: `net` (one row a key, see `fold`), `stored` (rows of the replica that may match, with `AT`, their number),
`tombstones` (tombstones that may match).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.rules.fold import FIRST, FRESH, HAD_ROW, HAS_FORCED, LOWEST, UNSEEN, carried_name
from spark_jobs.rules.order import FORCED, OP, ORDER, is_forced, order_of, rank_of, struct_of
from spark_jobs.rules.sql import listed, query, quoted
from spark_jobs.table.table_schema import GDDL, TableSchema

REFOLDED, AT, ACTION = f"{GDDL}__reworked", f"{GDDL}__at", f"{GDDL}__action"
_PRIOR = f"{GDDL}__prior"


@dataclass(frozen=True, kw_only=True)
class Net:
    """A batch's net changes.

    Attributes:
        rows: one row a key, see `fold`.
        partial: rows may leave columns to what is stored.
    """

    rows: pa.Table
    partial: bool


@dataclass(frozen=True, kw_only=True)
class StoredState:
    """What is stored of the keys of a batch, and perhaps some others.

    Attributes:
        stored: rows of the replica with `AT`.
        tombstones: tombstones; null: there is no table of them.
    """

    stored: pa.Table
    tombstones: pa.Table | None

    @property
    def relations(self) -> dict[str, pa.Table]:
        return {"stored": self.stored, **({} if self.tombstones is None else {"tombstones": self.tombstones})}


def never_seen(net: Net, known: StoredState, table_schema: TableSchema) -> pa.Table:
    """Keys whose lowest change in the batch is an update though nothing of them was known: `UPDATE_WITHOUT_PRIOR`."""
    keys = listed(table_schema.keys)
    parts = [f"SELECT {keys} FROM {name}" for name in known.relations]
    statement = (
        f"SELECT {listed(table_schema.keys, 'n')} FROM net n ANTI JOIN ({' UNION ALL '.join(parts)}) k USING ({keys}) "
        f"WHERE n.{FIRST} = '{UNSEEN}'"
    )
    return query(statement, {"net": net.rows, **known.relations})


def to_rework(net: Net, known: StoredState, table_schema: TableSchema) -> pa.Table:
    """Late and forced keys, whose overlay on the stored row would not be the fold."""
    if not table_schema.partial:
        return query(f"SELECT {listed(table_schema.keys)} FROM net WHERE {HAS_FORCED}", {"net": net.rows})
    priors = [
        f"SELECT {listed(table_schema.keys)}, {_order(table_schema, is_forced(table_schema))} AS {_PRIOR} FROM stored"
    ]
    if known.tombstones is not None:
        priors.append(
            f"SELECT {listed(table_schema.keys)}, {_order(table_schema, _tombstone_forced(table_schema))} AS {_PRIOR} "
            "FROM tombstones"
        )
    keys = listed(table_schema.keys)
    greatest = f"SELECT {keys}, max({_PRIOR}) AS {_PRIOR} FROM ({' UNION ALL '.join(priors)}) GROUP BY ALL"
    statement = (
        f"SELECT {listed(table_schema.keys, 'n')} FROM net n LEFT JOIN ({greatest}) k USING ({keys}) "
        f"WHERE coalesce(n.{HAS_FORCED}, false) OR coalesce(k.{_PRIOR} >= n.{LOWEST}, false)"
    )
    return query(statement, {"net": net.rows, **known.relations})


def _order(table_schema: TableSchema, forced: str) -> str:
    return order_of(table_schema, GDDL, f"{GDDL}.sequence", forced)


def _tombstone_forced(table_schema: TableSchema) -> str:
    return FORCED if table_schema.spec.force_update else "false"


def late(net: Net, known: StoredState, table_schema: TableSchema) -> int:
    """See `Applied.late`."""
    keys, rank = listed(table_schema.keys), rank_of(GDDL)
    priors = " UNION ALL ".join(f"SELECT {keys}, {rank} AS {_PRIOR} FROM {name}" for name in known.relations)
    statement = (
        f"SELECT count(*) AS late FROM net n JOIN (SELECT {keys}, max({_PRIOR}) AS {_PRIOR} FROM ({priors}) "
        f"GROUP BY ALL) k USING ({keys}) WHERE n.{OP} <> 'R' AND NOT coalesce(n.{HAS_FORCED}, false) "
        f"AND k.{_PRIOR} > {rank_of(f'n.{GDDL}')}"
    )
    return int(query(statement, {"net": net.rows, **known.relations}).column("late")[0].as_py())


def replaced(net: Net, keys: pa.Table, again: pa.Table, table_schema: TableSchema) -> Net:
    """Net changes with those of some keys (`keys`) replaced by what all their changes fold to (`again`)."""
    on = listed(table_schema.keys)
    statement = (
        f"SELECT *, false AS {REFOLDED} FROM net ANTI JOIN redo USING ({on}) UNION ALL BY NAME "
        f"SELECT * REPLACE (true AS {FRESH}), true AS {REFOLDED} FROM again"
    )
    return Net(rows=query(statement, {"net": net.rows, "redo": keys, "again": again}), partial=net.partial)


def decided(net: Net, known: StoredState, table_schema: TableSchema) -> pa.Table:
    """What becomes of rows: `ACTION` (insert, update, delete), `AT` of the stored row, the replica's columns, `_gddl`.

    Net changes that change nothing are left out.
    """
    names = set(net.rows.column_names)
    rows = "SELECT * FROM net" if REFOLDED in names else f"SELECT *, false AS {REFOLDED} FROM net"
    rows = rows if HAD_ROW in names else f"SELECT *, false AS {HAD_ROW} FROM ({rows})"
    if known.tombstones is not None:
        rows = _alive(rows, table_schema)
    stored = order_of(table_schema, f"t.{GDDL}", f"t.{GDDL}.sequence", is_forced(table_schema, "t"))
    newer = f"(s.{REFOLDED} OR s.{ORDER} > {stored})"
    gone, met = f"s.{OP} = 'D'", f"t.{AT} IS NOT NULL"
    if table_schema.spec.delete == "hard":
        action = (
            f"CASE WHEN {met} AND {newer} AND {gone} THEN 'delete' WHEN {met} AND {newer} THEN 'update' "
            f"WHEN NOT ({met}) AND NOT ({gone}) THEN 'insert' END"
        )
    else:
        action = (
            f"CASE WHEN {met} AND {newer} THEN 'update' "
            f"WHEN NOT ({met}) AND (NOT ({gone}) OR coalesce(s.{HAD_ROW}, false)) THEN 'insert' END"
        )
    columns = [
        f"{_value(table_schema, i, c, net.partial, met)} AS {quoted(c)}" for i, c in enumerate(table_schema.columns)
    ]
    statement = (
        f"SELECT {action} AS {ACTION}, t.{AT}, {', '.join(columns)}, {_struct(table_schema, gone)} AS {GDDL} "
        f"FROM ({rows}) s LEFT JOIN stored t ON {_same(table_schema, 't', 's')}"
    )
    return query(f"SELECT * FROM ({statement}) WHERE {ACTION} IS NOT NULL", {"net": net.rows, **known.relations})


def _same(table_schema: TableSchema, a: str, b: str) -> str:
    return " AND ".join(f"{a}.{quoted(k)} = {b}.{quoted(k)}" for k in table_schema.keys)


def _alive(rows: str, table_schema: TableSchema) -> str:
    """Drop net changes that a tombstone beats; an equal one is the same delete, or decided by the tie policy.

    Under soft deletes a beaten change becomes the deleted row that it would be, had it come in time.
    """
    order = _order(table_schema, _tombstone_forced(table_schema))
    dead = (
        f"SELECT {listed(table_schema.keys)}, max({order}) AS dead, arg_max({GDDL}, {order}) AS tombstone "
        "FROM tombstones GROUP BY ALL"
    )
    beaten = f"(coalesce(d.dead > n.{ORDER}, false) AND NOT n.{REFOLDED})"
    joined = f"FROM ({rows}) n LEFT JOIN ({dead}) d ON {_same(table_schema, 'd', 'n')}"
    if table_schema.spec.delete == "hard":
        return f"SELECT n.* {joined} WHERE NOT {beaten}"
    changed = {GDDL: "d.tombstone", ORDER: "d.dead", OP: "'D'"}
    swapped = ", ".join(f"CASE WHEN {beaten} THEN {v} ELSE n.{c} END AS {c}" for c, v in changed.items())
    return f"SELECT n.* EXCLUDE ({', '.join(changed)}), {swapped} {joined}"


def _value(table_schema: TableSchema, index: int, column: str, partial: bool, met: str) -> str:
    """What a matched row's column becomes; of a new row its own."""
    new, old = f"s.{quoted(column)}", f"t.{quoted(column)}"
    if not partial or column in table_schema.keys:
        return new
    outlived = f"t.{GDDL}.generation < s.{GDDL}.generation"
    if table_schema.spec.delete == "soft":
        outlived = f"({outlived} OR coalesce(t.{GDDL}.deleted, false))"
    whole = f"(s.{FRESH} AND (s.{OP} <> 'D' OR coalesce(s.{HAD_ROW}, false)))"
    taken = f"{whole} OR coalesce(s.{carried_name(index)}, false) OR ({outlived} AND s.{OP} <> 'D')"
    return f"CASE WHEN NOT ({met}) OR {taken} THEN {new} ELSE {old} END"


def _struct(table_schema: TableSchema, gone: str) -> str:
    struct = struct_of(table_schema, f"s.{GDDL}")
    return struct if table_schema.spec.delete == "hard" else f"{struct[:-1]}, deleted: {gone}}}"
