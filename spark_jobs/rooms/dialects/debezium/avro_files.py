"""Avro container files of Debezium's events, with Connect's names of types in their schemas."""

from __future__ import annotations

import base64
import importlib
import io
import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import IO, Any

from airflow_gddl.contract.codes import PACKAGE_MISSING
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.stores.readers import too_large
from spark_jobs.rooms.dialects.debezium.change_events import Record

MAGIC = b"Obj\x01"
LENGTHS = b"gddl.lengths"
"""Metadata of a container whose records are messages: the bytes of each, see `encoded_lengths`."""
Schema = Any

_PRIMITIVES = {"int": "int32", "long": "int64", "enum": "string", "fixed": "bytes"}
_LOGICAL = {
    "date": "org.apache.kafka.connect.data.Date",
    "time-millis": "org.apache.kafka.connect.data.Time",
    "timestamp-millis": "org.apache.kafka.connect.data.Timestamp",
    "decimal": "org.apache.kafka.connect.data.Decimal",
    "time-micros": "io.debezium.time.MicroTime",
    "local-timestamp-millis": "io.debezium.time.Timestamp",
    "local-timestamp-micros": "io.debezium.time.MicroTimestamp",
}
"""Avro's logical types to Connect's names, where a schema has no name of Connect."""


def avro_records(data: bytes, most: int, where: str) -> Iterator[tuple[str | None, Record]]:
    """Records of a file in order, with their schema in Connect's form.

    A message that can't be decoded comes as its bytes, in the text of a JSON object: it is no event. Other records come
    without their text; one that can't be decoded makes the file unreadable, since nothing tells where the next begins.

    Args:
        most: bytes that the records may take without compression.
        where: the file, for errors.

    Raises:
        FatalError: `PACKAGE_MISSING`: fastavro, or the package of a compression.
        QuarantinableError: `FILE_TOO_LARGE`.
        ValueError: it is damaged, or cut short.
    """
    try:
        with needed_by("a job that reads Avro files", install="airflow-gddl[avro]", where=where):
            fastavro = importlib.import_module("fastavro")
        blocks = fastavro.block_reader(io.BytesIO(data))
        written = blocks.writer_schema
        schema = connect_schema(written)
        bare = _without_logical_types(written)
        decode = partial(fastavro.schemaless_reader, writer_schema=bare)
        lengths = _lengths(blocks.metadata, most)
        size = 0
        for block in blocks:
            content = block.bytes_
            size += content.seek(0, io.SEEK_END)
            _require_bounded(block.num_records, size, most, where)
            content.seek(0)
            for _ in range(block.num_records):
                if lengths is None:
                    yield None, _record(decode(content), schema)
                else:
                    yield _message(content.read(next(lengths)), decode, schema)
            _require_read(content)
    except ValueError as error:
        if "need to install" not in str(error):
            raise
        what = f"a job that reads Avro files needs the package of their compression: {error}"
        remedy = "pip install 'airflow-gddl[avro]', which has snappy and zstandard; write the files with one of these"
        raise FatalError(PACKAGE_MISSING, what, where=where, remedy=remedy) from error
    except (EOFError, IndexError, KeyError, StopIteration) as error:
        raise ValueError(f"a damaged Avro file, or one that ends inside a block: {error!r}") from error


def encoded_lengths(records: Iterable[bytes]) -> bytes:
    """The value of `LENGTHS`; readers take all metadata for text."""
    return base64.b64encode(zlib.compress(json.dumps([len(record) for record in records]).encode()))


def _lengths(metadata: Mapping[str, Any], most: int) -> Iterator[int] | None:
    encoded = metadata.get(LENGTHS.decode())
    if encoded is None:
        return None
    lengths: list[int] = json.loads(zlib.decompressobj().decompress(base64.b64decode(encoded), most))
    return iter(lengths)


def _message(data: bytes, decode: Callable[[IO[bytes]], Any], schema: Mapping[str, Any]) -> tuple[str | None, Record]:
    content = io.BytesIO(data)
    try:
        value = decode(content)
        _require_read(content)
    except Exception:  # noqa: BLE001 - whatever the bytes of a message raise concerns this message alone
        text = json.dumps({"message": base64.b64encode(data).decode()})
        return text, Record(text)
    return None, _record(value, schema)


def _require_read(content: IO[bytes]) -> None:
    """Refuse a block with more bytes than its records: one of them is of another schema, and those behind it were
    misread."""
    if content.read(1):
        raise ValueError("there are more bytes than the records have")


def _require_bounded(records: int, size: int, most: int, where: str) -> None:
    """
    Args:
        records: of the newest block; `size`: bytes of it and all before.
    """
    if records > size:  # no event has no byte
        raise ValueError(f"{size:,} bytes can't hold {records:,} records")
    if size > most:
        raise too_large(f"it holds more than {most:,} bytes without compression", where)


def _record(value: Any, schema: Mapping[str, Any]) -> Record:
    """Without the `key` and `value` that a sink may write around events."""
    parts = {part["field"]: part for part in schema.get("fields", ())}
    if isinstance(value, Mapping) and "value" in parts and parts.keys() <= _OF_SINK:
        return Record(value["value"], parts["value"], _key(value.get("key"), parts.get("key")))
    return Record(value, schema)


_OF_SINK = frozenset({"key", "value", "offset", "timestamp", "headers", "topic", "partition"})


def _key(value: Any, schema: Mapping[str, Any] | None) -> Any:
    return None if value is None else {"schema": schema, "payload": value}


def _without_logical_types(schema: Schema) -> Schema:
    """The values are converted by their names in Connect, of which Avro knows few."""
    if isinstance(schema, Mapping):
        return {name: _without_logical_types(part) for name, part in schema.items() if name != "logicalType"}
    return [_without_logical_types(part) for part in schema] if isinstance(schema, list) else schema


def connect_schema(schema: Schema) -> dict[str, Any]:
    """Connect's schema, in the form that its JSON converter gives it, of Avro's."""
    return _Connect().of(schema)


class _Connect:
    """Schemas of Connect, in the form that its JSON converter gives them, of Avro's."""

    def __init__(self) -> None:
        self._records: dict[str, Schema] = {}

    def of(self, schema: Schema) -> dict[str, Any]:
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            optional = {"optional": True} if len(branches) < len(schema) else {}
            return {**self.of(branches[0]), **optional} if len(branches) == 1 else {"type": "union"}
        if isinstance(schema, str):
            # A definition within a record leaves out the namespace that it has from this one.
            known = self._records.get(schema) or self._records.get(schema.rpartition(".")[2])
            return known or {"type": _PRIMITIVES.get(schema, schema)}
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.of(kind)
        description: dict[str, Any] = {"type": schema.get("connect.type") or _PRIMITIVES.get(kind, kind)}
        if kind in ("record", "enum", "fixed"):
            self._remember(schema, description)
        if kind == "record":
            description["type"] = "struct"
            description["fields"] = [{**self.of(part["type"]), "field": part["name"]} for part in schema["fields"]]
        elif kind == "array":
            description["items"] = self.of(schema["items"])
        elif kind == "map":
            description |= {"keys": {"type": "string"}, "values": self.of(schema["values"])}
        description.update(_named(schema))
        if schema.get("connect.default") is not None:
            description["default"] = schema["connect.default"]
        return description

    def _remember(self, schema: Schema, description: dict[str, Any]) -> None:
        name, namespace = str(schema["name"]), schema.get("namespace")
        for known in (name, name.rpartition(".")[2], f"{namespace}.{name}"):
            self._records[known] = description


def _named(schema: Mapping[str, Any]) -> dict[str, Any]:
    name = schema.get("connect.name") or _LOGICAL.get(str(schema.get("logicalType")))
    parameters = dict(schema.get("connect.parameters") or {})
    if name is None:  # those of a column whose type the connector propagates
        return {"parameters": parameters} if parameters else {}
    digits = {"scale": schema.get("scale"), "connect.decimal.precision": schema.get("precision")}
    parameters |= {key: value for key, value in digits.items() if value is not None}
    return {"name": name, "parameters": parameters}
