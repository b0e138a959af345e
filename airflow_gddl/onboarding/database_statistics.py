"""Rows, sizes and changes from a database's statistics, without table scans."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

MOST_COUNTED = 64 * 1024**2
"""Maximum size in bytes of a table whose rows are counted where there are no statistics."""
_COUNTED_TOGETHER = 64
"""In one statement: thousands of tables with a round trip each would take minutes."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of one table; null: not known.

    Attributes:
        counter: rows inserted, updated and deleted since `since`.
        changes: the same without the initial load, as far as known.
        since, at: seconds since the epoch.
        is_own: false for a part of another table, and for a table that another server has.
        broken: invalid indexes, whose creation failed or whose parts are missing.
    """

    rows: int | None = None
    size_bytes: int | None = None
    counter: int | None = None
    changes: int = 0
    since: float | None = None
    at: float | None = None
    is_own: bool = True
    broken: frozenset[str] = frozenset()


# A partitioned table has no rows of its own. `reltuples` is -1 until the table was analysed; then the counters of
# inserted and deleted rows give the number, if complete.
_POSTGRESQL = """
SELECT c.relname AS name, NOT c.relispartition AND c.relkind <> 'f' AS is_own,
  ARRAY(SELECT k.relname::text FROM pg_index i JOIN pg_class k ON k.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND NOT i.indisvalid) AS broken,
  CASE WHEN c.relkind = 'p' THEN parts.rows WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
  CASE WHEN c.relkind = 'p' THEN parts.bytes ELSE pg_table_size(c.oid) END AS size_bytes,
  coalesce(s.n_tup_ins, 0) AS inserted, coalesce(s.n_tup_upd, 0) AS updated, coalesce(s.n_tup_del, 0) AS deleted,
  coalesce(s.n_live_tup, 0) AS living,
  extract(epoch FROM d.stats_reset)::float AS since, extract(epoch FROM now())::float AS at
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_stat_all_tables s ON s.relid = c.oid
LEFT JOIN pg_stat_database d ON d.datname = current_database()
LEFT JOIN LATERAL (
  SELECT sum(pg_table_size(p.relid))::bigint AS bytes, sum(nullif(k.reltuples, -1))::bigint AS rows
  FROM pg_partition_tree(c.oid) p JOIN pg_class k ON k.oid = p.relid WHERE p.isleaf
) parts ON c.relkind = 'p'
WHERE n.nspname = :schema AND c.relkind IN ('r', 'p', 'f')
"""
_MYSQL = """
SELECT table_name AS name, table_rows AS found, data_length AS size_bytes
FROM information_schema.tables WHERE table_schema = :schema AND table_type = 'BASE TABLE'
"""
_MYSQL_CHANGES = """
SELECT object_name AS name, count_insert + count_update + count_delete AS counter,
  count_update + count_delete AS changes, unix_timestamp() AS at
FROM performance_schema.table_io_waits_summary_by_table
WHERE object_type = 'TABLE' AND object_schema = :schema
"""


def statistics(connection: Any, schema: str) -> Mapping[str, Statistics]:
    """By table; empty where this database's statistics are not known here."""
    found = _KNOWN.get(connection.dialect.name)
    return {} if found is None else found(connection, schema)


def with_rows(connection: Any, schema: str, found: Mapping[str, Statistics]) -> dict[str, Statistics]:
    """The same, by table, with rows counted where they are not known, few, and this user may read them."""
    unknown = [
        name for name, one in found.items() if one.is_own and one.rows is None and (one.size_bytes or 0) <= MOST_COUNTED
    ]
    counts: dict[str, int] = {}
    for start in range(0, len(unknown), _COUNTED_TOGETHER):
        counts |= _counted(connection, schema, unknown[start : start + _COUNTED_TOGETHER])
    return {name: replace(one, rows=counts.get(name, one.rows)) for name, one in found.items()}


def _counted(connection: Any, schema: str, names: Sequence[str]) -> dict[str, int]:
    """Rows by table; without those that it may not read, or whose count takes longer than a statement may."""
    import sqlalchemy as sa  # noqa: PLC0415 - needed only for reading a database

    tables = [sa.table(name, schema=schema) for name in names]
    each: list[Any] = [
        sa.select(sa.literal_column(str(i)), sa.func.count()).select_from(one) for i, one in enumerate(tables)
    ]
    try:
        with connection.begin_nested():
            return {names[int(i)]: int(rows) for i, rows in connection.execute(sa.union_all(*each))}
    except sa.exc.DBAPIError as error:
        if error.connection_invalidated:
            raise
    if len(names) == 1:
        return {}
    half = len(names) // 2
    return _counted(connection, schema, names[:half]) | _counted(connection, schema, names[half:])


def _postgresql(connection: Any, schema: str) -> dict[str, Statistics]:
    return {
        row.name: Statistics(
            rows=row.rows,
            size_bytes=row.size_bytes,
            counter=row.inserted + row.updated + row.deleted,
            changes=_later_changes(row.inserted, row.updated + row.deleted, row.living),
            since=row.since,
            at=row.at,
            is_own=row.is_own,
            broken=frozenset(row.broken),
        )
        for row in _rows(connection, _POSTGRESQL, schema)
    }


def _later_changes(inserted: int, others: int, living: int) -> int:
    """Existing rows may come from the initial load; they only show that the table is in use."""
    return others + max(0, inserted - living) or min(inserted, 1)


def _mysql(connection: Any, schema: str) -> dict[str, Statistics]:
    changes = {row.name: row for row in _rows_or_none(connection, _MYSQL_CHANGES, schema)}
    return {
        row.name: Statistics(
            rows=row.found,
            size_bytes=row.size_bytes,
            counter=None if row.name not in changes else int(changes[row.name].counter),
            changes=0 if row.name not in changes else int(changes[row.name].changes),
            at=None if row.name not in changes else float(changes[row.name].at),
        )
        for row in _rows(connection, _MYSQL, schema)
    }


def _rows(connection: Any, query: str, schema: str) -> list[Any]:
    import sqlalchemy as sa  # noqa: PLC0415 - needed only for reading a database

    return list(connection.execute(sa.text(query), {"schema": schema}))


def _rows_or_none(connection: Any, query: str, schema: str) -> list[Any]:
    """Empty where the performance schema is disabled, or not accessible."""
    import sqlalchemy as sa  # noqa: PLC0415 - imported when needed

    try:
        return _rows(connection, query, schema)
    except sa.exc.DBAPIError:
        connection.rollback()
        return []


_KNOWN: Mapping[str, Callable[[Any, str], dict[str, Statistics]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}
