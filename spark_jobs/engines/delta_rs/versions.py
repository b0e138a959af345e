"""The history table: versions of the touched keys derived anew, and only what differs written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.batch_context import BatchContext, KeyMatches, find, matching
from spark_jobs.engines.delta_rs.batch_reader import change_schema
from spark_jobs.engines.delta_rs.rewrite import rewritten
from spark_jobs.engines.delta_rs.tables import DataFile
from spark_jobs.engines.table_columns import END, START
from spark_jobs.engines.transactions import HISTORY
from spark_jobs.rules.arrays import by_name
from spark_jobs.rules.history import versions
from spark_jobs.rules.merge import ACTION, AT
from spark_jobs.rules.sql import listed, packed, query, quoted
from spark_jobs.table.table_schema import GDDL

_SMALL_FILE = 4 * 1024**2


def changes_of_keys(site: BatchContext, keys: pa.Table, generation: int | None = None) -> pa.Table:
    """All changes of these keys, under their new name or, by before image, their old one; perhaps some others.

    Args:
        generation: only changes of this one; null: of all.
    """
    snapshot, table_schema = site.tables.existing(site.layout.changes), site.table_schema
    found = []
    for file in snapshot.files:
        rows = site.tables.read_files(snapshot, [file])
        at = matching(rows, keys, table_schema.keys)
        if table_schema.before_of_key:
            at = pc.unique(pa.chunked_array([at, matching(_under_old_keys(rows, site), keys, table_schema.keys)]))
        mine = rows.take(at)
        if generation is not None:
            mine = mine.filter(pc.equal(pc.struct_field(mine.column(GDDL), "generation"), generation))
        found.append(mine)
    rows = pa.concat_tables(found) if found else snapshot.schema.arrow.empty_table()
    return by_name(rows, change_schema(table_schema))


def _under_old_keys(rows: pa.Table, site: BatchContext) -> pa.Table:
    columns = {}
    for key in site.table_schema.keys:
        before = site.table_schema.before_of_key.get(key)
        own = rows.column(key)
        has = before is not None and before in rows.column_names
        columns[key] = pc.coalesce(rows.column(before).cast(own.type), own) if has else own
    return pa.table(columns)


def update_history(
    site: BatchContext, touched: pa.Table | None, generation_low_watermarks: Sequence[str | None]
) -> None:
    """Make the history of `touched` keys (null: of all) equal to what their changes tell."""
    path, table_schema = site.layout.history, site.table_schema
    if site.has_made(path, HISTORY):
        return
    snapshot = site.tables.existing(path)
    if touched is None:
        rows = by_name(site.tables.read(site.layout.changes), change_schema(table_schema))
        derived = versions(rows, table_schema, generation_low_watermarks)
        found = _all(site)
    else:
        derived = _only(
            versions(changes_of_keys(site, touched), table_schema, generation_low_watermarks), touched, site
        )
        found = find(site.tables, snapshot, touched, table_schema.keys)
    numbered = found.rows.append_column(AT, pa.array(range(found.rows.num_rows), pa.int64()))
    relations = {"derived": derived, "stored": numbered, **({} if touched is None else {"touched": touched})}
    stale = query(_stale(site, among_touched=touched is not None), relations)
    fresh = by_name(query(_fresh(site), relations), snapshot.schema.arrow)
    added, removed = rewritten(found, stale, snapshot.schema.arrow)
    if fresh.num_rows:
        _place(site, fresh, added, removed)
    site.tables.commit(path, site.write(HISTORY, [a for a in added if a.num_rows], removed))


def _only(derived: pa.Table, touched: pa.Table, site: BatchContext) -> pa.Table:
    on = listed(site.table_schema.keys)
    return query(f"SELECT * FROM derived SEMI JOIN touched USING ({on})", {"derived": derived, "touched": touched})


def _all(site: BatchContext) -> KeyMatches:
    snapshot = site.tables.existing(site.layout.history)
    files = snapshot.files
    parts = [site.tables.read_files(snapshot, [f]) for f in files]
    rows = pa.concat_tables(parts) if parts else snapshot.schema.arrow.empty_table()
    numbers = [pa.repeat(pa.scalar(i, pa.int32()), p.num_rows) for i, p in enumerate(parts)]
    places = [pa.array(range(p.num_rows), pa.int64()) for p in parts]
    at = pa.table({"file": pa.chunked_array(numbers, pa.int32()), "row": pa.chunked_array(places, pa.int64())})
    return KeyMatches(rows=rows, at=at, files=files, whole=dict(enumerate(parts)))


def _whole(site: BatchContext, of: str) -> str:
    """A version as one comparable value."""
    return packed([*site.table_schema.columns, GDDL, START, END], of)


def _equal(site: BatchContext) -> str:
    same = " AND ".join(f"d.{quoted(k)} = s.{quoted(k)}" for k in site.table_schema.keys)
    return f"{same} AND {_whole(site, 'd')} IS NOT DISTINCT FROM {_whole(site, 's')}"


def _stale(site: BatchContext, *, among_touched: bool) -> str:
    mine = (
        f"SELECT * FROM stored SEMI JOIN touched USING ({listed(site.table_schema.keys)})"
        if among_touched
        else "stored"
    )
    rows = f"({mine})" if among_touched else mine
    return (
        f"SELECT 'delete' AS {ACTION}, s.{AT} FROM {rows} s "
        f"WHERE NOT EXISTS (SELECT 1 FROM derived d WHERE {_equal(site)})"
    )


def _fresh(site: BatchContext) -> str:
    return f"SELECT * FROM derived d WHERE NOT EXISTS (SELECT 1 FROM stored s WHERE {_equal(site)})"


def _place(site: BatchContext, fresh: pa.Table, added: list[pa.Table], removed: list[DataFile]) -> None:
    """Put new rows into a file that is written anyway, else into the smallest one where that is small."""
    if added:
        added[-1] = pa.concat_tables([added[-1], fresh])
        return
    snapshot = site.tables.existing(site.layout.history)
    smallest = min(snapshot.files, key=lambda f: f.size, default=None)
    if smallest is not None and smallest.size <= _SMALL_FILE:
        removed.append(smallest)
        fresh = pa.concat_tables([site.tables.read_files(snapshot, [smallest]), fresh])
    added.append(fresh)
