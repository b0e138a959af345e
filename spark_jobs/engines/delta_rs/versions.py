"""The history table: versions of the touched keys derived anew, and only what differs written."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from spark_jobs.engines.delta_rs.arrays import by_name
from spark_jobs.engines.delta_rs.history import versions
from spark_jobs.engines.delta_rs.intake import change_schema
from spark_jobs.engines.delta_rs.merge import ACTION, AT
from spark_jobs.engines.delta_rs.rewrite import rewritten
from spark_jobs.engines.delta_rs.site import Found, Site, find, matching
from spark_jobs.engines.delta_rs.sql import listed, packed, query, quoted
from spark_jobs.engines.delta_rs.tables import DataFile
from spark_jobs.engines.shape import GDDL
from spark_jobs.engines.table_columns import END, START
from spark_jobs.engines.transactions import HISTORY

_SMALL_FILE = 4 * 1024**2


def changes_of_keys(site: Site, keys: pa.Table, generation: int | None = None) -> pa.Table:
    """All changes of these keys, under their new name or, by before image, their old one; perhaps some others.

    Args:
        generation: only changes of this one; null: of all.
    """
    snapshot, shape = site.tables.existing(site.layout.changes), site.shape
    found = []
    for file in snapshot.files:
        rows = site.tables.read_files(snapshot, [file])
        at = matching(rows, keys, shape.keys)
        if shape.before_of_key:
            at = pc.unique(pa.chunked_array([at, matching(_under_old_keys(rows, site), keys, shape.keys)]))
        mine = rows.take(at)
        if generation is not None:
            mine = mine.filter(pc.equal(pc.struct_field(mine.column(GDDL), "generation"), generation))
        found.append(mine)
    rows = pa.concat_tables(found) if found else snapshot.schema.arrow.empty_table()
    return by_name(rows, change_schema(shape))


def _under_old_keys(rows: pa.Table, site: Site) -> pa.Table:
    columns = {}
    for key in site.shape.keys:
        before = site.shape.before_of_key.get(key)
        own = rows.column(key)
        has = before is not None and before in rows.column_names
        columns[key] = pc.coalesce(rows.column(before).cast(own.type), own) if has else own
    return pa.table(columns)


def update_history(site: Site, touched: pa.Table | None, floors: Sequence[str | None]) -> None:
    """Make the history of `touched` keys (null: of all) equal to what their changes tell."""
    path, shape = site.layout.history, site.shape
    if site.has_made(path, HISTORY):
        return
    snapshot = site.tables.existing(path)
    if touched is None:
        rows = by_name(site.tables.read(site.layout.changes), change_schema(shape))
        derived = versions(rows, shape, floors)
        found = _all(site)
    else:
        derived = _only(versions(changes_of_keys(site, touched), shape, floors), touched, site)
        found = find(site.tables, snapshot, touched, shape.keys)
    numbered = found.rows.append_column(AT, pa.array(range(found.rows.num_rows), pa.int64()))
    relations = {"derived": derived, "stored": numbered, **({} if touched is None else {"touched": touched})}
    stale = query(_stale(site, among_touched=touched is not None), relations)
    fresh = by_name(query(_fresh(site), relations), snapshot.schema.arrow)
    added, removed = rewritten(found, stale, snapshot.schema.arrow)
    if fresh.num_rows:
        _place(site, fresh, added, removed)
    site.tables.commit(path, site.write(HISTORY, [a for a in added if a.num_rows], removed))


def _only(derived: pa.Table, touched: pa.Table, site: Site) -> pa.Table:
    on = listed(site.shape.keys)
    return query(f"SELECT * FROM derived SEMI JOIN touched USING ({on})", {"derived": derived, "touched": touched})


def _all(site: Site) -> Found:
    snapshot = site.tables.existing(site.layout.history)
    files = snapshot.files
    parts = [site.tables.read_files(snapshot, [f]) for f in files]
    rows = pa.concat_tables(parts) if parts else snapshot.schema.arrow.empty_table()
    numbers = [pa.repeat(pa.scalar(i, pa.int32()), p.num_rows) for i, p in enumerate(parts)]
    places = [pa.array(range(p.num_rows), pa.int64()) for p in parts]
    at = pa.table({"file": pa.chunked_array(numbers, pa.int32()), "row": pa.chunked_array(places, pa.int64())})
    return Found(rows=rows, at=at, files=files, whole=dict(enumerate(parts)))


def _whole(site: Site, of: str) -> str:
    """A version as one comparable value."""
    return packed([*site.shape.columns, GDDL, START, END], of)


def _equal(site: Site) -> str:
    same = " AND ".join(f"d.{quoted(k)} = s.{quoted(k)}" for k in site.shape.keys)
    return f"{same} AND {_whole(site, 'd')} IS NOT DISTINCT FROM {_whole(site, 's')}"


def _stale(site: Site, *, among_touched: bool) -> str:
    mine = f"SELECT * FROM stored SEMI JOIN touched USING ({listed(site.shape.keys)})" if among_touched else "stored"
    rows = f"({mine})" if among_touched else mine
    return (
        f"SELECT 'delete' AS {ACTION}, s.{AT} FROM {rows} s "
        f"WHERE NOT EXISTS (SELECT 1 FROM derived d WHERE {_equal(site)})"
    )


def _fresh(site: Site) -> str:
    return f"SELECT * FROM derived d WHERE NOT EXISTS (SELECT 1 FROM stored s WHERE {_equal(site)})"


def _place(site: Site, fresh: pa.Table, added: list[pa.Table], removed: list[DataFile]) -> None:
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
