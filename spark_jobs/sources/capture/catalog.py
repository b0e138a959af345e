"""What PostgreSQL's catalog says of a table, and which alterations of it changed rows without a change in the log.

DDL is in no log. What it did to rows is known by comparing the catalog of one run with that of the next.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from spark_jobs.source_tables import STATED

_TEXTS = ("text", "varchar")
"""Types of one another's values."""


@dataclass(frozen=True, kw_only=True)
class CatalogColumn:
    """A column.

    Attributes:
        version: transaction that has altered it last; `known`: what explains that, and changes no value.
        filled: value of rows from before it; None: none.
    """

    name: str
    type: str
    version: str
    known: str = ""
    filled: str | None = None


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """Which rows of the table a partition, or one above it, can have.

    Attributes:
        number, name: of the partition.
        condition: SQL over the columns that partition the table and those above; constants and names are written so
            that no setting changes their meaning.
    """

    number: str
    name: str
    condition: str


@dataclass(frozen=True, kw_only=True)
class CatalogPart:
    """A partition; `identity`, `node`: as of a table.

    Attributes:
        attached: it was made before it became a partition.
        joined: transactions in which it, and the partitions above it, became partitions; empty: not known.
        bounds: its own, and those of the partitions above it, the lowest first; empty: not known.
    """

    name: str
    identity: str
    node: str
    attached: bool
    joined: str = ""
    bounds: tuple[Bounds, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TableCatalog:
    """What the catalog says of a table.

    Attributes:
        version: transaction that has altered it last; `known`: what explains that, and changes no row.
        named: transactions that have named it and its schema last; `owned`: what explains that.
        identity: its replica identity, `f` for all columns; of others with the numbers of columns.
        node: file of its rows.
        by_itself: whether it is published by its name, so that PostgreSQL refuses `SET UNLOGGED`.
        columns: by number. parts: partitions with rows, by number. labels: of its enums, by number.
        detaching: partitions whose `DETACH … CONCURRENTLY` has not ended: transactions may still write to them.
    """

    version: str
    known: str
    named: str
    owned: str
    identity: str
    node: str
    by_itself: bool
    columns: Mapping[str, CatalogColumn] = field(default_factory=dict)
    parts: Mapping[str, CatalogPart] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    detaching: tuple[str, ...] = ()


def read_catalog(sa: Any, connection: Any, relation: str, *, with_bounds: bool = False) -> TableCatalog:
    """
    Args:
        sa: the module `sqlalchemy`; `connection`: an `sqlalchemy.Connection` whose statements are transactions of their
            own.
        relation: `PublishedTable.relation`.
        with_bounds: also bounds of partitions, and which are being detached.
    """
    number, by_itself, _ = relation.split("/")
    parameters = {"relation": int(number)}
    columns, parts, labels = (
        connection.execute(sa.text(query), parameters).mappings().all() for query in (_COLUMNS, _PARTS, _LABELS)
    )
    table = connection.execute(sa.text(_TABLE), parameters).mappings().one()
    bounds = _read_bounds(sa, connection, parameters) if with_bounds else {}
    # Read last: one that ends its detaching before this is no partition from before the log is read on.
    detaching = connection.execute(sa.text(_DETACHING), parameters).scalars().all() if with_bounds else ()
    return TableCatalog(
        **table,
        detaching=tuple(detaching),
        by_itself=bool(by_itself),
        columns={c["number"]: CatalogColumn(**{k: v for k, v in c.items() if k != "number"}) for c in columns},
        parts={
            p["number"]: CatalogPart(
                **{k: v for k, v in p.items() if k != "number"}, bounds=bounds.get(p["number"], ())
            )
            for p in parts
        },
        labels={one["number"]: one["label"] for one in labels},
    )


def _read_bounds(sa: Any, connection: Any, parameters: Mapping[str, int]) -> dict[str, tuple[Bounds, ...]]:
    """Bounds of each partition, and of those above it."""
    connection.execute(sa.text("BEGIN READ ONLY"))
    for setting in (*STATED, "SET LOCAL search_path = pg_catalog"):
        connection.execute(sa.text(setting))
    rows = connection.execute(sa.text(_BOUNDS), parameters).mappings().all()
    connection.execute(sa.text("COMMIT"))
    found = {row["number"]: row for row in rows}

    def chain(number: str) -> Iterator[Bounds]:
        while (row := found.get(number)) is not None:
            yield Bounds(number=number, name=row["name"], condition=row["condition"])
            number = row["above"]

    return {number: tuple(chain(number)) for number in found}


def dropped_bounds(before: TableCatalog, now: TableCatalog) -> tuple[Bounds, ...] | None:
    """Bounds of all rows that partitions had which were dropped or detached: of each the highest partition of which
    nothing is left, since a condition can name one above it.

    Returns:
        None: those of some are not known.
    """
    left = {bounds.number for part in now.parts.values() for bounds in part.bounds} | set(now.parts)
    gone = [part for number, part in before.parts.items() if number not in now.parts]
    chosen = [[bounds for bounds in part.bounds if bounds.number not in left][-1:] for part in gone]
    if not all(chosen):
        return None
    return tuple(dict.fromkeys(bounds for one in chosen for bounds in one))


def dropped_parts(before: TableCatalog, now: TableCatalog) -> tuple[str, ...]:
    """Names of partitions that were dropped or detached, with their rows."""
    return tuple(part.name for number, part in before.parts.items() if number not in now.parts)


def alterations(before: TableCatalog, now: TableCatalog, *, truncated: bool, keeps: bool) -> Iterator[str]:
    """What has changed rows, or the meaning of changes, and is in no log.

    Args:
        truncated: whether the log has brought a `TRUNCATE` of the table between the two.
        keeps: rows of dropped partitions stay, so that these are no alteration.
    """
    yield from _of_columns(before.columns, now.columns)
    yield from _of_labels(before.labels, now.labels)
    if (gone := dropped_parts(before, now)) and not keeps:
        yield f"partitions were dropped or detached, with their rows: {', '.join(gone)}"
    yield from _of_parts(before, now, truncated=truncated)
    yield from _of_rows(before, now, truncated=truncated)
    if _is_other(before.identity, now.identity):
        yield "its primary key or replica identity is another: deletes may have named another key"
    if before.named != now.named and before.owned == now.owned:
        yield "it was renamed or moved to another schema, and back again"
    elif before.version != now.version and not _is_explained(before, now):
        yield "it was altered, and altered back again, as by REPLICA IDENTITY or RENAME"


def _is_other(before: str, now: str) -> bool:
    """Whether changes may have named another key: all columns name each."""
    return now not in (before, "f")


def _is_explained(before: TableCatalog, now: TableCatalog) -> bool:
    return (before.known, before.node, before.identity, before.owned) != (
        now.known, now.node, now.identity, now.owned
    )  # fmt: skip


def _of_columns(before: Mapping[str, CatalogColumn], now: Mapping[str, CatalogColumn]) -> Iterator[str]:
    names = {column.name: number for number, column in before.items()}
    for number, column in now.items():
        former = before.get(number)
        if former is None and column.name in names:
            yield f"column {column.name} was dropped or renamed, and another one of this name was added"
        elif former is None and column.filled is not None:
            yield f"column {column.name} was added with the value {column.filled} in all rows that were there"
        elif former is not None and former.name != column.name:
            yield f"column {former.name} was renamed to {column.name}"
        elif former is not None and former.type != column.type and not _is_text(former.type, column.type):
            yield f"column {column.name} is {column.type}, and was {former.type}: its values were converted"
        elif former is not None and _is_touched(former, column):
            yield f"column {column.name} was altered, and altered back again, as by RENAME"


def _is_touched(before: CatalogColumn, now: CatalogColumn) -> bool:
    """Whether it was altered in a way that nothing explains."""
    return before.version != now.version and replace(before, version="") == replace(now, version="")


def _is_text(*types: str) -> bool:
    """Whether all are texts of any length."""
    return all(one.partition("(")[0] in _TEXTS for one in types)


def _of_labels(before: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    for number, label in now.items():
        (former, _, since), (name, _, altered) = (one.rpartition("@") for one in (before.get(number, label), label))
        if former != name:
            yield f"the value {former!r} of an enum was renamed to {name!r}"
        elif since != altered:
            yield f"the value {name!r} of an enum was renamed, and back again"


def _of_parts(before: TableCatalog, now: TableCatalog, *, truncated: bool) -> Iterator[str]:
    came = [part.name for number, part in now.parts.items() if number not in before.parts and part.attached]
    if came:
        yield f"tables were attached as partitions, with their rows: {', '.join(came)}"
    stayed = {number: part for number, part in now.parts.items() if number in before.parts}
    if again := [part.name for number, part in stayed.items() if before.parts[number].joined not in ("", part.joined)]:
        yield f"partitions were detached and attached again, with their rows: {', '.join(again)}"
    other = [part.name for number, part in stayed.items() if part.node != before.parts[number].node]
    if other and not (truncated and len(other) == len(stayed)):
        yield f"partitions were truncated or rewritten by themselves: {', '.join(other)}"
    if swapped := [p.name for number, p in stayed.items() if _is_other(before.parts[number].identity, p.identity)]:
        yield f"the primary key or replica identity of partitions is another: {', '.join(swapped)}"


def _of_rows(before: TableCatalog, now: TableCatalog, *, truncated: bool) -> Iterator[str]:
    if before.node == now.node or truncated:
        return
    if not now.by_itself:
        yield "its rows were rewritten (SET UNLOGGED and LOGGED, VACUUM FULL, CLUSTER), and no TRUNCATE is in the log"
        return
    came = [column.name for number, column in now.columns.items() if number not in before.columns]
    if came:
        yield f"its rows were rewritten when columns were added: {', '.join(came)}"
    for number, column in now.columns.items():
        former = before.columns.get(number)
        if former is not None and former.version != column.version and former.filled == column.filled:
            yield f"column {column.name} was altered while rows were rewritten: its values may be others"


_IDENTITY = """CAST(c.relreplident AS text) || COALESCE((SELECT ' ' || CAST(i.indkey AS text) FROM pg_index i
    WHERE i.indrelid = c.oid AND CASE c.relreplident WHEN 'd' THEN i.indisprimary WHEN 'i' THEN i.indisreplident
    ELSE false END), '') AS identity"""
_TABLE = """
SELECT CAST(c.xmin AS text) AS version, CAST(c.relfilenode AS text) AS node,
  md5(concat_ws('|', c.relacl, c.reloptions, c.relam, c.reltablespace, c.relnatts, c.relchecks, c.relhasrules,
    c.relhastriggers, c.relrowsecurity, c.relforcerowsecurity, c.relispartition, c.relhassubclass, c.reltoastrelid,
    (SELECT string_agg(CAST(oid AS text), ',' ORDER BY oid) FROM pg_trigger WHERE tgrelid = c.oid),
    (SELECT string_agg(CAST(oid AS text), ',' ORDER BY oid) FROM pg_rewrite WHERE ev_class = c.oid))) AS known,
  t.xmin || '/' || n.oid || '/' || n.xmin AS named,
  md5(concat_ws('|', c.relowner, t.typowner, t.typacl, n.nspowner, n.nspacl)) AS owned,
  {identity}
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_type t ON t.oid = c.reltype
WHERE c.oid = :relation
""".replace("{identity}", _IDENTITY)
_COLUMNS = """
SELECT CAST(a.attnum AS text) AS number, CAST(a.attname AS text) AS name, CAST(a.xmin AS text) AS version,
  format('%s%s', t.typname, '(' || NULLIF(a.atttypmod, -1) || ')') AS type,
  md5(concat_ws('|', a.attnotnull, a.attstattarget, a.attstorage, a.atthasdef, a.atthasmissing, a.attidentity, a.attacl,
    a.attoptions, a.attinhcount, a.attislocal, (SELECT oid FROM pg_attrdef WHERE adrelid = a.attrelid
    AND adnum = a.attnum))) AS known,
  CASE WHEN a.atthasmissing THEN left(CAST(a.attmissingval AS text), 100) END AS filled
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_PARTS = """
SELECT CAST(c.oid AS text) AS number, n.nspname || '.' || c.relname AS name, CAST(c.relfilenode AS text) AS node,
  {identity},
  NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_attribute a ON a.attrelid = i.inhrelid AND a.attname = 'ctid'
    WHERE i.inhrelid = c.oid AND CAST(i.xmin AS text) = CAST(a.xmin AS text)) AS attached,
  (SELECT string_agg(CAST(i.xmin AS text), ',' ORDER BY i.inhrelid) FROM pg_partition_ancestors(c.oid) above
    JOIN pg_inherits i ON i.inhrelid = above.relid) AS joined
FROM pg_partition_tree(:relation) p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.isleaf AND c.oid <> :relation ORDER BY c.oid
""".replace("{identity}", _IDENTITY)
_BOUNDS = """
SELECT CAST(c.oid AS text) AS number, n.nspname || '.' || c.relname AS name,
  CAST(CAST(p.parentrelid AS oid) AS text) AS above,
  COALESCE(pg_get_partition_constraintdef(c.oid), 'true') AS condition
FROM pg_partition_tree(:relation) p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid <> :relation
"""
_DETACHING = """
SELECT n.nspname || '.' || c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE i.inhdetachpending AND i.inhparent IN (SELECT relid FROM pg_partition_tree(:relation))
"""
_LABELS = """
SELECT DISTINCT CAST(e.oid AS text) AS number, e.enumlabel || '@' || e.xmin AS label
FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1
"""
