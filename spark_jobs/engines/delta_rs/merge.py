"""From a batch's net changes to what becomes of the replica's rows, as SQL (docs/semantics.md, sections 3 to 8).

Relations: `net` (one row a key, see `fold`), `stored` (rows of the replica that may match, with `AT`, their number),
`graves` (tombstones that may match).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.engines.delta_rs.fold import FIRST, FRESH, HAD, HAS_FORCED, LOWEST, UNSEEN, carried_name
from spark_jobs.engines.delta_rs.order import FORCED, OP, ORDER, is_forced, order_of, struct_of
from spark_jobs.engines.delta_rs.sql import listed, query, quoted
from spark_jobs.engines.shape import GDDL, Shape

REWORKED, AT, ACTION = f"{GDDL}__reworked", f"{GDDL}__at", f"{GDDL}__action"
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
class Known:
    """What is stored of the keys of a batch, and perhaps some others.

    Attributes:
        stored: rows of the replica with `AT`.
        graves: tombstones; null: there is no table of them.
    """

    stored: pa.Table
    graves: pa.Table | None

    @property
    def relations(self) -> dict[str, pa.Table]:
        return {"stored": self.stored, **({} if self.graves is None else {"graves": self.graves})}


def never_seen(net: Net, known: Known, shape: Shape) -> pa.Table:
    """Keys whose lowest change in the batch is an update though nothing of them was known: `UPDATE_WITHOUT_PRIOR`."""
    keys = listed(shape.keys)
    parts = [f"SELECT {keys} FROM {name}" for name in known.relations]
    statement = (
        f"SELECT {listed(shape.keys, 'n')} FROM net n ANTI JOIN ({' UNION ALL '.join(parts)}) k USING ({keys}) "
        f"WHERE n.{FIRST} = '{UNSEEN}'"
    )
    return query(statement, {"net": net.rows, **known.relations})


def to_rework(net: Net, known: Known, shape: Shape) -> pa.Table:
    """Late and forced keys, whose overlay on the stored row would not be the fold."""
    if not shape.partial:
        return query(f"SELECT {listed(shape.keys)} FROM net WHERE {HAS_FORCED}", {"net": net.rows})
    priors = [f"SELECT {listed(shape.keys)}, {_order(shape, is_forced(shape))} AS {_PRIOR} FROM stored"]
    if known.graves is not None:
        priors.append(f"SELECT {listed(shape.keys)}, {_order(shape, _grave_forced(shape))} AS {_PRIOR} FROM graves")
    greatest = (
        f"SELECT {listed(shape.keys)}, max({_PRIOR}) AS {_PRIOR} FROM ({' UNION ALL '.join(priors)}) GROUP BY ALL"
    )
    statement = (
        f"SELECT {listed(shape.keys, 'n')} FROM net n LEFT JOIN ({greatest}) k USING ({listed(shape.keys)}) "
        f"WHERE coalesce(n.{HAS_FORCED}, false) OR coalesce(k.{_PRIOR} >= n.{LOWEST}, false)"
    )
    return query(statement, {"net": net.rows, **known.relations})


def _order(shape: Shape, forced: str) -> str:
    return order_of(shape, GDDL, f"{GDDL}.sequence", forced)


def _grave_forced(shape: Shape) -> str:
    return FORCED if shape.spec.force_update else "false"


def replaced(net: Net, keys: pa.Table, again: pa.Table, shape: Shape) -> Net:
    """Net changes with those of some keys (`keys`) replaced by what all their changes fold to (`again`)."""
    on = listed(shape.keys)
    statement = (
        f"SELECT *, false AS {REWORKED} FROM net ANTI JOIN redo USING ({on}) UNION ALL BY NAME "
        f"SELECT * REPLACE (true AS {FRESH}), true AS {REWORKED} FROM again"
    )
    return Net(rows=query(statement, {"net": net.rows, "redo": keys, "again": again}), partial=net.partial)


def decided(net: Net, known: Known, shape: Shape) -> pa.Table:
    """What becomes of rows: `ACTION` (insert, update, delete), `AT` of the stored row, the replica's columns, `_gddl`.

    Net changes that change nothing are left out.
    """
    names = set(net.rows.column_names)
    rows = "SELECT * FROM net" if REWORKED in names else f"SELECT *, false AS {REWORKED} FROM net"
    rows = rows if HAD in names else f"SELECT *, false AS {HAD} FROM ({rows})"
    if known.graves is not None:
        rows = _alive(rows, shape)
    newer = f"(s.{REWORKED} OR s.{ORDER} > {order_of(shape, f't.{GDDL}', f't.{GDDL}.sequence', is_forced(shape, 't'))})"
    gone, met = f"s.{OP} = 'D'", f"t.{AT} IS NOT NULL"
    if shape.spec.delete == "hard":
        action = (
            f"CASE WHEN {met} AND {newer} AND {gone} THEN 'delete' WHEN {met} AND {newer} THEN 'update' "
            f"WHEN NOT ({met}) AND NOT ({gone}) THEN 'insert' END"
        )
    else:
        action = (
            f"CASE WHEN {met} AND {newer} THEN 'update' "
            f"WHEN NOT ({met}) AND (NOT ({gone}) OR coalesce(s.{HAD}, false)) THEN 'insert' END"
        )
    columns = [f"{_value(shape, i, c, net.partial, met)} AS {quoted(c)}" for i, c in enumerate(shape.columns)]
    statement = (
        f"SELECT {action} AS {ACTION}, t.{AT}, {', '.join(columns)}, {_struct(shape, gone)} AS {GDDL} "
        f"FROM ({rows}) s LEFT JOIN stored t ON {_same(shape, 't', 's')}"
    )
    return query(f"SELECT * FROM ({statement}) WHERE {ACTION} IS NOT NULL", {"net": net.rows, **known.relations})


def _same(shape: Shape, a: str, b: str) -> str:
    return " AND ".join(f"{a}.{quoted(k)} = {b}.{quoted(k)}" for k in shape.keys)


def _alive(rows: str, shape: Shape) -> str:
    """Drop net changes that a tombstone beats; an equal one is the same delete, or decided by the tie policy.

    Under soft deletes a beaten change becomes the deleted row that it would be, had it come in time.
    """
    order = _order(shape, _grave_forced(shape))
    dead = (
        f"SELECT {listed(shape.keys)}, max({order}) AS dead, arg_max({GDDL}, {order}) AS grave FROM graves GROUP BY ALL"
    )
    beaten = f"(coalesce(d.dead > n.{ORDER}, false) AND NOT n.{REWORKED})"
    joined = f"FROM ({rows}) n LEFT JOIN ({dead}) d ON {_same(shape, 'd', 'n')}"
    if shape.spec.delete == "hard":
        return f"SELECT n.* {joined} WHERE NOT {beaten}"
    changed = {GDDL: "d.grave", ORDER: "d.dead", OP: "'D'"}
    swapped = ", ".join(f"CASE WHEN {beaten} THEN {v} ELSE n.{c} END AS {c}" for c, v in changed.items())
    return f"SELECT n.* EXCLUDE ({', '.join(changed)}), {swapped} {joined}"


def _value(shape: Shape, index: int, column: str, partial: bool, met: str) -> str:
    """What a matched row's column becomes; of a new row its own."""
    new, old = f"s.{quoted(column)}", f"t.{quoted(column)}"
    if not partial or column in shape.keys:
        return new
    outlived = f"t.{GDDL}.generation < s.{GDDL}.generation"
    if shape.spec.delete == "soft":
        outlived = f"({outlived} OR coalesce(t.{GDDL}.deleted, false))"
    whole = f"(s.{FRESH} AND (s.{OP} <> 'D' OR coalesce(s.{HAD}, false)))"
    taken = f"{whole} OR coalesce(s.{carried_name(index)}, false) OR ({outlived} AND s.{OP} <> 'D')"
    return f"CASE WHEN NOT ({met}) OR {taken} THEN {new} ELSE {old} END"


def _struct(shape: Shape, gone: str) -> str:
    struct = struct_of(shape, f"s.{GDDL}")
    return struct if shape.spec.delete == "hard" else f"{struct[:-1]}, deleted: {gone}}}"
