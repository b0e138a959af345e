"""SCD type 2: the versions of a key from all its changes, as SQL (docs/semantics.md, section 9)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from decimal import Decimal

import pyarrow as pa

from spark_jobs.engines.table_columns import END, START
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.fold import carries, with_segment
from spark_jobs.rules.order import OP, ORDER, SEQUENCE, events, order_of, struct_of, types_of
from spark_jobs.rules.sql import listed, null, packed, query, quoted
from spark_jobs.rules.value_text import read_json
from spark_jobs.table.table_schema import GDDL, TableSchema

_RUN, _SEG = f"{GDDL}__run", f"{GDDL}__segment"
_UNBOUNDED = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"


def versions(changes: pa.Table, table_schema: TableSchema, generation_low_watermarks: Sequence[str | None]) -> pa.Table:
    """All versions of all keys in `changes`: the replica's columns, `_gddl`, `__start_at`, `__end_at`.

    Args:
        changes: every change of each key concerned.
        generation_low_watermarks: greatest sequence ingested before each generation, JSON text.
    """
    kind = parse_type(table_schema.sequence_type)
    values = [
        None if f is None else read_json(json.loads(f, parse_float=Decimal), kind) for f in generation_low_watermarks
    ]
    table = pa.table({
        "generation": pa.array(range(1, len(generation_low_watermarks) + 1), pa.int32()),
        "floor": pa.array(values, arrow_type(kind)),
    })  # fmt: skip
    return query(_versions(table_schema, len(generation_low_watermarks)), {"changes": changes, "floors": table})


def _versions(table_schema: TableSchema, generations: int) -> str:
    keys, by_key = listed(table_schema.keys), f"PARTITION BY {listed(table_schema.keys)} ORDER BY {ORDER}"
    tracked = "{" + ", ".join(["one: 1", *(f"{quoted(c)}: {quoted(c)}" for c in tracked_columns(table_schema))]) + "}"
    state = f"CASE WHEN {OP} <> 'D' THEN {tracked} END"
    others = [c for c in table_schema.columns if c not in table_schema.keys]
    numbered = (
        f"SELECT *, sum(CAST(differs AS INT)) OVER ({by_key} {_UNBOUNDED}) AS {_RUN} FROM ("
        f"SELECT *, lag({state}) OVER ({by_key}) IS DISTINCT FROM {state} AS differs "
        f"FROM ({_states(table_schema, generations)}))"
    )
    runs = (
        f"SELECT {keys}, {_RUN}, arg_max({packed([*others, GDDL, OP])}, {ORDER}) AS l, "
        f"arg_min({{v: {SEQUENCE}}}, {ORDER}) AS s FROM ({numbered}) GROUP BY {keys}, {_RUN}"
    )
    ended = f"SELECT *, lead(s) OVER (PARTITION BY {keys} ORDER BY {_RUN}) AS e FROM ({runs})"
    columns = [quoted(c) if c in table_schema.keys else f"l.{quoted(c)} AS {quoted(c)}" for c in table_schema.columns]
    return (
        f"SELECT {', '.join(columns)}, l.{GDDL} AS {GDDL}, s.v AS {START}, e.v AS {END} FROM ({ended}) "
        f"WHERE l.{OP} <> 'D'"
    )


def tracked_columns(table_schema: TableSchema) -> list[str]:
    untracked = {
        c.lower()
        for c in (
            *table_schema.sequence,
            *table_schema.technical,
            *table_schema.spec.track_history_except,
            *table_schema.keys,
        )
    }
    return [c for c in table_schema.columns if c.lower() not in untracked and not c.lower().startswith("ar_h_")]


def _with_vanishing(table_schema: TableSchema, generations: int) -> str:
    """Give every change its effective sequence, and end each key at every later generation until it comes again."""
    columns = f"{listed(table_schema.columns)}, {GDDL}, {OP}, {ORDER}"
    floor = f"greatest(h.{SEQUENCE}, f.floor)"
    happened = (
        f"SELECT h.* EXCLUDE ({SEQUENCE}), {floor} AS {SEQUENCE} FROM ({events('changes', table_schema)}) h "
        f"LEFT JOIN floors f ON f.generation = h.{GDDL}.generation"
    )
    rows = f"SELECT {columns}, {SEQUENCE} FROM happened"
    if generations < 2:
        return f"WITH happened AS ({happened}) {rows}"
    kinds = types_of(table_schema)
    others = [f"{null(kinds[c])} AS {quoted(c)}" for c in table_schema.columns if c not in table_schema.keys]
    sequence = null(parse_type(table_schema.sequence_type))
    gddl = struct_of(table_schema, "g", generation="f.generation", sequence=sequence, op="'D'")
    ended = (
        f"SELECT {', '.join([listed(table_schema.keys), *others])}, {gddl} AS {GDDL}, 'D' AS {OP}, "
        f"{_lowest(table_schema)} AS {ORDER}, f.floor AS {SEQUENCE} FROM floors f JOIN ("
        f"SELECT {listed(table_schema.keys)}, f.generation AS ended_at, arg_max({GDDL}, {ORDER}) AS g "
        f"FROM happened, floors f "
        f"WHERE {GDDL}.generation < f.generation AND f.generation > 1 GROUP BY ALL) o ON o.ended_at = f.generation"
    )
    return f"WITH happened AS ({happened}) {rows} UNION ALL BY NAME {ended}"


def _lowest(table_schema: TableSchema) -> str:
    """An order below every change of the generation, its full-load rows included: they know no sequence either."""
    nothing = struct_of(table_schema, "g", generation="f.generation", op="'R'", source_file="''", position="-1",
                        batch_id="''")  # fmt: skip
    return order_of(table_schema, f"({nothing})", null(parse_type(table_schema.sequence_type)))


def _states(table_schema: TableSchema, generations: int) -> str:
    """The row after each change, one per key and effective sequence (the last at it)."""
    keys = listed(table_schema.keys)
    rows = _with_vanishing(table_schema, generations)
    if table_schema.partial:
        running = f"PARTITION BY {keys}, {_SEG} ORDER BY {ORDER} {_UNBOUNDED}"
        columns = []
        for column in table_schema.columns:
            flag = f"({carries(table_schema, column)} AND {OP} <> 'D')"
            carried = f"last_value(CASE WHEN {flag} THEN {{v: {quoted(column)}}} END IGNORE NULLS) OVER ({running})"
            columns.append(quoted(column) if column in table_schema.keys else f"({carried}).v AS {quoted(column)}")
        rows = (
            f"SELECT {', '.join(columns)}, {GDDL}, {OP}, {SEQUENCE}, {ORDER} "
            f"FROM ({with_segment(f'SELECT * FROM ({rows})', table_schema, _SEG)})"
        )
    following = f"lead({{v: {SEQUENCE}}}) OVER (PARTITION BY {keys} ORDER BY {ORDER})"
    same = f"({following} IS NOT NULL AND ({following}).v IS NOT DISTINCT FROM {SEQUENCE})"
    return f"SELECT * FROM ({rows}) QUALIFY NOT {same}"
