"""Does the replica hold what its change table folds to? Compared value by value."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.batch_reader import change_schema
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.figures import BUCKETS, Verdict
from spark_jobs.rules.fold import fold, net
from spark_jobs.rules.order import OP, events, types_of
from spark_jobs.rules.sql import listed, packed, query, quoted
from spark_jobs.rules.value_text import MILLIS, json_writer, object_json
from spark_jobs.table.table_schema import GDDL, TableSchema


def verify(replica: pa.Table, changes: pa.Table, table_schema: TableSchema, swept: int, limit: int) -> Verdict:
    """
    Args:
        swept: rows of generations before this one have vanished.
    """
    live = replica
    if table_schema.spec.delete == "soft" and table_schema.keys:
        gone = pc.fill_null(pc.struct_field(replica.column(GDDL), "deleted"), False)
        live = replica.filter(pc.invert(gone))
    changes = by_name(changes, change_schema(table_schema))
    changes = changes.filter(pc.greater_equal(pc.struct_field(changes.column(GDDL), "generation"), swept))
    wanted = expected_state(changes, table_schema) if table_schema.keys else changes.select(table_schema.columns)
    different, keys = _compare(live.select(table_schema.columns), wanted, table_schema, limit)
    return Verdict(rows=live.num_rows, expected_rows=wanted.num_rows, buckets_different=different, keys=keys)


def expected_state(changes: pa.Table, table_schema: TableSchema) -> pa.Table:
    """Rows that the replica should have: each key's fold in its highest generation, deleted ones left out."""
    latest = f"max({GDDL}.generation) OVER (PARTITION BY {listed(table_schema.keys)})"
    happened = f"SELECT * FROM ({events('changes', table_schema)}) QUALIFY {GDDL}.generation = {latest}"
    folded = fold(happened, table_schema) if table_schema.partial else net(happened, table_schema)
    return query(f"SELECT {listed(table_schema.columns)} FROM ({folded}) WHERE {OP} <> 'D'", {"changes": changes})


def _compare(
    live: pa.Table, wanted: pa.Table, table_schema: TableSchema, limit: int
) -> tuple[int, tuple[dict[str, str], ...]]:
    """Buckets of keys that differ, and some of these keys."""
    by = table_schema.keys or table_schema.columns
    row = packed(table_schema.columns)
    counted = "SELECT {keys}, {row} AS w, count(*) AS n FROM {side} GROUP BY ALL"
    a, b = (counted.format(keys=listed(by), row=row, side=side) for side in ("live", "wanted"))
    same = " AND ".join(f"a.{quoted(c)} IS NOT DISTINCT FROM b.{quoted(c)}" for c in by)
    picked = ", ".join(f"coalesce(a.{quoted(c)}, b.{quoted(c)}) AS {quoted(c)}" for c in by)
    bucket = f"hash({packed(by)}) % {BUCKETS}"
    state = "CASE WHEN a.n IS NULL THEN 'missing' WHEN b.n IS NULL THEN 'extra' ELSE 'different' END"
    statement = (
        f"SELECT *, {bucket} AS bucket FROM (SELECT {picked}, {state} AS state FROM ({a}) a FULL JOIN ({b}) b "
        f"ON {same} WHERE a.n IS DISTINCT FROM b.n OR a.w IS DISTINCT FROM b.w)"
    )
    found = query(statement, {"live": live, "wanted": wanted})
    different = len(set(found.column("bucket").to_pylist()))
    if not table_schema.keys:
        return different, ()
    kinds = types_of(table_schema)
    writers = {k: json_writer(kinds[k], times=MILLIS) for k in table_schema.keys}
    told = sorted(
        (object_json(((k, r[k], w) for k, w in writers.items()), nulls=False), r["state"])
        for r in found.select([*table_schema.keys, "state"]).to_pylist()
    )
    return different, tuple({"key": key, "state": state} for key, state in told[:limit])
