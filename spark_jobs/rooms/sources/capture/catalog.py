"""What PostgreSQL's catalog says of a table, and which alterations of it changed rows without a change in the log.

DDL is in no log. What it did to rows is known by comparing the catalog of one run with that of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from spark_jobs.rooms.sources.capture.relation_messages import FULL, RelationMessage

_TEXTS = ("text", "varchar")
"""Types of one another's values."""


@dataclass(frozen=True, kw_only=True)
class CatalogColumn:
    """A column.

    Attributes:
        type, kind: name, with its limits, and number of its type.
        version: transaction that has altered it last.
        filled: value of rows from before it; None: none.
    """

    name: str
    type: str
    version: str
    kind: str
    filled: str | None = None


@dataclass(frozen=True, kw_only=True)
class CatalogPart:
    """A partition; `node`, `toast`: as of a table.

    Attributes:
        attached: it has rows from before it, or a partition above it, became a partition; false of those that were
            known before it was read.
        joined: transactions in which it, and the partitions above it, became partitions.
        version: as of a table.
    """

    name: str
    node: str
    attached: bool
    toast: str
    joined: str
    version: str


@dataclass(frozen=True, kw_only=True)
class TableCatalog:
    """What the catalog says of a table.

    Attributes:
        node: file of its rows; `toast`: number of the table of its large values. Both are others once `ALTER TABLE` has
            rewritten the rows; `TRUNCATE`, `VACUUM FULL` and `CLUSTER` keep the number. `0`: there is none.
        version: transaction that has made the file of its first index, which is made with that of its rows; of a table
            without indexes that which has altered it last.
        moved: transaction that has moved it to its schema; empty: the schema is the server's own.
        by_itself: whether it is published by its name, so that PostgreSQL refuses `SET UNLOGGED`; `by_schema`: whether
            its schema is published, so that it is not while it is in another.
        columns: by number. parts: partitions with rows, by number.
        labels: of its enums, by the number of the column and of the label.
    """

    node: str
    by_itself: bool
    by_schema: bool
    toast: str
    version: str
    moved: str
    columns: Mapping[str, CatalogColumn] = field(default_factory=dict)
    parts: Mapping[str, CatalogPart] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)


def read_catalog(
    sa: Any,
    connection: Any,
    relation: str,
    *,
    known: Callable[[], Collection[str] | None] = lambda: None,
) -> TableCatalog:
    """
    Args:
        sa: the module `sqlalchemy`; `connection`: an `sqlalchemy.Connection` whose statements are transactions of their
            own.
        relation: `PublishedTable.relation`.
        known: partitions whose rows are known, by number; None: all. Called where the table has partitions.
    """
    number, by_itself, by_schema = relation.split("/")
    parameters = {"relation": int(number)}
    columns, parts, labels = (
        connection.execute(sa.text(query), parameters).mappings().all() for query in (_COLUMNS, _PARTS, _LABELS)
    )
    table = connection.execute(sa.text(_TABLE), parameters).mappings().one()
    former = known() if parts else None
    attached = {
        part["number"] for part in parts
        if former is not None and part["number"] not in former and _has_older_rows(sa, connection, part["number"])
    }  # fmt: skip
    return TableCatalog(
        **table,
        by_itself=bool(by_itself),
        by_schema=bool(by_schema),
        columns={number: CatalogColumn(**rest) for number, rest in _by_number(columns)},
        parts={number: CatalogPart(**rest, attached=number in attached) for number, rest in _by_number(parts)},
        labels={number: rest["label"] for number, rest in _by_number(labels)},
    )


def _by_number(rows: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in map(dict, rows):
        yield row.pop("number"), row


def _has_older_rows(sa: Any, connection: Any, part: str) -> bool:
    """Whether a partition has rows that were written before it, or one above it, became a partition.

    Attaching waits for all that write to it: rows of later transactions are later, and of the same transaction those
    of later commands. Of a partition that was attached within a longer transaction it is not known when it was.
    """
    links = connection.execute(sa.text(_LINKS), {"part": int(part)}).mappings().all()
    if links[0]["rows"] is None:  # the user may not read all of them
        return any(link["is_attached"] for link in links)
    older = " OR ".join(
        "true" if link["is_attached"] and link["command"] != "0" else
        f"age(xmin) > age(CAST('{link['version']}' AS xid)) OR (CAST(xmin AS text) = '{link['version']}' AND "
        f"CAST(CAST(cmin AS text) AS bigint) < {link['command']})"
        for link in links
    )  # fmt: skip
    rows = str(links[0]["rows"]).replace(":", r"\:")
    query = f"SELECT EXISTS (SELECT FROM {rows} WHERE tableoid = :part AND ({older}))"  # noqa: S608 - the catalog's
    return bool(connection.execute(sa.text(query), {"part": int(part)}).scalar())


def dropped_parts(before: TableCatalog, now: TableCatalog) -> tuple[str, ...]:
    """Names of partitions that were dropped or detached, with their rows."""
    return tuple(part.name for number, part in before.parts.items() if number not in now.parts)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How a row reads the table of its source.

    Attributes:
        name: `schema.name` of the table.
        takes: whether a column of the source reaches the lake; `takes_new`: whether one does that its table lacks.
        keys: columns of the source that are the row's keys.
        truncated: whether the log has brought a `TRUNCATE` of the table between the two catalogs; `truncated_by`: the
            transaction of the last; empty: not known.
        keeps: rows of dropped partitions stay, so that these are no alteration.
    """

    name: str
    takes: Callable[[str], bool]
    keys: Collection[str]
    takes_new: bool = True
    truncated: bool = False
    truncated_by: str = ""
    keeps: bool = False


def alterations(
    before: TableCatalog, now: TableCatalog, messages: Iterable[RelationMessage], reading: Reading
) -> Iterator[str]:
    """What has changed rows, or the meaning of changes, and is in no log.

    Args:
        messages: by which the log has described its relations between the two, as far as neither explains them.
    """
    yield from _of_columns(before, now, reading)
    yield from _of_labels(before.labels, now, reading)
    if (gone := dropped_parts(before, now)) and not reading.keeps:
        yield f"partitions were dropped or detached, with their rows: {', '.join(gone)}"
    yield from _of_parts(before, now, reading)
    yield from _of_rows(before, now, reading)
    if now.by_schema and not now.by_itself and before.moved != now.moved:
        yield "it was moved to a schema that is not published, and back again"
    for message in messages:
        yield from _of_message(before, now, message, reading)


def _of_message(before: TableCatalog, now: TableCatalog, message: RelationMessage, reading: Reading) -> Iterator[str]:
    """What changes have meant that came while the table was another."""
    parts = {**before.parts, **now.parts}
    part = parts.get(str(message.relation))
    if not message.name:
        yield "it was altered more often than is known since the last run"
        return
    if part is None and message.name != reading.name:
        yield f"it was renamed to {message.name} for a while, and changed under this name"
    if part is None:
        for name in _under_other_names(before, now, message.columns, reading):
            yield f"column {name} had another name for a while, and rows were changed under it"
    is_named = message.identity == FULL or not message.keys or set(reading.keys) <= set(message.keys)
    if not is_named and (part is not None or not parts):  # changes name what the partition of their row names
        of = "" if part is None else f" of {part.name}"
        yield f"the primary key or replica identity{of} was another for a while: changes have named another key"


def _under_other_names(
    before: TableCatalog, now: TableCatalog, described: Sequence[str], reading: Reading
) -> Iterator[str]:
    """Columns that the row takes, and that the log has described under other names, as when two have changed theirs:
    those are not at their places, which columns before them shift that were there for a part of the time.
    """
    numbers = sorted({*before.columns, *now.columns}, key=int)
    stayed = [one for one in numbers if one in before.columns and one in now.columns]
    if len(described) < len(stayed):  # the publication has a list of columns, which has all that the row takes
        stayed = [one for one in stayed if reading.takes(now.columns[one].name)]
    for always, number in enumerate(stayed):
        name = now.columns[number].name
        is_same = name == before.columns[number].name and reading.takes(name)
        if is_same and name not in described[always : numbers.index(number) + 1]:
            yield name


def has_new_files(before: TableCatalog, now: TableCatalog) -> bool:
    """Whether rows are in other files, as a `TRUNCATE` leaves them, which the log has then."""
    stayed = before.parts.keys() & now.parts.keys()
    return before.node != now.node or any(before.parts[one].node != now.parts[one].node for one in stayed)


def _is_rewritten(before: TableCatalog | CatalogPart, now: TableCatalog | CatalogPart) -> bool:
    """Whether `ALTER TABLE` may have rewritten the rows."""
    return before.node != now.node and (now.toast == "0" or before.toast != now.toast)


def _is_surely_rewritten(before: TableCatalog | CatalogPart, now: TableCatalog | CatalogPart) -> bool:
    """Whether it has, whatever else has made new files of the rows."""
    return before.node != now.node and before.toast not in ("0", now.toast)


def _of_columns(before: TableCatalog, now: TableCatalog, reading: Reading) -> Iterator[str]:
    names = {column.name: number for number, column in before.columns.items()}
    is_rewritten = _is_rewritten(before, now)
    for number, column in now.columns.items():
        former = before.columns.get(number)
        if not reading.takes(column.name) and (former is None or not reading.takes(former.name)):
            continue
        if former is None and column.name in names:
            yield f"column {column.name} was dropped or renamed, and another one of this name was added"
        elif former is None and column.filled is not None and reading.takes_new:
            yield f"column {column.name} was added with the value {column.filled} in all rows that were there"
        elif former is not None and former.name != column.name:
            yield f"column {former.name} was renamed to {column.name}"
        elif former is not None and former.type != column.type and (is_rewritten or not _is_wider(former, column)):
            yield f"column {column.name} is {column.type}, and was {former.type}: its values were converted"


def _is_wider(*columns: CatalogColumn) -> bool:
    """Whether a column of one type has values of the other, where no row was rewritten."""
    types = {one.type.partition("(")[0] for one in columns}
    is_type_renamed = len({one.kind for one in columns}) == 1
    return is_type_renamed or len(types) == 1 or types <= set(_TEXTS)


def _of_labels(before: Mapping[str, str], now: TableCatalog, reading: Reading) -> Iterator[str]:
    for number, label in now.labels.items():
        of = number.partition("/")[0]
        if of not in now.columns or not reading.takes(now.columns[of].name):
            continue
        (former, _, since), (name, _, altered) = (one.rpartition("@") for one in (before.get(number, label), label))
        if former != name:
            yield f"the value {former!r} of an enum was renamed to {name!r}"
        elif since != altered:
            yield f"the value {name!r} of an enum was renamed, and back again"


def _is_truncated(reading: Reading, version: str) -> bool:
    """Whether a `TRUNCATE` of the table that the log has is what has made the file of this version."""
    return reading.truncated and reading.truncated_by in ("", version)


def _is_made_again(part: CatalogPart) -> bool:
    """Whether a partition has another file than when it became one; the first of a table has the table's number."""
    joined = map(int, part.joined.split(","))
    return all(0 < (int(part.version) - one) % (1 << 32) < 1 << 31 for one in joined)


def _of_parts(before: TableCatalog, now: TableCatalog, reading: Reading) -> Iterator[str]:
    came = [part.name for number, part in now.parts.items() if number not in before.parts and part.attached]
    if came:
        yield f"tables were attached as partitions, with their rows: {', '.join(came)}"
    stayed = {number: part for number, part in now.parts.items() if number in before.parts}
    if back := [part.name for number, part in stayed.items() if before.parts[number].joined != part.joined]:
        yield f"partitions were detached and attached again, with their rows: {', '.join(back)}"
    other = {number: part for number, part in stayed.items() if part.node != before.parts[number].node}
    new = {number: part for number, part in now.parts.items()
           if number not in before.parts and part.node != number and _is_made_again(part)}  # fmt: skip
    again = {**other, **new}
    # A TRUNCATE of the table is one transaction for all of them.
    versions = {part.version for part in again.values()}
    is_whole = len(other) == len(stayed) and len(versions) == 1 and _is_truncated(reading, *versions)
    if again and (not is_whole or any(_is_surely_rewritten(before.parts[one], part) for one, part in other.items())):
        names = ", ".join(part.name for part in again.values())
        yield f"partitions were truncated or rewritten by themselves: {names}"


def _of_rows(before: TableCatalog, now: TableCatalog, reading: Reading) -> Iterator[str]:
    if not has_new_files(before, now):
        return
    taken = {number: column for number, column in now.columns.items() if reading.takes(column.name)}
    came = [column.name for number, column in taken.items() if number not in before.columns]
    if came and reading.takes_new:  # VACUUM FULL writes their values into rows, too
        yield f"its rows were rewritten when or after columns were added: {', '.join(came)}"
    parts = (_is_rewritten(former, now.parts[at]) for at, former in before.parts.items() if at in now.parts)
    if not (_is_rewritten(before, now) or any(parts)):
        return
    altered = [column.name for number, column in taken.items()
               if number in before.columns and before.columns[number].version != column.version]  # fmt: skip
    for name in altered:
        yield f"column {name} was altered while rows were rewritten: its values may be others"
    # Without long values nothing but the transaction tells a TRUNCATE from what has rewritten the rows after it.
    is_explained = reading.truncated and (
        not _is_surely_rewritten(before, now) if now.toast != "0" else _is_truncated(reading, now.version)
    )
    if before.node != now.node and not (altered or now.by_itself or is_explained):
        yield "its rows were rewritten (SET UNLOGGED and LOGGED, VACUUM FULL, CLUSTER), and no TRUNCATE is in the log"


_VERSION = """COALESCE((SELECT CAST(o.xmin AS text) FROM pg_index x JOIN pg_class o ON o.oid = x.indexrelid
    WHERE x.indrelid = c.oid ORDER BY o.oid LIMIT 1), CAST(c.xmin AS text)) AS version"""
_TABLE = f"""
SELECT CAST(c.relfilenode AS text) AS node, CAST(c.reltoastrelid AS text) AS toast, {_VERSION},
  COALESCE((SELECT CAST(d.xmin AS text) FROM pg_depend d WHERE d.classid = CAST('pg_class' AS regclass)
    AND d.objid = c.oid AND d.objsubid = 0 AND d.refclassid = CAST('pg_namespace' AS regclass)), '') AS moved
FROM pg_class c WHERE c.oid = :relation
"""  # noqa: S608 - no value of a user's
_COLUMNS = """
SELECT CAST(a.attnum AS text) AS number, CAST(a.attname AS text) AS name, CAST(a.xmin AS text) AS version,
  CAST(t.oid AS text) AS kind, format('%s%s', t.typname, '(' || NULLIF(a.atttypmod, -1) || ')') AS type,
  (SELECT left(CAST(l.attmissingval AS text), 100) FROM pg_attribute l WHERE l.atthasmissing AND l.attname = a.attname
    AND (l.attrelid = a.attrelid OR l.attrelid IN (SELECT relid FROM pg_partition_tree(a.attrelid))) LIMIT 1) AS filled
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum
"""
_PARTS = f"""
SELECT CAST(c.oid AS text) AS number, n.nspname || '.' || c.relname AS name, CAST(c.relfilenode AS text) AS node,
  CAST(c.reltoastrelid AS text) AS toast, {_VERSION},
  (SELECT string_agg(CAST(i.xmin AS text), ',' ORDER BY i.inhrelid) FROM pg_partition_ancestors(c.oid) above
    JOIN pg_inherits i ON i.inhrelid = above.relid) AS joined
FROM pg_partition_tree(:relation) p JOIN pg_class c ON c.oid = p.relid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.isleaf AND c.oid <> :relation ORDER BY c.oid
"""  # noqa: S608 - no value of a user's
_LINKS = """
SELECT CAST(i.xmin AS text) AS version, CAST(i.cmin AS text) AS command,
  CAST(a.xmin AS text) <> CAST(i.xmin AS text) AS is_attached,
  CASE WHEN has_table_privilege(CAST(:part AS oid), 'SELECT') AND NOT row_security_active(CAST(:part AS oid))
    THEN CAST(CAST(:part AS oid) AS regclass)
    WHEN has_table_privilege(pg_partition_root(CAST(:part AS oid)), 'SELECT')
    THEN pg_partition_root(CAST(:part AS oid)) END AS rows
FROM pg_partition_ancestors(CAST(:part AS oid)) above JOIN pg_inherits i ON i.inhrelid = above.relid
JOIN pg_attribute a ON a.attrelid = above.relid AND a.attname = 'ctid'
"""
_LABELS = """
SELECT DISTINCT a.attnum || '/' || e.oid AS number, e.enumlabel || '@' || e.xmin AS label
FROM pg_attribute a JOIN pg_enum e ON e.enumtypid = a.atttypid
WHERE a.attrelid = :relation AND a.attnum > 0 AND NOT a.attisdropped ORDER BY 1
"""
