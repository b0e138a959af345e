"""Changes that arrived before, and ties (docs/semantics.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.rules.order import types_of
from spark_jobs.rules.sql import listed, packed, query, quoted
from spark_jobs.rules.value_text import MILLIS, json_writer, object_json
from spark_jobs.table.table_schema import GDDL, TableSchema

SAMPLE = 5


@dataclass(frozen=True)
class Ties:
    """Changes that share key and sequence with a different one: how many, and some keys."""

    count: int
    sample: tuple[str, ...]


def _identity(table_schema: TableSchema, of: str) -> str:
    """What two deliveries of one change share, their content included."""
    gddl = f"{of}.{GDDL}"
    load = f"CASE WHEN {gddl}.op = 'R' THEN {gddl}.generation END"
    return f"{{g: {load}, s: {gddl}.sequence, o: {gddl}.op, c: {packed(table_schema.content, of)}}}"


def distinct_in_batch(rows: pa.Table, table_schema: TableSchema) -> pa.Table:
    """The batch with each change once, its first delivery. Full-load rows of a keyless table are all kept."""
    window = f"PARTITION BY {_identity(table_schema, 'a')} ORDER BY a.{GDDL}.position"
    every = "" if table_schema.keys else f" OR a.{GDDL}.op = 'R'"
    return query(f"SELECT * FROM a QUALIFY row_number() OVER ({window}) = 1{every}", {"a": rows})


def not_yet_stored(rows: pa.Table, changes: pa.Table, table_schema: TableSchema) -> pa.Table:
    """The batch without changes that the change table holds already (`changes`: narrowed to what can match)."""
    if not changes.num_rows or not rows.num_rows:
        return rows
    same = [f"{_identity(table_schema, 'a')} IS NOT DISTINCT FROM {_identity(table_schema, 'b')}"]
    same += [f"a.{quoted(k)} = b.{quoted(k)}" for k in table_schema.keys]
    same += [] if table_schema.keys else [f"a.{GDDL}.op <> 'R'"]
    where = " AND ".join(same)
    return query(f"SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {where})", {"a": rows, "b": changes})


def ties(fresh: pa.Table, changes: pa.Table | None, table_schema: TableSchema) -> Ties:
    """Ties among `fresh` changes, and between them and stored ones (`changes`; null: none can match)."""
    keys = listed(table_schema.keys)
    column = f"{keys}, {GDDL}.sequence AS s, CASE WHEN {GDDL}.op = 'R' THEN {GDDL}.generation END AS g"
    rows = f"SELECT {column}, 1 AS n FROM a"
    relations = {"a": fresh}
    if changes is not None:
        rows += f" UNION ALL SELECT {column}, 0 AS n FROM b"
        relations["b"] = changes
    groups = f"SELECT {keys}, sum(n) AS mine, count(*) AS total FROM ({rows}) GROUP BY {keys}, s, g"
    tied = query(f"SELECT * FROM ({groups}) WHERE mine > 0 AND total > 1", relations)
    return (
        Ties(int(sum(tied.column("mine").to_pylist())), sample_keys(tied, table_schema))
        if tied.num_rows
        else Ties(0, ())
    )


def sample_keys(rows: pa.Table, table_schema: TableSchema) -> tuple[str, ...]:
    """A few keys as JSON objects, least first."""
    keys = rows.select(table_schema.keys).sort_by([(k, "ascending") for k in table_schema.keys]).slice(0, SAMPLE)
    kinds = types_of(table_schema)
    writers = {k: json_writer(kinds[k], times=MILLIS) for k in table_schema.keys}
    return tuple(object_json(((k, row[k], w) for k, w in writers.items()), nulls=False) for row in keys.to_pylist())
