"""Forms of messages: whatever a converter makes of a change, the table has the types and values of the source."""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError, RetriableError
from spark_jobs.rooms.sources.kafka.log import SchemaRegistry
from tests.kafka.broker import Broker
from tests.kafka.topics import Topic

_SPACE = "crm.shop.t"
ROW = {
    "type": "record", "name": "Value", "namespace": _SPACE, "fields": [
        {"name": "id", "type": "long"},
        {"name": "amount", "type": ["null", {
            "type": "bytes", "scale": 2, "precision": 10, "connect.version": 1, "logicalType": "decimal",
            "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"},
            "connect.name": "org.apache.kafka.connect.data.Decimal",
        }]},
        {"name": "born", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
        {"name": "seen", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "big", "type": ["null", "long"]},
        {"name": "spot", "type": ["null", {"type": "record", "name": "Point", "namespace": "io.debezium.data.geometry",
                                           "fields": [{"name": "x", "type": "double"}]}]},
    ],
}  # fmt: skip
VALUE = {
    "type": "record", "name": "Envelope", "namespace": _SPACE, "fields": [
        {"name": "before", "type": ["null", ROW], "default": None},
        {"name": "after", "type": ["null", f"{_SPACE}.Value"], "default": None},
        {"name": "source", "type": {"type": "record", "name": "Source", "fields": [
            {"name": "connector", "type": "string"}, {"name": "lsn", "type": "long"},
            {"name": "sequence", "type": "string"}, {"name": "ts_ms", "type": "long"},
        ]}},
        {"name": "op", "type": "string"},
    ],
}  # fmt: skip
KEY = {"type": "record", "name": "Key", "namespace": _SPACE, "fields": [{"name": "id", "type": "long"}]}
KEY_OF_POINTS = {**KEY, "fields": [*KEY["fields"], {"name": "spot", "type": {
    "type": "record", "name": "Point", "namespace": "io.debezium.data.geometry",
    "fields": [{"name": "x", "type": "double"}],
}}]}  # fmt: skip
DDL = {"type": "record", "name": "SchemaChangeValue", "fields": [
    {"name": "source", "type": {"type": "record", "name": "Source", "fields": [{"name": "db", "type": "string"}]}},
    {"name": "ddl", "type": "string"},
]}  # fmt: skip


@dataclass
class Registry:
    """A schema registry over HTTP; what it holds is numbered from 1 on.

    Attributes:
        asked: paths of requests.
        user: that it asks for, in base64; empty: none.
    moved_to: address to which it sends all requests; `raw`: its answer to each; empty, null: those of a registry.
    """

    schemas: list[dict[str, Any]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    user: str = ""
    url: str = ""
    moved_to: str = ""
    raw: bytes | None = None

    def add(self, schema: Any, kind: str = "AVRO") -> int:
        self.schemas.append({"schema": json.dumps(schema), **({} if kind == "AVRO" else {"schemaType": kind})})
        return len(self.schemas)


class _Handler(BaseHTTPRequestHandler):
    registry: Registry

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        self.registry.asked.append(self.path)
        number = int(self.path.rpartition("/")[2])
        is_let_in = self.headers.get("Authorization", "").removeprefix("Basic ") == self.registry.user
        known = number <= len(self.registry.schemas)
        body = json.dumps(self.registry.schemas[number - 1] if known else {"error_code": 40403}).encode()
        body = body if self.registry.raw is None else self.registry.raw
        known = known or self.registry.raw is not None
        self.send_response(401 if not is_let_in else 302 if self.registry.moved_to else 200 if known else 404)
        if self.registry.moved_to:
            self.send_header("Location", self.registry.moved_to + self.path)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving() -> Iterator[Registry]:
    registry = Registry()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"registry": registry}))
    registry.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield registry
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as found:
        yield found


def encoded(number: int, schema: Any, value: Any) -> bytes:
    """A message as Confluent's serializer writes it."""
    content = io.BytesIO()
    fastavro.schemaless_writer(content, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + content.getvalue()


def row(key: int, **values: Any) -> dict[str, Any]:
    seen = int(datetime(2024, 3, 31, 2, 30, tzinfo=UTC).timestamp() * 10**6) + 123456
    return {"id": key, "amount": Decimal("-12345678.90"), "born": 19000, "seen": seen, "big": 2**62 + 1,
            "spot": {"x": 0.1}, **values}  # fmt: skip


def envelope(op: str, place: int, before: Any = None, after: Any = None) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": place, "sequence": f'["{place}","{place}"]', "ts_ms": place}
    return {"op": op, "before": before, "after": after, "source": source}


EXPECTED = {
    "amount": Decimal("-12345678.90"), "born": date(2022, 1, 8), "seen": datetime(2024, 3, 31, 2, 30, 0, 123456),  # noqa: DTZ001 - as the source's
    "big": 2**62 + 1, "spot": {"x": 0.1},
}  # fmt: skip


@pytest.mark.parametrize("key_schema", [KEY, KEY_OF_POINTS])
def test_avro_keeps_types_and_values(key_schema: Any, registry: Registry, kafka: Broker, tmp_path: Path) -> None:
    value, key = registry.add(VALUE), registry.add(key_schema)
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    keys = [encoded(key, key_schema, {"id": i, "spot": {"x": 1.0}}) for i in range(4)]
    topic.send((keys[i], encoded(value, VALUE, envelope("c", i + 1, after=row(i)))) for i in range(4))
    topic.run()
    assert topic.rows() == [{"id": i, **EXPECTED} for i in range(4)]
    schema = pa.schema(DeltaTable(topic.lake.layout(topic.spec).replica).schema().to_arrow())
    assert schema.field("amount").type == pa.decimal128(10, 2)
    topic.send([
        (keys[1], encoded(value, VALUE, envelope("d", 10, before=row(1)))), (keys[1], None),
        (keys[2], encoded(value, VALUE, envelope("d", 11))), (keys[2], None),  # the key is in the message's alone
        (keys[3], encoded(value, VALUE, envelope("u", 12, row(3), row(3, amount=None, spot=None)))),
    ])  # fmt: skip
    topic.run()
    assert topic.rows() == [{"id": 0, **EXPECTED}, {"id": 3, **EXPECTED, "amount": None, "spot": None}]
    assert sorted(registry.asked) == ["/schemas/ids/1", "/schemas/ids/2"], "a schema is asked for once"


def test_schema_that_changes_among_the_messages(registry: Registry, kafka: Broker, tmp_path: Path) -> None:
    wider = json.loads(json.dumps(VALUE))
    wider["fields"][0]["type"][1]["fields"].append({"name": "added", "type": ["null", "string"], "default": None})
    first, second, ddl = registry.add(VALUE), registry.add(wider), registry.add(DDL)
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    topic.send([
        (None, encoded(first, VALUE, envelope("c", 1, after=row(1)))),
        (None, encoded(second, wider, envelope("c", 2, after=row(2, added="new")))),
        (None, encoded(ddl, DDL, {"source": {"db": "crm"}, "ddl": "ALTER TABLE t"})),
        (None, encoded(first, VALUE, envelope("c", 3, after=row(3)))),
    ])  # fmt: skip
    found = topic.run()
    assert {one["id"]: one["added"] for one in topic.rows()} == {1: None, 2: "new", 3: None}
    assert [one.message[:10] for one in found.warnings if one.code == "MESSAGES_IGNORED"] == ["1 messages"]
    assert len(topic.files()) == 3


def test_json_with_schemas_and_of_a_registry(registry: Registry, kafka: Broker, tmp_path: Path) -> None:
    names = {"id": "int64", "v": "string"}
    fields = [{"field": name, "type": kind, "optional": True} for name, kind in names.items()]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields, "optional": True}]}
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    plain, of_registry = envelope("c", 2, after={"id": 2, "v": "x"}), registry.add({"type": "object"}, "JSON")
    topic.send([
        (None, {"schema": schema, "payload": envelope("c", 1, after={"id": 1, "v": "wrapped"})}),
        (None, b"\0" + of_registry.to_bytes(4, "big") + json.dumps(plain).encode()),
    ])  # fmt: skip
    topic.run()
    assert topic.rows() == [{"id": 1, "v": "wrapped"}, {"id": 2, "v": "x"}]


@pytest.mark.parametrize(
    ("number", "options", "code"),
    [
        (1, {"schema_registry": None}, "TOPIC_UNREADABLE"),
        (99, {}, "TOPIC_UNREADABLE"),
        (2, {}, "TOPIC_UNREADABLE"),
        (1, {"schema_registry": "http://127.0.0.1:1"}, "SOURCE_UNREACHABLE"),
    ],
)
def test_messages_that_can_not_be_read(
    number: int, options: dict[str, Any], code: str, registry: Registry, kafka: Broker, tmp_path: Path
) -> None:
    registry.add(VALUE)
    registry.add("message M {}", "PROTOBUF")
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url, **options}).create()
    topic.send([(None, encoded(number, VALUE, envelope("c", 1, after=row(1))))])
    found = topic.outcome()
    assert (found.error and found.error.code) == code
    assert topic.files() == {}
    topic.options = {"schema_registry": registry.url}
    if number == 1:
        topic.run()
        assert [one["id"] for one in topic.rows()] == [1], "nothing was passed over"


def test_registry_that_asks_for_a_user(
    registry: Registry, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry.add(VALUE)
    registry.user = "Z2RkbDpodXNo"
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    topic.send([(None, encoded(1, VALUE, envelope("c", 1, after=row(1))))])
    found = topic.outcome()
    assert (found.error and found.error.code) == "SOURCE_REFUSED"
    monkeypatch.setenv("GDDL_SOURCE_KAFKA", json.dumps({"schema.registry.basic.auth.user.info": "gddl:hush"}))
    topic.options = {**topic.options, "kafka_connection": "GDDL_SOURCE_KAFKA"}
    topic.run()
    assert [one["id"] for one in topic.rows()] == [1]


def test_login_in_the_address_of_a_registry_is_used_and_not_shown(
    registry: Registry, kafka: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients of Confluent's take user and password there."""
    registry.add(VALUE)
    registry.user = "Z2RkbDpodXNo"
    topic = Topic(kafka, tmp_path, options={"kafka_connection": "GDDL_SOURCE_KAFKA"}).create()
    topic.send([(None, encoded(1, VALUE, envelope("c", 1, after=row(1))))])
    for login, code in (("gddl:w%72ong", "SOURCE_REFUSED"), ("gddl:hu%73h", None)):
        address = registry.url.replace("//", f"//{login}@")
        monkeypatch.setenv("GDDL_SOURCE_KAFKA", json.dumps({"schema.registry.url": address}))
        found = topic.outcome()
        assert (found.error and found.error.code) == code
        assert not any(secret in repr(found) for secret in ("w%72ong", "wrong", "hu%73h", "hush"))
    assert [one["id"] for one in topic.rows()] == [1]


def test_registry_that_sends_elsewhere_sends_no_password_there() -> None:
    with serving() as registry, serving() as other:
        registry.add(VALUE)
        other.add(VALUE)
        registry.user, registry.moved_to, other.user = "Z2RkbDpodXNo", other.url, "Z2RkbDpodXNo"
        with pytest.raises(FatalError, match="answers 401"):
            SchemaRegistry(registry.url, "gddl:hush").schema(1)
        other.user = ""
        assert SchemaRegistry(registry.url, "gddl:hush").schema(1).schema == VALUE


@pytest.mark.parametrize("answer", [b"[]", b'{"id": 1}', b'{"schema": 1}', b"<html>", b""])
def test_registry_that_answers_something_else_is_asked_again(registry: Registry, answer: bytes) -> None:
    registry.raw = answer
    with pytest.raises(RetriableError, match="SOURCE_UNREACHABLE"):
        SchemaRegistry(registry.url).schema(1)
    registry.raw = None
    registry.add(VALUE)
    assert SchemaRegistry(registry.url).schema(1).schema == VALUE


def test_message_of_another_schema_than_it_names_is_no_row(registry: Registry, kafka: Broker, tmp_path: Path) -> None:
    registry.add(VALUE)
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    messages = [encoded(1, VALUE, envelope("c", number, after=row(number))) for number in range(4)]
    topic.send([(None, messages[0])])
    topic.run()
    topic.send([(None, messages[1] + messages[2][5:]), (None, messages[3])])
    found = topic.outcome()
    assert [one["id"] for one in topic.rows()] == [0, 3], "row 2 is no row, and row 3 not replaced by it"
    assert [found.files_in_quarantine, found.quarantined, found.changes_written] == [0, 1, 1]


def test_damaged_messages_are_rows_in_quarantine_and_others_go_through(
    registry: Registry, kafka: Broker, tmp_path: Path
) -> None:
    """Messages are cut short, or other bytes are in them; what still is a message of its schema is a row."""
    registry.add(VALUE)
    topic = Topic(kafka, tmp_path, options={"schema_registry": registry.url}).create()
    chance = random.Random(7)  # noqa: S311 - repeatable by its seed
    whole = [encoded(1, VALUE, envelope("c", number, after=row(number))) for number in range(60)]
    damaged = {number: _damaged(whole[number], chance) for number in range(1, 60, 3)}
    topic.send([(None, damaged.get(number, message)) for number, message in enumerate(whole)])
    found = topic.outcome()
    kept = [number for number, message in damaged.items() if _is_of(VALUE, message)]
    right = {number for number in range(60) if number not in damaged}
    assert found.files_in_quarantine == 0
    assert found.quarantined >= len(damaged) - len(kept) > 10
    assert {one["id"] for one in topic.rows()} >= right
    assert found.rows_read == 60


def _damaged(message: bytes, chance: random.Random) -> bytes:
    if chance.random() < 0.5:
        return message[: chance.randrange(6, len(message))]
    at = chance.randrange(5, len(message) - 8)
    return message[:at] + chance.randbytes(8) + message[at + 8 :]


def _is_of(schema: Any, message: bytes) -> bool:
    content = io.BytesIO(message[5:])
    try:
        fastavro.schemaless_reader(content, schema)
    except Exception:  # noqa: BLE001 - any error of the reader
        return False
    return not content.read(1)
