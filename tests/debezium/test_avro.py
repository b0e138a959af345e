"""Avro container files: the tables are those of the same events in Connect's JSON."""

from __future__ import annotations

import importlib
import io
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError, QuarantinableError
from tests.conftest import LocalPort
from tests.debezium.flattening import flat
from tests.debezium.probing import event, probe, rows_of, wrapped
from tests.debezium.topic import Topic

_PLACEHOLDER = "__debezium_unavailable_value"
CONNECT = {
    "id": {"type": "int32"}, "small": {"type": "int16"}, "v": {"type": "string"}, "raw": {"type": "bytes"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "price": {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
              "parameters": {"scale": "2", "connect.decimal.precision": "10"}},
    "tags": {"type": "array", "items": {"type": "string"}},
}  # fmt: skip
AVRO = [
    {"name": "id", "type": "int"}, {"name": "small", "type": ["null", {"type": "int", "connect.type": "int16"}]},
    {"name": "v", "type": ["null", "string"]}, {"name": "raw", "type": ["null", "bytes"]},
    {"name": "day", "type": ["null", {"type": "int", "connect.name": "io.debezium.time.Date"}]},
    {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
    {"name": "price", "type": ["null", {
        "type": "bytes", "scale": 2, "precision": 10, "logicalType": "decimal",
        "connect.name": "org.apache.kafka.connect.data.Decimal",
        "connect.parameters": {"scale": "2", "connect.decimal.precision": "10"}}]},
    {"name": "tags", "type": ["null", {"type": "array", "items": "string"}]},
]  # fmt: skip
SOURCE = {"type": "record", "name": "Source", "fields": [
    {"name": "connector", "type": "string"}, {"name": "lsn", "type": "long"}, {"name": "ts_ms", "type": "long"},
]}  # fmt: skip
ENVELOPE = {"type": "record", "name": "Envelope", "namespace": "shop.public.t", "fields": [
    {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": AVRO}]},
    {"name": "after", "type": ["null", "Value"]}, {"name": "source", "type": SOURCE}, {"name": "op", "type": "string"},
]}  # fmt: skip
ROW = {"id": 1, "small": 2, "v": "ü", "raw": b"\x00\xff", "day": 19723, "at": 5, "price": b"\x7d", "tags": ["a", "b"]}
IN_JSON = {**ROW, "raw": "AP8=", "price": "fQ=="}


def avro(schema: Any, records: Sequence[Any], codec: str = "null") -> bytes:
    fastavro = pytest.importorskip("fastavro")
    bare = json.loads(json.dumps(schema).replace('"logicalType": "decimal", ', ""))  # so that bytes are written
    sink = io.BytesIO()
    fastavro.writer(sink, bare, records, codec=codec)
    return sink.getvalue()


def events(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    kept = {**row, "v": _PLACEHOLDER}
    return [event("c", row, 1), event("u", kept, 2), event("d", {**dict.fromkeys(row), "id": 2}, 3)]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_events_are_those_of_json(tmp_path: Path, codec: str) -> None:
    found = probe(tmp_path, avro(ENVELOPE, events(ROW), codec))
    assert found.columns == probe(tmp_path, wrapped(CONNECT, *events(IN_JSON))).columns
    assert rows_of(found) == rows_of(probe(tmp_path, wrapped(CONNECT, *events(IN_JSON))))


def test_flat_events_are_those_of_json(tmp_path: Path) -> None:
    added = [{"name": name, "type": ["null", kind]} for name, kind in (
        ("__deleted", "string"), ("__op", "string"), ("__source_connector", "string"), ("__source_ts_ms", "long"),
        ("__source_snapshot", "string"), ("__source_table", "string"), ("__source_lsn", "long"),
        ("__source_sequence", "string"))]  # fmt: skip
    schema = {"type": "record", "name": "Value", "fields": [*AVRO, *added]}
    found = probe(tmp_path, avro(schema, [flat(each) for each in events(ROW)]))
    enveloped = probe(tmp_path, wrapped(CONNECT, *events(IN_JSON)))
    assert (found.columns, rows_of(found)) == (enveloped.columns, rows_of(enveloped))


def test_key_beside_the_event(tmp_path: Path) -> None:
    key = {"type": "record", "name": "Key", "fields": [AVRO[0]]}
    schema = {"type": "record", "name": "Record", "fields": [
        {"name": "key", "type": key}, {"name": "value", "type": ["null", ENVELOPE]}, {"name": "offset", "type": "long"},
    ]}  # fmt: skip
    delete = {**event("d", None), "before": None}
    found = probe(tmp_path, avro(schema, [{"key": {"id": 7}, "value": delete, "offset": 1},
                                          {"key": {"id": 7}, "value": None, "offset": 2}]))  # fmt: skip
    assert [(row["_dbz_op"], row["id"]) for row in rows_of(found)] == [("D", 7)]


@pytest.mark.parametrize("damage", ["cut", "head", "no event"])
def test_files_that_cannot_be_read(tmp_path: Path, damage: str) -> None:
    whole = avro(ENVELOPE, events(ROW))
    other = avro({"type": "record", "name": "Ddl", "fields": [{"name": "ddl", "type": "string"}]}, [{"ddl": "x"}])
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, {"cut": whole[:-30], "head": whole[:20], "no event": other}[damage])
    assert caught.value.code == "FILE_UNREADABLE"


def test_records_without_bytes_are_refused(tmp_path: Path) -> None:
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, avro({"type": "record", "name": "Nothing", "fields": []}, [{}] * 1000))
    assert "1,000 records" in caught.value.what


def test_compression_of_another_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = avro(ENVELOPE, events(ROW), "snappy")
    monkeypatch.setitem(importlib.import_module("fastavro._read").BLOCK_READERS, "snappy", _without_lz4)
    with pytest.raises(FatalError) as caught:
        probe(tmp_path, data)
    assert caught.value.code == "PACKAGE_MISSING"
    assert "lz4" in caught.value.what


def _without_lz4(*_: object) -> None:
    raise ValueError("lz4 codec is supported but you need to install one of the following libraries: lz4")


def test_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(FatalError) as caught:
        probe(tmp_path, b"Obj\x01 and more")
    assert caught.value.code == "PACKAGE_MISSING"
    assert "airflow-gddl[avro]" in (caught.value.remedy or "")


def test_tables_follow_avro_files(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(avro(ENVELOPE, events(ROW)[:1]), "avro")
    topic.run()
    topic.land(avro(ENVELOPE, [event("c", {**ROW, "id": 2}, 2), event("d", ROW, 3)], "deflate"), "avro")
    topic.run()
    assert [(key, str(day), str(price)) for key, day, price in topic.replica("id", "day", "price")] == [
        (2, "2024-01-01", "1.25")
    ]


def test_type_of_a_column_is_propagated_as_in_json(tmp_path: Path) -> None:
    """`datatype.propagate.source.type`, of a schema without a name."""
    told = {f"__debezium.source.column.{part}": value for part, value in (
        ("type", "NUMERIC"), ("length", "10"), ("scale", "2"))}  # fmt: skip
    of_avro = {"type": "string", "connect.parameters": told}
    columns = [*AVRO[:1], {"name": "amount", "type": ["null", of_avro]}]
    schema = json.loads(json.dumps(ENVELOPE))
    schema["fields"][0]["type"][1]["fields"] = columns
    row = {"id": 1, "amount": "12.50"}
    found = probe(tmp_path, avro(schema, [event("c", row, 1)]))
    connect = {"id": CONNECT["id"], "amount": {"type": "string", "optional": True, "parameters": told}}
    in_json = probe(tmp_path, wrapped(connect, event("c", row, 1)))
    assert (found.columns, rows_of(found)) == (in_json.columns, rows_of(in_json))
    assert dict(found.columns)["amount"] == "decimal(10,2)"
