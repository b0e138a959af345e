"""What PostgreSQL publishes of its log, and what it lacks for a table to be followed, with statements that mend it.

`gddl check` and jobs ask the same, so that a job stops before the first row where a change would never come.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_gddl.contract.codes import NOT_PUBLISHED, SOURCE_TABLE_MISSING, Code
from airflow_gddl.contract.connections import rows_hidden
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import is_kept, landed_name, renamed
from airflow_gddl.contract.table_spec import TableSpec

OLDEST = 140000
"""`server_version_num` from which on messages of jobs are in the log."""
_AGREED = frozenset({
    "bool", "int2", "int4", "int8", "oid", "float4", "float8", "numeric", "money", "text", "varchar", "bpchar", "char",
    "name", "citext", "bytea", "date", "time", "timetz", "timestamp", "timestamptz", "interval", "uuid", "json",
    "jsonb", "xml", "inet", "cidr", "macaddr", "macaddr8", "bit", "int4range", "int8range", "numrange", "tsrange",
    "tstzrange", "daterange", "tsvector", "ltree", "enum",
})  # fmt: skip
"""Names in `pg_type` of types whose values a load and the log give alike; `enum` is each of them."""
_HEADER, _MONEY_DIGITS = 4, 2
_EPOCH, _DIGITS = len("log0001:"), 20
_KINDS = {"v": "view", "m": "materialized view", "f": "foreign table"}


def lsn_of(position: int) -> str:
    """A position of the log as PostgreSQL writes it, `16/B3740A8`."""
    return f"{position >> 32:X}/{position & 0xFFFFFFFF:X}"


def position_of(lsn: str) -> int:
    """A position of the log, as PostgreSQL writes it, as a number."""
    high, _, low = lsn.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


def place_in(number: int, position: int) -> str:
    """A position as text that has the same order, see `plan.sequence.COMMIT_AND_PLACE`.

    Args:
        number: how often the log that jobs read was opened anew, or the source's was reset, before.
    """
    place = str(position).zfill(_DIGITS)
    return f"log{number:04d}:{place}" if number else place


def epoch_of(place: str) -> str:
    """What is before a place in a log that was opened anew, or reset; empty in the first one."""
    return place[:_EPOCH] if place.startswith("log") else ""


def number_in(place: str) -> int:
    """How often the log was opened anew, or reset, before a place; see `place_in`."""
    return int(epoch_of(place).removeprefix("log").rstrip(":") or 0)


@dataclass(frozen=True)
class ColumnType:
    """Type of a column, of a domain its base type.

    Attributes:
        name: in `pg_type`; `enum` for each of them.
        modifier: precision and scale, or a length, as `pg_attribute` has it; -1: none.
    """

    name: str
    modifier: int

    @property
    def decimal(self) -> tuple[int, int] | None:
        """Precision and scale; None: the type states none."""
        if self.name != "numeric" or self.modifier < _HEADER:
            return None
        scale = (self.modifier - _HEADER) & 0x7FF
        return (self.modifier - _HEADER) >> 16 & 0xFFFF, (scale ^ 1024) - 1024

    @property
    def is_agreed(self) -> bool:
        """Whether a load and the log give its values alike: of bits one alone, and no scale below zero."""
        if self.name == "bit":
            return self.modifier == 1
        return self.name in _AGREED and (self.decimal is None or self.decimal[1] >= 0)


@dataclass(frozen=True)
class Finding:
    """What is missing.

    Attributes:
        statement: mends it.
        sql: statements that publish a table, or name its rows in the log, in their order; empty: a person decides.
        code: of the error of a table's run.
        of_tables: names in the source, `schema.name`, of the only tables that it concerns; empty: it concerns all of
            the log.
    """

    what: str
    statement: str
    code: Code = NOT_PUBLISHED
    of_tables: frozenset[str] = frozenset()
    sql: tuple[str, ...] = ()

    def concerns(self, tables: Collection[str]) -> bool:
        """Whether it concerns one of these tables."""
        return not self.of_tables or not self.of_tables.isdisjoint(tables)


@dataclass(frozen=True)
class PublishedTable:
    """A table of the source and what of it is published.

    Attributes:
        relation: numbers that change when the table, or its part in the publication, is made again.
        columns: name to its type.
        missing: columns that are not published: generated, or not in the publication's list.
        identities: the table, or each of its partitions, to the columns that an update or a delete of it names; None:
            all.
        primary: columns of the primary key, whose changes come as a delete and an insert.
    """

    relation: str
    columns: Mapping[str, ColumnType]
    missing: tuple[str, ...]
    identities: Mapping[str, tuple[str, ...] | None]
    primary: tuple[str, ...]
    findings: tuple[Finding, ...]


def creation_of(publication: str, tables: str = "…") -> str:
    """The statement that makes a publication of tables, which are written as statements write them."""
    return f"CREATE PUBLICATION {_quoted(publication)} FOR TABLE {tables} WITH (publish_via_partition_root = true)"


def _asking(sa: Any, connection: Any) -> Callable[..., Any]:
    """A function that gives what the database answers to a query and its parameters."""
    return lambda query, **values: connection.execute(sa.text(query), values)


def source_findings(sa: Any, connection: Any, slot: str, publication: str) -> Iterator[Finding]:
    """What the server lacks, whatever the table.

    Args:
        sa: the module `sqlalchemy`; `connection`: an `sqlalchemy.Connection`.
    """
    ask = _asking(sa, connection)
    server = ask(_SERVER, slot=slot).mappings().one()
    if server["standby"]:
        yield Finding("the connection leads to a standby", "name the primary in the connection")
        return
    yield from _of_server(server, slot)
    for schema, domain in ask(_DOMAINS):
        what = f"{schema}.{domain} is a domain over an enum, which ends Debezium's engine whatever table has it"
        name = f"{_quoted(schema)}.{_quoted(domain)}"
        yield Finding(what, f"ALTER TABLE … ALTER COLUMN … TYPE (the enum); DROP DOMAIN {name}")
    for table, names in ask(_ALIKE, name=publication):
        what = f"columns of {table} differ by case alone ({names}), which ends Debezium's engine for all tables"
        yield Finding(
            what, f"ALTER TABLE {table} RENAME COLUMN …, or ALTER PUBLICATION {_quoted(publication)} DROP TABLE {table}"
        )
    published = ask(_PUBLICATION, name=publication).mappings().first()
    if published is None:
        yield Finding(f"there is no publication {publication}", creation_of(publication))
        return
    left_out = [name for name in ("insert", "update", "delete", "truncate") if not published[f"pub{name}"]]
    if left_out:
        statement = f"ALTER PUBLICATION {_quoted(publication)} SET (publish = 'insert, update, delete, truncate')"
        yield Finding(
            f"publication {publication} leaves out every {' and '.join(left_out)}", statement, sql=(statement,)
        )
    for table, schema, name, deferrable in ask(_UNIDENTIFIED, name=publication):
        lacks = "its primary key is deferrable, which identifies no row" if deferrable else "has no key"
        of = f" (published as {table})" if table != f"{schema}.{name}" else ""
        what = f"updates and deletes of {schema}.{name}{of} fail in the application: it is published and {lacks}"
        statement = f"ALTER TABLE {_quoted(schema)}.{_quoted(name)} REPLICA IDENTITY FULL"
        yield Finding(what, statement, of_tables=frozenset({table, f"{schema}.{name}"}), sql=(statement,))


def _of_server(server: Mapping[str, Any], slot: str) -> Iterator[Finding]:
    if server["version"] < OLDEST:
        yield Finding(f"the server is PostgreSQL {server['version'] // 10000}", "upgrade it to 14 or newer")
    if server["wal_level"] != "logical":
        statement = "ALTER SYSTEM SET wal_level = logical, then restart the server"
        yield Finding(f"wal_level is {server['wal_level']}", f"{statement} (on RDS: rds.logical_replication = 1)")
    if not server["may_replicate"]:
        user = _quoted(server["name"])
        statement = f"ALTER ROLE {user} REPLICATION (on RDS: GRANT rds_replication TO {user})"
        yield Finding(f"{user} may not replicate", statement)
    if not server["slots_left"]:
        statement = "ALTER SYSTEM SET max_replication_slots = …, then restart; or drop slots that nothing reads"
        yield Finding("all replication slots of the server are taken", statement)
    if server["status"] == "lost":
        what = f"the slot {slot} is lost: the database has removed changes that were not read"
        yield Finding(
            what,
            "`gddl load --again --table T`, for each table of it, makes it again; and a greater max_slot_wal_keep_size",
        )


def slot_state(sa: Any, connection: Any, slot: str) -> str:
    """State of the slot, and how much of the log it keeps, for `gddl check`."""
    kept, status = _asking(sa, connection)(_RETENTION, slot=slot).one()
    shown = f"the slot {slot} is {status}" if status else f"the slot {slot} is made by the first run"
    if kept == "-1":
        return f"{shown}, and keeps the log without a limit (ALTER SYSTEM SET max_slot_wal_keep_size = '…' sets one)"
    return f"{shown}, and keeps {kept} of the log at most"


def published_table(sa: Any, connection: Any, publication: str, table: str) -> PublishedTable:
    """Read a table of the source, and how the publication publishes it.

    Args:
        table: `schema.name` in the source.

    Raises:
        FatalError: `SOURCE_TABLE_MISSING`.
    """
    schema, name = table.split(".", 1)
    parameters = {"name": publication, "schema": schema, "table": name}
    ask, has_details = _asking(sa, connection), connection.dialect.server_version_info >= _WITH_DETAILS
    there = ask(_TABLE, **parameters).mappings().first()
    if there is None:
        what, remedy = f"the source has no table {table}", "check connection and rights"
        raise FatalError(SOURCE_TABLE_MISSING, what, where=table, remedy=remedy)
    relation = there["relation"]
    columns = ask(_COLUMNS, relation=relation).mappings().all()
    listed = ask(_PUBLISHED, **parameters).mappings().first()
    details = ask(_DETAILS, **parameters).mappings().first() if listed is not None and has_details else None
    kept = details["names"] if details is not None else None
    leaves = [
        {**leaf, "title": f"{_quoted(leaf['schema'])}.{_quoted(leaf['name'])}"}
        for leaf in ask(_PARTS, relation=relation).mappings()
    ]
    of_schema = ask(_SCHEMA, **parameters).scalar() if has_details else None
    parts = (None if listed is None else listed["part"], of_schema)
    findings = list(_of_relation(table, there, leaves, [name for (name,) in ask(_CHILDREN, relation=relation)]))
    if listed is None:
        findings += _unpublished(parameters, there, leaves, of_schema is not None)
    elif details is not None and details["is_filtered"]:
        statement = f"ALTER PUBLICATION {_quoted(publication)} SET TABLE …, without WHERE"
        findings.append(Finding(f"publication {publication} leaves out rows of {table}", statement))
    return PublishedTable(
        relation="/".join(str(part or "") for part in (relation, *parts)),
        columns=_types(ask, columns),
        missing=tuple(c["attname"] for c in columns if c["attgenerated"] or (kept and c["attname"] not in kept)),
        identities={c["title"]: None if c["relreplident"] == "f" else tuple(c["identity"]) for c in leaves},
        primary=tuple(c["attname"] for c in columns if c["is_primary"]),
        findings=tuple(findings),
    )


def _types(ask: Callable[..., Any], columns: Sequence[Mapping[str, Any]]) -> dict[str, ColumnType]:
    """Types by name; `money` with other than two digits has a name of its own, for connections of jobs read two."""
    types = {c["attname"]: ColumnType(c["type"], c["modifier"]) for c in columns}
    if not any(kind.name == "money" for kind in types.values()):
        return types
    if (digits := ask(_MONEY).scalar()) == _MONEY_DIGITS:
        return types
    other = ColumnType(f"money of {digits} digits by lc_monetary", -1)
    return {name: other if kind.name == "money" else kind for name, kind in types.items()}


def _of_relation(
    title: str, there: Mapping[str, Any], leaves: Sequence[Mapping[str, Any]], children: Sequence[str]
) -> Iterator[Finding]:
    """What of a relation's rows comes by no log, though a load would read it.

    Args:
        children: by inheritance.
    """
    if kind := _KINDS.get(there["relkind"]):
        yield Finding(
            f"{title} is a {kind}, whose rows are in no log", "name the tables that it shows, in rows of theirs"
        )
        return
    if there["hides"]:
        hidden = rows_hidden(title, _quoted(there["user"]), title)
        yield Finding(hidden.what, hidden.remedy, hidden.code)
    for leaf in leaves:
        if foreign := _KINDS.get(leaf["relkind"]):
            what = f"partition {leaf['title']} of {title} is a {foreign}, whose changes are in no log"
            yield Finding(what, f"ALTER TABLE … DETACH PARTITION {leaf['title']}")
        elif leaf["relpersistence"] != "p":
            kept, statement = "unlogged", f"ALTER TABLE {leaf['title']} SET LOGGED"
            if leaf["relpersistence"] == "t":
                kept, statement = "temporary", "name a table that is not"
            yield Finding(f"{leaf['title']} is {kept}: its changes are in no log", statement)
    if children:
        what = f"{title} has children by inheritance, whose rows a query shows and its log lacks: {', '.join(children)}"
        parent = quoted_name(title)
        statements = "; ".join(f"ALTER TABLE {child} NO INHERIT {parent}" for child in children)
        yield Finding(what, f"{statements}; give each a row of its own")


def _left_out(names: Sequence[str]) -> str:
    """What a row says of columns that the log never has: a load may be older than the row's exclusion."""
    listed = ", ".join(names)
    return f"exclude_columns: [{listed}] and absent_columns: [{listed}]"


def table_findings(spec: TableSpec, published: PublishedTable, publication: str) -> Iterator[Finding]:
    """What the source lacks for this row."""
    yield from published.findings
    kept = [name for name in published.columns if is_kept(name, spec)]
    if missing := [name for name in kept if name in published.missing]:
        what = f"columns of {spec.name_in_source} are not published: {', '.join(missing)}"
        statement = f"{_left_out(missing)} in the metadata row, or ALTER PUBLICATION {_quoted(publication)} SET TABLE …"
        yield Finding(what, statement)
    if unlike := [name for name in kept if not published.columns[name].is_agreed]:
        shown = ", ".join(f"{name} ({published.columns[name].name})" for name in unlike)
        what = f"columns of {spec.name_in_source} have types that a load and the log give in different forms: {shown}"
        yield Finding(what, f"exclude_columns: [{', '.join(unlike)}] in the metadata row")
    unnamed = {
        title: loose for title, identity in published.identities.items()
        if identity is not None and (loose := _unnamed(spec, published.columns, identity))
    }  # fmt: skip
    if unnamed:
        keys = dict.fromkeys(key for loose in unnamed.values() for key in loose)
        what = f"deletes in {', '.join(unnamed)} do not name the key {', '.join(keys)}"
        statements = tuple(f"ALTER TABLE {title} REPLICA IDENTITY FULL" for title in unnamed)
        yield Finding(what, "; ".join(statements), sql=statements)
    elif (
        spec.keys
        and spec.before_image_prefix is None
        and (loose := _unnamed(spec, published.columns, published.primary))
    ):
        what = (
            f"updates in {spec.name_in_source} that change {', '.join(loose)} leave the old row: it is no primary key"
        )
        yield Finding(what, "before_image_prefix: BI_ in the metadata row")


def key_columns(spec: TableSpec, columns: Iterable[str]) -> dict[str, str]:
    """The row's keys to the columns of the source that they are; those that are none are left out."""
    names = {landed_name(renamed(name, spec)).lower(): name for name in columns}
    return {key: names[key.lower()] for key in spec.keys if key.lower() in names}


def _unnamed(spec: TableSpec, columns: Iterable[str], identity: Iterable[str]) -> list[str]:
    """Keys of the row that are columns of the source, and that a delete does not name."""
    known, named = ({renamed(landed_name(name), spec).lower() for name in names} for names in (columns, identity))
    return [key for key in spec.keys if key.lower() in known - named]


def shown(findings: Sequence[Finding]) -> tuple[str, str]:
    """Message and remedy of a refusal: the first finding, and how many there are."""
    more = f" (and {len(findings) - 1} more: see `gddl check`)" if len(findings) > 1 else ""
    return f"{findings[0].what}{more}", findings[0].statement


def _unpublished(
    parameters: Mapping[str, str], there: Mapping[str, Any], leaves: Sequence[Mapping[str, Any]], of_schema: bool
) -> Iterator[Finding]:
    """A table that the publication does not list, with all that publishes it.

    Once it is published, updates and deletes of what has no identity fail in the application, so that statements which
    give one come first, those of partitions too.

    Args:
        of_schema: whether all tables of its schema are published.
    """
    if there["relkind"] in _KINDS:
        return
    title, publication = f"{parameters['schema']}.{parameters['table']}", _quoted(parameters["name"])
    anonymous = [leaf["title"] for leaf in leaves if leaf["relreplident"] != "f" and not leaf["identity"]]
    statements = [f"ALTER TABLE {leaf} REPLICA IDENTITY FULL" for leaf in anonymous]
    what = f"{title} is not in publication {parameters['name']}"
    if there["relkind"] == "p" and there["via_root"] is False:
        statements.append(f"ALTER PUBLICATION {publication} SET (publish_via_partition_root = true)")
    if not (there["is_member"] or of_schema):
        statements.append(f"ALTER PUBLICATION {publication} ADD TABLE {quoted_name(title)}")
    elif there["relkind"] == "p":
        what = f"changes of partitioned table {title} are published as its partitions'"
    elif there["relispartition"]:
        what = f"changes of {title} are published as those of the table of which it is a partition"
        yield Finding(what, "name that table in the metadata row")
        return
    elif not statements:  # publications leave out what is not in the log
        return
    yield Finding(what, "; ".join(statements), sql=tuple(statements))


def quoted_name(table: str) -> str:
    """`schema.name` as statements write it."""
    schema, name = table.split(".", 1)
    return f"{_quoted(schema)}.{_quoted(name)}"


def _quoted(name: str) -> str:
    """A name as statements write it; what no terminal shows is escaped, so that a printed statement can be run."""
    if name.isidentifier() and name == name.lower() and name.isascii() and name not in _RESERVED:
        return name
    inner = name.replace('"', '""')
    if name.isprintable():
        return f'"{inner}"'
    escaped = (c if c.isprintable() else f"\\+{ord(c):06x}" for c in inner.replace("\\", "\\\\"))
    return f'U&"{"".join(escaped)}"'


_WORDS = (
    "all analyse analyze and any array as asc asymmetric authorization binary both case cast check collate collation"
    " column concurrently constraint create cross current_catalog current_date current_role current_schema current_time"
    " current_timestamp current_user default deferrable desc distinct do else end except false fetch for foreign freeze"
    " from full grant group having ilike in initially inner intersect into is isnull join lateral leading left like"
    " limit localtime localtimestamp natural not notnull null offset on only or order outer overlaps placing primary"
    " references returning right select session_user similar some symmetric system_user table tablesample then to"
    " trailing true union unique user using variadic verbose when where window with"
)
_RESERVED = frozenset(_WORDS.split())
"""Words of PostgreSQL 18 that are names only in quotation marks (`pg_get_keywords`)."""


_DETAILS = """
SELECT CAST(attnames AS text[]) AS names, rowfilter IS NOT NULL AS is_filtered FROM pg_publication_tables
WHERE pubname = :name AND schemaname = :schema AND tablename = :table
"""
_WITH_DETAILS = (15,)
"""Version from which on publications can have filters, lists of columns and schemas."""
_SERVER = """
SELECT pg_is_in_recovery() AS standby, current_setting('wal_level') AS wal_level,
  CAST(current_setting('server_version_num') AS int) AS version,
  CAST(current_user AS text) AS name,
  (SELECT wal_status FROM pg_replication_slots WHERE slot_name = CAST(:slot AS name)) AS status,
  EXISTS (SELECT FROM pg_roles r WHERE r.rolname = current_user AND (r.rolsuper OR r.rolreplication
    OR EXISTS (SELECT FROM pg_roles o WHERE o.rolname IN ('rds_replication', 'azure_pg_admin', 'cloudsqlsuperuser')
      AND pg_has_role(r.oid, o.oid, 'member')))) AS may_replicate,
  EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = CAST(:slot AS name))
    OR (SELECT count(*) FROM pg_replication_slots) < CAST(current_setting('max_replication_slots') AS int) AS slots_left
"""
_DOMAINS = """
SELECT n.nspname, t.typname FROM pg_type t JOIN pg_type b ON b.oid = t.typbasetype
JOIN pg_namespace n ON n.oid = t.typnamespace WHERE t.typtype = 'd' AND b.typtype = 'e' ORDER BY 1, 2
"""
_ALIKE = """
SELECT quote_ident(t.schemaname) || '.' || quote_ident(t.tablename), string_agg(quote_ident(a.attname), ', '
  ORDER BY a.attnum)
FROM pg_publication_tables t JOIN pg_namespace n ON n.nspname = t.schemaname
JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = t.tablename JOIN pg_attribute a ON a.attrelid = c.oid
WHERE t.pubname = :name AND a.attnum > 0 AND NOT a.attisdropped
GROUP BY t.schemaname, t.tablename, lower(a.attname) HAVING count(*) > 1 ORDER BY 1
"""
_RETENTION = """
SELECT current_setting('max_slot_wal_keep_size'),
  (SELECT wal_status FROM pg_replication_slots WHERE slot_name = CAST(:slot AS name))
"""
_PUBLICATION = "SELECT pubinsert, pubupdate, pubdelete, pubtruncate FROM pg_publication WHERE pubname = :name"
_TABLE = """
SELECT c.oid AS relation, c.relkind, c.relispartition, c.relreplident, c.relpersistence,
  row_security_active(c.oid) AS hides,
  CAST(current_user AS text) AS user,
  (SELECT pubviaroot FROM pg_publication WHERE pubname = :name) AS via_root,
  EXISTS (SELECT FROM pg_publication p WHERE p.pubname = :name AND (p.puballtables OR EXISTS (
    SELECT FROM pg_publication_rel r WHERE r.prpubid = p.oid AND r.prrelid = c.oid))) AS is_member
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = :schema AND c.relname = :table AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
"""
_PARTS = """
SELECT n.nspname AS schema, c.relname AS name, c.relkind, c.relpersistence, c.relreplident,
  ARRAY(SELECT CAST(a.attname AS text) FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid
    AND a.attnum = ANY (i.indkey) WHERE i.indrelid = c.oid AND CASE c.relreplident
    WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident ELSE false END) AS identity
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE (c.oid = :relation AND c.relkind <> 'p') OR c.oid IN (SELECT relid FROM pg_partition_tree(:relation) WHERE isleaf)
ORDER BY 1, 2
"""
_CHILDREN = """
SELECT quote_ident(n.nspname) || '.' || quote_ident(c.relname) FROM pg_inherits i JOIN pg_class p ON p.oid = i.inhparent
JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhparent = :relation AND p.relkind <> 'p' ORDER BY 1
"""
_MONEY = "SELECT scale(CAST(CAST(1 AS money) AS numeric))"
_COLUMNS = """
SELECT a.attname, a.attgenerated <> '' AS attgenerated,
  CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END AS modifier,
  CASE WHEN COALESCE(b.typtype, t.typtype) = 'e' THEN 'enum' ELSE COALESCE(b.typname, t.typname) END AS type,
  EXISTS (SELECT FROM pg_index i WHERE i.indrelid = a.attrelid AND a.attnum = ANY (i.indkey) AND i.indisprimary)
    AS is_primary
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_PUBLISHED = """
SELECT (SELECT string_agg(CAST(r.oid AS text), ',') FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
  JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE p.pubname = :name AND n.nspname = :schema AND c.relname = :table) AS part
FROM pg_publication_tables WHERE pubname = :name AND schemaname = :schema AND tablename = :table
"""
_SCHEMA = """
SELECT CAST(s.oid AS text) FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = s.pnpubid
JOIN pg_namespace n ON n.oid = s.pnnspid WHERE p.pubname = :name AND n.nspname = :schema
"""
_UNIDENTIFIED = """
SELECT t.schemaname || '.' || t.tablename, n.nspname, c.relname,
  c.relreplident = 'd' AND EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) AS is_deferrable
FROM pg_publication p JOIN pg_publication_tables t ON t.pubname = p.pubname
JOIN pg_namespace s ON s.nspname = t.schemaname JOIN pg_class r ON r.relnamespace = s.oid AND r.relname = t.tablename
JOIN pg_class c ON (c.oid = r.oid AND r.relkind <> 'p') OR c.oid IN (
  SELECT relid FROM pg_partition_tree(r.oid) WHERE isleaf)
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = :name AND (p.pubupdate OR p.pubdelete) AND c.relkind = 'r' AND (c.relreplident = 'n'
  OR (c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary
  AND i.indimmediate)))
ORDER BY 1, 2, 3
"""
