"""The order of a key's changes as a comparable struct, as SQL (docs/semantics.md, sections 3 and 6)."""

from __future__ import annotations

from spark_jobs.plan.types import ScalarType, SqlType, parse_type
from spark_jobs.rules.sql import listed, null, quoted
from spark_jobs.table.table_schema import GDDL, TableSchema

OP, ORDER, FORCED, MOVED, SEQUENCE = (f"{GDDL}__{n}" for n in ("op", "order", "forced", "moved", "sequence"))


def order_of(table_schema: TableSchema, gddl: str, sequence: str, forced: str = "false") -> str:
    """Struct that grows with the order of changes.

    A missing sequence is lowest; inside structs DuckDB sorts nulls last, so a flag before it says whether there is one.

    Args:
        gddl: SQL of a row's `_gddl`; `sequence`, `forced` of what counts as its sequence and as forced.
    """
    parts = [f"generation: {gddl}.generation", f"known: {sequence} IS NOT NULL", f"sequence: {sequence}"]
    parts += [f"forced: coalesce({forced}, false)"] if table_schema.spec.force_update is not None else []
    if table_schema.spec.tie_break == "delete_wins":
        parts += [f"is_delete: {gddl}.op = 'D'", f"file: {gddl}.source_file", f'place: {gddl}."position"']
    else:
        parts += [f"batch: {gddl}.batch_id", f'place: {gddl}."position"']
    return "{" + ", ".join(parts) + "}"


def rank_of(gddl: str) -> str:
    """The part of `order_of` that the source decides: generation and sequence. Changes of one rank are tied."""
    return f"{{generation: {gddl}.generation, known: {gddl}.sequence IS NOT NULL, sequence: {gddl}.sequence}}"


def is_forced(table_schema: TableSchema, of: str = "") -> str:
    """Whether a change is to be applied whatever its sequence: a boolean that may come as text."""
    column = table_schema.spelled(table_schema.spec.force_update)
    return "false" if column is None else truth(f"{of}.{quoted(column)}" if of else quoted(column))


def truth(value: str) -> str:
    return f"coalesce(lower(trim(CAST({value} AS VARCHAR))) IN ('t', 'true', 'y', 'yes', '1'), false)"


def struct_of(table_schema: TableSchema, gddl: str, **changed: str) -> str:
    """`_gddl` with some fields replaced."""
    fields = (f"{quoted(n)}: {changed.get(n, f'{gddl}.{quoted(n)}')}" for n, _ in table_schema.gddl_fields)
    return "{" + ", ".join(fields) + "}"


def types_of(table_schema: TableSchema) -> dict[str, SqlType]:
    """Columns of the replica and `_gddl` to their types."""
    kinds = {c.name: c.type for c in table_schema.data}
    return {
        **{c: kinds.get(c, ScalarType("string")) for c in table_schema.columns},
        GDDL: parse_type(table_schema.gddl_type),
    }


def events(changes: str, table_schema: TableSchema) -> str:
    """Changes with their working columns, and a delete of the old key for each update of a key.

    Args:
        changes: a relation with the columns of the change table.

    Returns:
        a query: the replica's columns, `_gddl`, op, moved (the update changed its key), sequence (effective), forced,
        order.
    """
    kept = f"{listed(table_schema.columns)}, {GDDL}, {GDDL}.op AS {OP}"
    if not table_schema.before_of_key:
        return _ordered(f"SELECT {kept}, false AS {MOVED} FROM {changes}", table_schema)
    pairs = [(quoted(k), quoted(b)) for k, b in table_schema.before_of_key.items()]
    differs = " OR ".join(f"coalesce({before}, {key}) <> {key}" for key, before in pairs)
    moved = f"({GDDL}.op = 'U' AND ({differs}))"
    rows = f"SELECT {kept}, {moved} AS {MOVED} FROM {changes}"
    return _ordered(
        f"{rows} UNION ALL BY NAME SELECT {_old_key(table_schema)} FROM {changes} WHERE {moved}", table_schema
    )


def _old_key(table_schema: TableSchema) -> str:
    """The delete of the old key that each update of a key implies, at the same sequence."""
    columns, kinds = [], types_of(table_schema)
    for column in table_schema.columns:
        own = quoted(column)
        if column in table_schema.before_of_key:
            columns.append(f"coalesce({quoted(table_schema.before_of_key[column])}, {own}) AS {own}")
        elif column in table_schema.keys or column == table_schema.spelled(table_schema.spec.force_update):
            columns.append(own)
        else:
            columns.append(f"{null(kinds[column])} AS {own}")
    struct = struct_of(table_schema, GDDL, op="'D'")
    return f"{', '.join(columns)}, {struct} AS {GDDL}, 'D' AS {OP}, false AS {MOVED}"


def _ordered(rows: str, table_schema: TableSchema) -> str:
    if table_schema.spec.force_update is None:
        order = order_of(table_schema, GDDL, f"{GDDL}.sequence")
        return f"SELECT *, false AS {FORCED}, {GDDL}.sequence AS {SEQUENCE}, {order} AS {ORDER} FROM ({rows})"
    window = (
        f"PARTITION BY {listed(table_schema.keys)}, {GDDL}.generation ORDER BY {GDDL}.batch_id, {GDDL}.position "
        "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
    )
    flagged = f"SELECT *, {is_forced(table_schema)} AND {OP} <> 'R' AS {FORCED} FROM ({rows})"
    sequence = f"CASE WHEN {FORCED} THEN max({GDDL}.sequence) OVER ({window}) ELSE {GDDL}.sequence END"
    order = order_of(table_schema, GDDL, SEQUENCE, FORCED)
    return f"SELECT *, {order} AS {ORDER} FROM (SELECT *, {sequence} AS {SEQUENCE} FROM ({flagged}))"
