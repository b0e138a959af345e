"""How a PostgreSQL log describes its tables: name, columns and replica identity, as they were when rows were changed.

PostgreSQL sends this as a `Relation` message before changes of a table (protocol of logical replication). A table that
was altered, and altered back again, is described otherwise in between if rows were changed then.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import astuple, dataclass, field, replace
from typing import Any

FULL = "f"
"""Replica identity of all columns."""
_KEPT = 6


@dataclass(frozen=True, kw_only=True)
class RelationMessage:
    """A table, or a partition, as the log describes it.

    Attributes:
        number: greater than those of messages that were read before.
        relation: its number in the catalog; `name`: `schema.name`.
        columns: names; those of generated columns are no part of the log.
        identity: `relreplident` of `pg_class`; `keys`: columns that updates and deletes name.
    """

    relation: int
    name: str
    columns: tuple[str, ...]
    identity: str
    keys: tuple[str, ...]
    number: int = 0

    @classmethod
    def of(cls, data: bytes) -> RelationMessage:
        """Read a message of the protocol."""
        schema, name, rest = data[5:].split(b"\0", 2)
        at, columns, keys = 3, [], []
        for _ in range(int.from_bytes(rest[1:3], "big")):
            end = rest.index(b"\0", at + 1)
            columns.append(rest[at + 1 : end].decode("utf-8", "replace"))
            if rest[at] & 1:
                keys.append(columns[-1])
            at = end + 9
        return cls(
            relation=int.from_bytes(data[1:5], "big"),
            name=b".".join((schema, name)).decode("utf-8", "replace"),
            columns=tuple(columns), identity=chr(rest[0]), keys=tuple(keys),
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """Of all but the number."""
        return hashlib.sha256(repr(astuple(replace(self, number=0))).encode()).hexdigest()[:16]

    def is_other(self, now: RelationMessage) -> bool:
        """Whether changes from before mean something else than those that come now."""
        is_named = (self.name, self.columns) == (now.name, now.columns)
        return not is_named or (self.identity != FULL and (self.identity, self.keys) != (now.identity, now.keys))


@dataclass(frozen=True)
class RelationVersion:
    """The state of a published table, or a partition, in the catalog.

    Attributes:
        version: transaction that has altered it last; `node`: file of its rows.
        rest: name, and transactions that have altered its columns and identifying indexes last.
    """

    version: str
    node: str
    rest: str


Versions = Mapping[int, RelationVersion]


def read_versions(sa: Any, connection: Any, publication: str) -> Versions:
    """All that is published, by number; equal as long as the log describes nothing otherwise."""
    rows = connection.execute(sa.text(_VERSIONS), {"publication": publication})
    return {number: RelationVersion(*others) for number, *others in rows}


def digest_of(versions: Versions) -> str:
    """Equal for equal versions."""
    return hashlib.sha256(repr(sorted((number, astuple(one)) for number, one in versions.items())).encode()).hexdigest()


def is_altered(before: Versions, now: Versions) -> bool:
    """Whether a relation of both was altered; a new file of rows is that of a `TRUNCATE`, which the log has."""
    return any(
        one.rest != now[number].rest or (one.version != now[number].version and one.node == now[number].node)
        for number, one in before.items()
        if number in now
    )


def read_messages(sa: Any, connection: Any, slot: str, publication: str, upto: str) -> Iterator[RelationMessage]:
    """Messages of the log, from where the slot begins until `upto`, once each; nothing may read the slot meanwhile."""
    values = {"slot": slot, "publication": publication, "upto": upto}
    return (RelationMessage.of(bytes.fromhex(one)) for one in connection.execute(sa.text(_PEEKED), values).scalars())


def described(sa: Any, connection: Any, relations: Iterable[int]) -> dict[int, RelationMessage]:
    """What a message would say of these relations now."""
    rows = connection.execute(sa.text(_DESCRIBED), {"relations": list(relations)}).mappings()
    lists = ({**row, "columns": tuple(row["columns"]), "keys": tuple(row["keys"])} for row in rows)
    return {row["relation"]: RelationMessage(**row) for row in lists}


@dataclass(frozen=True, kw_only=True)
class Descriptions:
    """How a log has described its relations, as far as changes meant something else for a while.

    Attributes:
        digests: of what a message would have said of each when the log was read last, by number.
        messages: those that differ from it, and what it was when the log was read, of the relations that were altered;
            of each the newest, and one without a name in place of those before.
    """

    digests: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[RelationMessage, ...] = ()

    def of(self, relations: Collection[int]) -> tuple[RelationMessage, ...]:
        return tuple(one for one in self.messages if one.relation in relations)

    def after(self, found: Iterable[RelationMessage], now: Mapping[int, RelationMessage]) -> Descriptions:
        """With the log's messages until now, and what messages would say now of all that is published."""
        other = [one for one in found if one.relation in now and one.is_other(now[one.relation])]
        altered = [one for one in now.values() if self.digests.get(str(one.relation), one.digest) != one.digest]
        number = max((one.number for one in self.messages), default=0) + 1
        by_relation: dict[int, list[RelationMessage]] = {}
        for one in (*self.messages, *dict.fromkeys(replace(one, number=number) for one in (*other, *altered))):
            by_relation.setdefault(one.relation, []).append(one)
        return Descriptions(
            digests={str(relation): one.digest for relation, one in now.items()},
            messages=tuple(one for each in by_relation.values() for one in _newest(each)),
        )


def _newest(messages: list[RelationMessage]) -> list[RelationMessage]:
    if len(messages) <= _KEPT:
        return messages
    last = messages[-_KEPT]
    unknown = RelationMessage(relation=last.relation, name="", columns=(), identity="", keys=(), number=last.number)
    return [unknown, *messages[1 - _KEPT :]]


def since(before: tuple[RelationMessage, ...], now: tuple[RelationMessage, ...]) -> list[RelationMessage]:
    """Messages that were not there before."""
    newest = max((one.number for one in before), default=0)
    return [one for one in now if one.number > newest]


_VERSIONS = """
SELECT c.oid, CAST(c.xmin AS text), CAST(c.relfilenode AS text), concat_ws('|', n.nspname, c.relname,
  (SELECT string_agg(a.attnum || ':' || a.xmin, ',' ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = c.oid AND a.attnum > 0),
  (SELECT string_agg(i.indexrelid || ':' || i.xmin, ',' ORDER BY i.indexrelid) FROM pg_index i
    WHERE i.indrelid = c.oid AND (i.indisprimary OR i.indisreplident)))
FROM pg_publication_tables t JOIN pg_namespace s ON s.nspname = t.schemaname
JOIN pg_class r ON r.relnamespace = s.oid AND r.relname = t.tablename
LEFT JOIN LATERAL pg_partition_tree(r.oid) p ON true
JOIN pg_class c ON c.oid = COALESCE(p.relid, r.oid) JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE t.pubname = :publication ORDER BY c.oid
"""
_PEEKED = """
SELECT DISTINCT encode(data, 'hex') FROM pg_logical_slot_peek_binary_changes(CAST(:slot AS name),
  CAST(:upto AS pg_lsn), NULL, 'proto_version', '1', 'publication_names', :publication)
WHERE substr(data, 1, 1) = 'R'
"""
_DESCRIBED = """
SELECT c.oid AS relation, n.nspname || '.' || c.relname AS name, CAST(c.relreplident AS text) AS identity,
  ARRAY(SELECT CAST(a.attname AS text) FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0
    AND NOT a.attisdropped AND a.attgenerated = '' ORDER BY a.attnum) AS columns,
  ARRAY(SELECT CAST(a.attname AS text) FROM pg_attribute a JOIN pg_index i ON i.indrelid = c.oid
    AND a.attnum = ANY (i.indkey[0 : i.indnkeyatts - 1])
    AND CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate WHEN 'i' THEN i.indisreplident END
    WHERE a.attrelid = c.oid ORDER BY a.attnum) AS keys
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = ANY (CAST(:relations AS oid[]))
"""
