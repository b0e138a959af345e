"""Messages of a topic as change files that the dialect reads: JSON lines, or Avro containers.

No value is decoded, so that no type can change: a line of JSON is a message's text, a record of a container its bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from airflow_gddl.contract.codes import TOPIC_UNREADABLE
from airflow_gddl.contract.errors import FatalError
from spark_jobs.rooms.dialects.debezium.avro_files import LENGTHS, MAGIC, encoded_lengths

_HEADER = 5
"""Bytes before a message of a registry: zero, and the number of its schema."""
_DELETE = re.compile(rb'"op"\s*:\s*"d"')
_DDL = b'"ddl"'
_BLOCK_BYTES = 256 * 1024
_NAMED = ("record", "error", "enum", "fixed")
_Schemas = tuple[Any, Any]
"""Avro's schemas of value and key; None: the key has none."""


@dataclass(frozen=True)
class Message:
    """A message of a partition.

    Attributes:
        time: milliseconds since the epoch, by the producer's or the broker's clock.
        value: None: a tombstone.
    """

    offset: int
    time: int
    key: bytes | None
    value: bytes | None

    @property
    def size(self) -> int:
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema by its id; it never changes.

    Attributes:
        kind: `AVRO`, `JSON` or `PROTOBUF`.
        schema: Avro's, as JSON; null for the others.
    """

    kind: str
    schema: Any


@dataclass(frozen=True)
class TopicFile:
    """A change file.

    Attributes:
        first: offset of its first message; `time`: of that message, milliseconds since the epoch.
        digest: of its messages.
        ending: of its name.
        content: compressed.
    """

    first: int
    time: int
    digest: str
    ending: str
    content: bytes


@dataclass
class TopicFiles:
    """Makes files of messages.

    Attributes:
        topic: for errors.
        schema_of: gives the schema of a number in a registry; None: none is named.
        ignored: messages so far that are no changes of rows: changes of the schema.
        lone: tombstones so far whose delete Kafka has compacted away.
    """

    topic: str
    schema_of: Callable[[int], RegisteredSchema] | None
    ignored: int = 0
    lone: int = 0

    def of(self, messages: Sequence[Message], *, follows: bool) -> Iterator[TopicFile]:
        """Files of messages that follow each other, most often one; another with each change of their schema.

        Args:
            follows: messages before the first were read, so that a tombstone without its delete is a delete lost.

        Raises:
            FatalError: `TOPIC_UNREADABLE`: they are neither JSON nor of a registry.
            GddlError: as `schema_of`.
        """
        self.lone += _lone(messages) if follows else 0
        changes = [message for message in messages if message.value is not None]
        for schemas, group in groupby(changes, self._schemas):
            batch = list(group)
            kept = [one for one in batch if not self._is_ignored(one, schemas)]
            self.ignored += len(batch) - len(kept)
            if kept:
                yield self._file(kept, schemas)

    def _schemas(self, message: Message) -> _Schemas | None:
        """None: the value is JSON."""
        number = _number(message.value)
        if number is None:
            return None
        if self.schema_of is None:
            what = f"offset {message.offset} of {self.topic} begins as a message of a schema registry, or is no JSON"
            raise FatalError(TOPIC_UNREADABLE, what, remedy="name the registry in schema_registry")
        if (value := self.schema_of(number)).kind == "JSON":
            return None
        if value.kind != "AVRO":
            what = f"offset {message.offset} of {self.topic} is of type {value.kind}"
            raise FatalError(TOPIC_UNREADABLE, what, remedy="let the connector write JSON or Avro")
        number = _number(message.key)
        key = None if number is None else self.schema_of(number)
        return value.schema, None if key is None or key.kind != "AVRO" else key.schema

    def _is_ignored(self, message: Message, schemas: _Schemas | None) -> bool:
        """Whether it is of a schema change topic."""
        if schemas is None:
            return _DDL in (message.value or b"") and _is_of_a_schema(_parts(_json(message.value)))
        schema, _ = schemas
        fields = schema.get("fields", ()) if isinstance(schema, Mapping) else ()
        return _is_of_a_schema({part["name"]: part["type"] for part in fields})

    def _file(self, messages: Sequence[Message], schemas: _Schemas | None) -> TopicFile:
        if schemas is None:
            data = b"".join(_line(message) for message in messages)
            ending, content = ".json.gz", gzip.compress(data, compresslevel=3, mtime=0)
            digest = hashlib.blake2b(data, digest_size=4)
        else:
            value, key = schemas
            schema = json.dumps(_wrapped(key, value))
            records = [_record(message, has_key=key is not None) for message in messages]
            digest = hashlib.blake2b(b"".join([schema.encode(), *records]), digest_size=4)
            ending, content = ".avro", avro_container(schema, records)
        return TopicFile(messages[0].offset, messages[0].time, digest.hexdigest(), ending, content)


def _is_of_a_schema(parts: Mapping[str, Any]) -> bool:
    """Whether these fields, or their types in Avro, are a schema change's; a flat event may have a column `ddl`."""
    return "ddl" in parts and "op" not in parts and isinstance(parts.get("source"), Mapping)


def _parts(data: bytes) -> Mapping[str, Any]:
    """A JSON object, or its payload; empty: it is none."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    document = (
        document["payload"] if isinstance(document, dict) and document.keys() == {"schema", "payload"} else document
    )
    return document if isinstance(document, dict) else {}


def _lone(messages: Iterable[Message]) -> int:
    """Tombstones right behind a gap: what Kafka has removed there was their delete."""
    count, expected = 0, None
    for message in messages:
        count += message.value is None and expected is not None and message.offset != expected
        expected = message.offset + 1
    return count


def _number(data: bytes | None) -> int | None:
    return (
        int.from_bytes(data[1:_HEADER], "big")
        if data is not None and data[:1] == b"\0" and len(data) > _HEADER
        else None
    )


def _line(message: Message) -> bytes:
    """A line of JSON; a delete with its key, which its row may lack."""
    value, key = _json(message.value), _json(message.key)
    if key.startswith(b"{") and _DELETE.search(value):
        return b'{"key":' + key + b',"value":' + value + b"}\n"
    return (value if value.startswith(b"{") else b'{"value":' + value + b"}") + b"\n"


def _json(data: bytes | None) -> bytes:
    """On one line: between the values of JSON a line break is a space, and inside a text there is none."""
    text = (data or b"")[_HEADER if data is not None and data[:1] == b"\0" else 0 :]
    return text.replace(b"\n", b" ").replace(b"\r", b" ").strip()


def _record(message: Message, *, has_key: bool) -> bytes:
    key = (message.key or b"")[_HEADER:] if has_key else b""
    return key + (message.value or b"")[_HEADER:]


def _wrapped(key: Any, value: Any) -> Any:
    """Schema of a record with the key beside the value, as sinks write it; without a key the value's."""
    if key is None:
        return value
    fields = [{"name": "key", "type": key}, {"name": "value", "type": _without_known(value, _names(key, ""), "")}]
    return {"type": "record", "name": "gddl_message", "fields": fields}


def _names(schema: Any, space: str) -> dict[str, Any]:
    """Types that a schema defines, by their full names."""
    if isinstance(schema, list):
        return {name: definition for part in schema for name, definition in _names(part, space).items()}
    if not isinstance(schema, Mapping):
        return {}
    name, space = _full_name(schema, space)
    definitions = {name: schema} if name else {}
    inner = [part["type"] for part in schema.get("fields", ())] + [schema.get(of) for of in ("items", "values", "type")]
    for part in inner:
        definitions |= _names(part, space) if not isinstance(part, str) else {}
    return definitions


def _without_known(schema: Any, known: Mapping[str, Any], space: str) -> Any:
    """The schema with names for types that are defined before it: Avro takes no second definition."""
    if isinstance(schema, list):
        return [_without_known(part, known, space) for part in schema]
    if not isinstance(schema, Mapping):
        return schema
    name, space = _full_name(schema, space)
    if name and name in known:
        return name
    changed = {of: _without_known(schema[of], known, space) for of in ("items", "values", "type") if of in schema}
    if "fields" in schema:
        changed["fields"] = [{**part, "type": _without_known(part["type"], known, space)} for part in schema["fields"]]
    return {**schema, **changed}


def _full_name(schema: Mapping[str, Any], space: str) -> tuple[str, str]:
    """Of a named type; empty: it is none; and the namespace of what is in it."""
    if schema.get("type") not in _NAMED:
        return "", space
    name = str(schema["name"])
    space = name.rpartition(".")[0] if "." in name else str(schema.get("namespace", space))
    return (name if "." in name or not space else f"{space}.{name}"), space


def avro_container(schema: str, records: Sequence[bytes]) -> bytes:
    """A container file of encoded records, compressed by deflate; the same for the same records."""
    sync = hashlib.blake2b(schema.encode(), digest_size=16).digest()
    entries = {b"avro.schema": schema.encode(), b"avro.codec": b"deflate", LENGTHS: encoded_lengths(records)}
    header = b"".join(_long(len(part)) + part for entry in entries.items() for part in entry)
    parts = [MAGIC, _long(len(entries)), header, _long(0), sync]
    block: list[bytes] = []
    size = 0
    for at, record in enumerate(records):
        block.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES or at == len(records) - 1:
            deflating = zlib.compressobj(3, zlib.DEFLATED, -15)
            data = deflating.compress(b"".join(block)) + deflating.flush()
            parts += [_long(len(block)), _long(len(data)), data, sync]
            block, size = [], 0
    return b"".join(parts)


def _long(value: int) -> bytes:
    """As Avro writes whole numbers."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append((value & 0x7F) | 0x80)
        value >>= 7
    return bytes((*encoded, value))
