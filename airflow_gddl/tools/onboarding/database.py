"""Facts of a live database through SQLAlchemy's inspector: keys, types; rows and sizes by its statistics."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from airflow_gddl.cli.source_database import SourceDatabase
from airflow_gddl.contract.codes import FIELD_VALUE, ONBOARD_SCHEMA_MISSING
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.row_checks import table_name_fault
from airflow_gddl.metadata.problems import looks_secret
from airflow_gddl.tools.onboarding.rules import DeclaredConstraints, KeyFact, Notice, SourceFacts, TableFacts

MOST_COUNTED = 64 * 1024**2
"""Maximum size in bytes of a table whose rows are counted where there are no statistics."""
_COUNTED_TOGETHER = 64
"""In one statement: thousands of tables with a round trip each would take minutes."""


@dataclass(frozen=True, kw_only=True)
class Statistics:
    """Statistics of one table; None: not known.

    Attributes:
        is_own: false for a part of another table, and for a table that another server has.
        broken: invalid indexes, whose creation failed or whose parts are missing.
    """

    rows: int | None = None
    size_bytes: int | None = None
    is_own: bool = True
    broken: frozenset[str] = frozenset()


# A partitioned table has no rows of its own. `reltuples` is -1 until the table was analysed.
_POSTGRESQL = """
SELECT c.relname AS name, NOT c.relispartition AND c.relkind <> 'f' AS is_own,
  ARRAY(SELECT k.relname::text FROM pg_index i JOIN pg_class k ON k.oid = i.indexrelid
    WHERE i.indrelid = c.oid AND NOT i.indisvalid) AS broken,
  CASE WHEN c.relkind = 'p' THEN parts.rows WHEN c.reltuples >= 0 THEN c.reltuples::bigint END AS rows,
  CASE WHEN c.relkind = 'p' THEN parts.bytes ELSE pg_table_size(c.oid) END AS size_bytes
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
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


def statistics(connection: Any, schema: str) -> Mapping[str, Statistics]:
    """By table; empty where this database's statistics are not known here."""
    query = _KNOWN.get(connection.dialect.name)
    return {} if query is None else query(connection, schema)


def with_rows(connection: Any, schema: str, statistics: Mapping[str, Statistics]) -> dict[str, Statistics]:
    """The same, by table, with rows counted where they are not known, few, and this user may read them."""
    unknown = [
        name
        for name, one in statistics.items()
        if one.is_own and one.rows is None and (one.size_bytes or 0) <= MOST_COUNTED
    ]
    counts: dict[str, int] = {}
    for start in range(0, len(unknown), _COUNTED_TOGETHER):
        counts |= _counted(connection, schema, unknown[start : start + _COUNTED_TOGETHER])
    return {name: replace(one, rows=counts.get(name, one.rows)) for name, one in statistics.items()}


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
            is_own=row.is_own,
            broken=frozenset(row.broken),
        )
        for row in _rows(connection, _POSTGRESQL, schema)
    }


def _mysql(connection: Any, schema: str) -> dict[str, Statistics]:
    return {
        row.name: Statistics(rows=row.found, size_bytes=row.size_bytes) for row in _rows(connection, _MYSQL, schema)
    }


def _rows(connection: Any, query: str, schema: str) -> list[Any]:
    import sqlalchemy as sa  # noqa: PLC0415 - needed only for reading a database

    return list(connection.execute(sa.text(query), {"schema": schema}))


_KNOWN: Mapping[str, Callable[[Any, str], dict[str, Statistics]]] = {
    "postgresql": _postgresql,
    "mysql": _mysql,
    "mariadb": _mysql,
}


_SYSTEM = frozenset({"information_schema", "mysql", "performance_schema", "sys", "pg_catalog", "pg_toast"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_LONGEST = 2000
"""Maximum length of a comment."""
_PARTIAL = ("postgresql_where", "sqlite_where", "mssql_where")


@dataclass(frozen=True, kw_only=True)
class NumberedColumns:
    """Columns of a table of PostgreSQL: number, as text, to name. A number stays when the column is renamed.

    Attributes:
        oid: of the table; one that is made again has another.
    """

    oid: int
    names: Mapping[str, str]


_NUMBERED = """
SELECT c.oid::bigint AS oid, n.nspname || '.' || c.relname AS place, a.attnum AS number, a.attname AS name
FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


class Database(SourceDatabase):
    """A source database whose tables are described."""

    def read(self, schemas: frozenset[str], names: frozenset[str]) -> SourceFacts:
        """Every table of these schemas; empty: of all but the system's own.

        Raises:
            MetadataError: `ONBOARD_SCHEMA_MISSING`.
            FatalError: `SOURCE_CONNECTION_MISSING`, `SOURCE_DRIVER_MISSING`, `SOURCE_REFUSED`.
            RetriableError: `SOURCE_UNREACHABLE`.
        """
        with self.connected() as (connection, inspector):
            wanted = self._schemas(inspector, schemas or frozenset(name.partition(".")[0] for name in names))
            tables = [table for schema in wanted for table in _tables(connection, inspector, schema)]
        mine = [table for table in tables if not names or table.table in names]
        return SourceFacts(
            tables=tuple(table for table in mine if not table_name_fault(table.table)),
            notices=tuple(_unfit(mine)),
        )

    def names(self) -> list[str]:
        """`schema.name` of every table of the schemas that are not the system's own.

        Raises:
            GddlError: as `read`.
        """
        with self.connected() as (_, inspector):
            schemas = self._schemas(inspector, frozenset())
            return [f"{schema}.{name}" for schema in schemas for name in sorted(inspector.get_table_names(schema))]

    def numbered_columns(self, tables: frozenset[str]) -> dict[str, NumberedColumns]:
        """By table, of those that are there; empty for another database than PostgreSQL, which shows no numbers.

        Raises:
            GddlError: as `read`.
        """
        oids: dict[str, int] = {}
        names: dict[str, dict[str, str]] = {}
        with self.connected() as (connection, _):
            if connection.dialect.name != "postgresql":
                return {}
            for schema in sorted({name.partition(".")[0] for name in tables}):
                for row in _rows(connection, _NUMBERED, schema):
                    if row.place in tables:
                        oids[row.place] = row.oid
                        names.setdefault(row.place, {})[str(row.number)] = row.name
        return {name: NumberedColumns(oid=oids[name], names=columns) for name, columns in names.items()}

    def _schemas(self, inspector: Any, requested: frozenset[str]) -> list[str]:
        there = [name for name in inspector.get_schema_names() if name not in _SYSTEM and not name.startswith("pg_")]
        if missing := sorted(requested - set(there)):
            remedy = f"schemas that this connection may see: {', '.join(there[:20])}"
            raise MetadataError(ONBOARD_SCHEMA_MISSING, f"the source has no schema {missing[0]!r}", remedy=remedy)
        return sorted(requested or there)


def _unfit(tables: Iterable[TableFacts]) -> Iterator[Notice]:
    for table in tables:
        if fault := table_name_fault(table.table):
            remedy = "rename it at the source, or by a rule of the CDC task; until then no row can load it"
            yield Notice(table=table.table, code=FIELD_VALUE, message=fault, remedy=remedy)


def _tables(connection: Any, inspector: Any, schema: str) -> Iterator[TableFacts]:
    """All tables of a schema, with one query for each catalog."""
    columns = inspector.get_multi_columns(schema=schema)
    keys = inspector.get_multi_pk_constraint(schema=schema)
    constraints = inspector.get_multi_unique_constraints(schema=schema)
    indexes = inspector.get_multi_indexes(schema=schema)
    comments = _table_comments(inspector, schema)
    foreign = _foreign_keys(inspector, schema)
    checks = _checks(inspector, schema)
    default = inspector.default_schema_name or schema
    figures = statistics(connection, schema)
    known = with_rows(connection, schema, {place[1]: figures.get(place[1], Statistics()) for place in columns})
    for place in sorted(columns):
        name = place[1]
        table_statistics = known[name]
        if not table_statistics.is_own:
            continue
        unique = [
            one
            for one in (*constraints.get(place, ()), *indexes.get(place, ()))
            if one.get("name") not in table_statistics.broken
        ]
        primary = keys.get(place)
        key = best_key(
            columns[place], None if primary and primary.get("name") in table_statistics.broken else primary, unique
        )
        declared = DeclaredConstraints(
            columns=columns[place], key=() if key is None else key.columns, checks=checks.get(place) or ()
        )
        yield TableFacts(
            table=f"{schema}.{name}",
            columns={column["name"]: str(column["type"]) for column in columns[place]},
            key=key,
            remarks=(text,) if (text := declared.comment()) else (),
            rows=table_statistics.rows,
            size_bytes=table_statistics.size_bytes,
            fields=descriptions(
                comments.get(place, {}).get("text"), columns[place], references(default, foreign.get(place) or ())
            ),
        )


def _table_comments(inspector: Any, schema: str) -> Mapping[Any, Mapping[str, Any]]:
    try:
        return dict(inspector.get_multi_table_comment(schema=schema))
    except NotImplementedError:  # a database without comments, such as SQLite
        return {}


def _foreign_keys(inspector: Any, schema: str) -> Mapping[Any, Sequence[Mapping[str, Any]]]:
    try:
        return dict(inspector.get_multi_foreign_keys(schema=schema))
    except (NotImplementedError, KeyError):  # a dialect without them; MySQL 8.0 with one into a hidden table
        return {}


def _checks(inspector: Any, schema: str) -> Mapping[Any, Sequence[Mapping[str, Any]]]:
    try:
        return dict(inspector.get_multi_check_constraints(schema=schema))
    except NotImplementedError:  # a dialect without them
        return {}


def references(default: str, foreign: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """What the foreign keys of a table say of its columns: `References shop.customers.id`, by column. Pure.

    Args:
        default: schema of tables that the database names without one.
        foreign: as SQLAlchemy's inspector shows them.
    """
    targets: dict[str, list[str]] = {}
    for key in foreign:
        table = f"{key.get('referred_schema') or default}.{key['referred_table']}"
        for column, other in zip(key["constrained_columns"], key["referred_columns"], strict=False):
            targets.setdefault(column, []).append(f"{table}.{other}")
    return {column: f"References {', '.join(sorted(set(names)))}" for column, names in targets.items()}


def descriptions(
    table: str | None, columns: Sequence[Mapping[str, Any]], referred: Mapping[str, str]
) -> dict[str, str]:
    """Comments as fields of a row, by path; a column's ends with what it references. Pure.

    Omits texts that metadata would refuse as secrets, and columns with a dot in their names, which paths can't address.

    Args:
        columns: as SQLAlchemy's inspector shows them.
        referred: as `references`.
    """
    texts = {"description": _described(table, "")}
    for column in columns:
        if "." not in (name := column["name"]):
            texts[f"column_descriptions.{name}"] = _described(column.get("comment"), referred.get(name, ""))
    return {path: text for path, text in texts.items() if text and not looks_secret(text)}


def _described(comment: str | None, reference: str) -> str:
    """`In euros. References shop.currencies.code`."""
    text, end = (_CONTROL.sub(" ", part or "").strip()[:_LONGEST] for part in (comment, reference))
    if not text or not end:
        return text or end
    text = text[: max(0, _LONGEST - len(end) - 2)]
    return f"{text}{'' if text.endswith(('.', '!', '?')) else '.'} {end}"


def best_key(
    columns: Sequence[Mapping[str, Any]], primary: Mapping[str, Any] | None, unique: Sequence[Mapping[str, Any]]
) -> KeyFact | None:
    """The declared key; else the unique index of the fewest columns, none of which may be null; None: none. Pure.

    Args:
        unique: constraints and indexes, as SQLAlchemy's inspector states them.
    """
    if primary is not None and primary.get("constrained_columns"):
        return KeyFact(columns=tuple(primary["constrained_columns"]), evidence=_words("primary key", primary))
    filled = {column["name"] for column in columns if not column.get("nullable", True)}
    fit = [
        KeyFact(columns=tuple(names), evidence=_words("unique index", one))
        for one in unique
        if (names := one.get("column_names") or []) and set(names) <= filled and _is_whole(one)
    ]
    return min(fit, key=lambda key: (len(key.columns), key.columns), default=None)


def _is_whole(index: Mapping[str, Any]) -> bool:
    """Whether an index covers all rows, and plain columns."""
    if index.get("unique") is False or index.get("expressions"):
        return False
    return not any(index.get("dialect_options", {}).get(name) is not None for name in _PARTIAL)


def _words(sort: str, index: Mapping[str, Any]) -> str:
    return f"{sort} {index['name']}" if index.get("name") else sort
