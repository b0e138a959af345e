"""Changes that arrived before, and ties (docs/semantics.md, section 4)."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from spark_jobs.engines.delta_rs.order import types_of
from spark_jobs.engines.delta_rs.sql import listed, packed, query, quoted
from spark_jobs.engines.delta_rs.value_text import MILLIS, json_writer, object_json
from spark_jobs.engines.shape import GDDL, Shape

SAMPLE = 5


@dataclass(frozen=True)
class Ties:
    """Changes that share key and sequence with a different one: how many, and some keys."""

    count: int
    sample: tuple[str, ...]


def _identity(shape: Shape, of: str) -> str:
    """What two deliveries of one change share, their content included."""
    gddl = f"{of}.{GDDL}"
    load = f"CASE WHEN {gddl}.op = 'R' THEN {gddl}.generation END"
    return f"{{g: {load}, s: {gddl}.sequence, o: {gddl}.op, c: {packed(shape.content, of)}}}"


def distinct_in_batch(rows: pa.Table, shape: Shape) -> pa.Table:
    """The batch with each change once, its first delivery. Full-load rows of a keyless table are all kept."""
    window = f"PARTITION BY {_identity(shape, 'a')} ORDER BY a.{GDDL}.position"
    every = "" if shape.keys else f" OR a.{GDDL}.op = 'R'"
    return query(f"SELECT * FROM a QUALIFY row_number() OVER ({window}) = 1{every}", {"a": rows})


def not_yet_stored(rows: pa.Table, changes: pa.Table, shape: Shape) -> pa.Table:
    """The batch without changes that the change table holds already (`changes`: narrowed to what can match)."""
    if not changes.num_rows or not rows.num_rows:
        return rows
    same = [f"{_identity(shape, 'a')} IS NOT DISTINCT FROM {_identity(shape, 'b')}"]
    same += [f"a.{quoted(k)} = b.{quoted(k)}" for k in shape.keys]
    same += [] if shape.keys else [f"a.{GDDL}.op <> 'R'"]
    where = " AND ".join(same)
    return query(f"SELECT * FROM a WHERE NOT EXISTS (SELECT 1 FROM b WHERE {where})", {"a": rows, "b": changes})


def ties(fresh: pa.Table, changes: pa.Table | None, shape: Shape) -> Ties:
    """Ties among `fresh` changes, and between them and stored ones (`changes`; null: none can match)."""
    keys = listed(shape.keys)
    column = f"{keys}, {GDDL}.sequence AS s, CASE WHEN {GDDL}.op = 'R' THEN {GDDL}.generation END AS g"
    rows = f"SELECT {column}, 1 AS n FROM a"
    relations = {"a": fresh}
    if changes is not None:
        rows += f" UNION ALL SELECT {column}, 0 AS n FROM b"
        relations["b"] = changes
    groups = f"SELECT {keys}, sum(n) AS mine, count(*) AS total FROM ({rows}) GROUP BY {keys}, s, g"
    tied = query(f"SELECT * FROM ({groups}) WHERE mine > 0 AND total > 1", relations)
    return Ties(int(sum(tied.column("mine").to_pylist())), sample_keys(tied, shape)) if tied.num_rows else Ties(0, ())


def sample_keys(rows: pa.Table, shape: Shape) -> tuple[str, ...]:
    """A few keys as JSON objects, least first."""
    keys = rows.select(shape.keys).sort_by([(k, "ascending") for k in shape.keys]).slice(0, SAMPLE)
    kinds = types_of(shape)
    writers = {k: json_writer(kinds[k], times=MILLIS) for k in shape.keys}
    return tuple(object_json(((k, row[k], w) for k, w in writers.items()), nulls=False) for row in keys.to_pylist())
