"""Columns with a default: what stands for null, and what rows from before a column have."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.schema_evolution import ColumnDefault, of_added_columns
from tests.conftest import LocalPort
from tests.debezium.topic import Topic, parquet, warnings_of

T = 1_700_000_000_000


def event(row: dict[str, Any], lsn: int) -> dict[str, Any]:
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": T + lsn, "snapshot": None}
    return {"before": None, "after": row, "op": "c", "source": source}


def column(name: str, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": name, **more}


ID = column("id", "int32")
STOCK, NOTE = column("stock", "int32", default=5), column("note", "string", default="none")


def json_lines(*columns: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    parts = [
        {"type": "struct", "optional": True, "field": side, "fields": list(columns)} for side in ("before", "after")
    ]
    schema = {"type": "struct", "fields": parts, "name": "p.s.t.Envelope"}
    return "".join(json.dumps({"schema": schema, "payload": event(row, row["id"])}) + "\n" for row in rows)


def avro_schema(*columns: dict[str, Any]) -> dict[str, Any]:
    types = {"int32": "int", "string": "string"}
    fields = []
    for one in columns:
        bare: Any = types[one["type"]]
        bare = {"type": bare, "connect.default": one["default"]} if "default" in one else bare
        fields.append({"name": one["field"], "type": ["null", bare] if one["optional"] else bare})
    value = {"type": "record", "name": "Value", "fields": fields}
    source = {"type": "record", "name": "Source", "fields": [
        {"name": "connector", "type": "string"}, {"name": "lsn", "type": "long"}, {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": ["null", "string"]},
    ]}  # fmt: skip
    return {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", value]}, {"name": "after", "type": ["null", "Value"]},
        {"name": "op", "type": "string"}, {"name": "source", "type": source},
    ]}  # fmt: skip


def avro(*columns: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    sink = io.BytesIO()
    fastavro.writer(sink, avro_schema(*columns), [event(row, row["id"]) for row in rows])
    return sink.getvalue()


def as_parquet(*columns: dict[str, Any], rows: list[dict[str, Any]]) -> bytes:
    kinds = {"int32": pa.int32(), "string": pa.string()}
    row = pa.struct([(one["field"], kinds[one["type"]]) for one in columns])
    source = pa.struct(
        [("connector", pa.string()), ("lsn", pa.int64()), ("ts_ms", pa.int64()), ("snapshot", pa.string())]
    )
    schema = pa.schema([("before", row), ("after", row), ("op", pa.string()), ("source", source)])
    table = pa.Table.from_pylist([event(one, one["id"]) for one in rows], schema=schema)
    return parquet(table.replace_schema_metadata({"parquet.avro.schema": json.dumps(avro_schema(*columns))}))


FORMS: dict[str, tuple[Any, str]] = {
    "json": (json_lines, "json"),
    "avro": (avro, "avro"),
    "parquet": (as_parquet, "parquet"),
}


@pytest.mark.parametrize("form", FORMS)
def test_a_null_in_a_column_with_a_default_is_null(engine: LocalPort, tmp_path: Path, form: str) -> None:
    """And shows that the converter keeps nulls, so that a value is one; `source.snapshot` is null then, too."""
    write, ending = FORMS[form]
    topic = Topic(engine, tmp_path)
    rows = [{"id": 1, "stock": None, "note": None}, {"id": 2, "stock": 5, "note": "none"}]
    topic.land(write(ID, STOCK, NOTE, rows=rows), ending)
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "stock", "note") == [(1, None, None), (2, 5, "none")]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("setting", "codes"), [
    ({}, ["DEFAULT_OR_NULL"]), ({"replace_null_with_default": False}, []), ({"replace_null_with_default": True}, []),
])  # fmt: skip
def test_a_value_that_may_stand_for_null_asks_for_the_setting(
    engine: LocalPort, tmp_path: Path, form: str, setting: dict[str, Any], codes: list[str]
) -> None:
    write, ending = FORMS[form]
    topic = Topic(engine, tmp_path, options=setting)
    topic.land(
        write(ID, STOCK, NOTE, rows=[{"id": 1, "stock": 5, "note": "x"}, {"id": 2, "stock": 7, "note": "y"}]), ending
    )
    done = topic.run()
    assert warnings_of(done) == codes
    assert [(one.count, one.sample) for one in done.warnings] == [(1, ("stock",))] * len(codes)


def test_a_default_of_a_column_without_null_says_nothing_of_null(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(json_lines(ID, {**STOCK, "optional": False}, rows=[{"id": 1, "stock": 5}]))
    assert warnings_of(topic.run()) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_column_that_is_added_with_a_default_is_named(engine: LocalPort, tmp_path: Path, form: str) -> None:
    """Rows from before have null, where the source may have the default."""
    write, ending = FORMS[form]
    topic = Topic(engine, tmp_path, rename={"c1": "c2"})
    topic.land(write(ID, rows=[{"id": 1}]), ending)
    assert warnings_of(topic.run()) == []
    added = column("c1", "int32", default=11) | {"optional": False}
    topic.land(write(ID, added, rows=[{"id": 2, "c1": 22}]), ending)
    done = topic.run()
    assert [(one.code, one.sample) for one in done.warnings] == [("ADDED_COLUMN_DEFAULT", ("c1 default 11",))]
    topic.land(write(ID, added, rows=[{"id": 3, "c1": 33}]), ending)
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "c2") == [(1, None), (2, 22), (3, 33)]


@pytest.mark.parametrize(("texts", "sample"), [
    (("11",), ("c default 11",)), (("null",), ()), (("11", "null"), ("c default 11",)), ((), ()),
])  # fmt: skip
def test_a_default_of_null_says_nothing_of_rows_from_before(texts: tuple[str, ...], sample: tuple[str, ...]) -> None:
    defaults = [ColumnDefault("c", text) for text in texts]
    found = of_added_columns(TableSpec(table="s.t", keys=("id",)), ["C"], defaults)
    assert tuple(one for warning in found for one in warning.sample) == sample
