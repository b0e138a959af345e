"""The placeholder of a value that the source did not send, in the forms that types of arrays and places give it."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
import uuid
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.option_checks import check_options
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.dialects.protocol import dialect_of
from tests.conftest import LocalPort
from tests.debezium.probing import event, probe, rows_of, text, wrapped
from tests.debezium.topic import Topic, parquet, warnings_of

_WORD = "__debezium_unavailable_value"
_BYTES = _WORD.encode()
_DAY, _MOMENT = date(1970, 1, 1), datetime(1970, 1, 1, tzinfo=UTC)


def _encoded(number: int) -> str:
    return base64.b64encode(number.to_bytes(4, "big", signed=True)).decode()


def _wkb(x: float, y: float) -> str:
    return base64.b64encode(struct.pack("<bIIdd", 1, 0x20000001, 4326, x, y)).decode()


FORMS: dict[str, list[Any]] = {
    "numbers": list(_BYTES),
    "fractions": [float(byte) for byte in _BYTES],
    "texts of numbers": [str(byte) for byte in _BYTES],
    "texts of fractions": [f"{byte}.00" for byte in _BYTES],
    "milliseconds": [1000 * byte for byte in _BYTES],
    "decimals of scale 2": [_encoded(100 * byte) for byte in _BYTES],
    "decimals of any scale": [{"scale": 0, "value": _encoded(byte)} for byte in _BYTES],
    "texts of dates": [f"{_DAY + timedelta(days=byte)}Z" for byte in _BYTES],
    "texts of times": [f"{(_MOMENT + timedelta(microseconds=byte)).time()}Z" for byte in _BYTES],
    "texts of instants": [(_MOMENT + timedelta(microseconds=byte)).isoformat() for byte in _BYTES],
    "a text": [_WORD],
    "bytes": [base64.b64encode(_BYTES).decode()],
    "a UUID": [str(uuid.UUID(bytes=hashlib.md5(_BYTES, usedforsecurity=False).digest(), version=3))],
}
PLACES: dict[str, Any] = {
    "geometry": {"wkb": _wkb(-99999999.0, -99999999.0), "srid": 4326},
    "geography": {"wkb": _wkb(179.999999, 89.999999), "srid": 4326},
    "point": {"x": -99999999.0, "y": -99999999.0, "wkb": _wkb(1, 1), "srid": None},
}


@pytest.mark.parametrize("form", [*FORMS, *PLACES])
def test_placeholder_is_no_value(tmp_path: Path, form: str) -> None:
    value = {**FORMS, **PLACES}[form]
    (row,) = rows_of(probe(tmp_path, text(event("u", {"id": 1, "a": value, "v": "y"}))))
    assert (row["a"], json.loads(row["_dbz_carried"])) == (None, ["id", "v", "_dbz_sequence", "_dbz_ts"])


@pytest.mark.parametrize(("item", "form", "stored"), [
    ({"type": "int32", "name": "io.debezium.time.Date", "version": 1}, "numbers", pa.date32()),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "numbers", pa.timestamp("us")),
    ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
     "decimals of scale 2", pa.decimal128(38, 2)),
    ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "texts of instants", pa.timestamp("us", "UTC")),
])  # fmt: skip
def test_column_keeps_the_type_of_its_schema(tmp_path: Path, item: Any, form: str, stored: pa.DataType) -> None:
    fields = {"id": {"type": "int32"}, "a": {"type": "array", "items": item}}
    found = probe(tmp_path, wrapped(fields, event("u", {"id": 1, "a": FORMS[form]})))
    assert found.table is not None
    assert found.table.schema.field("a").type == pa.list_(stored)
    assert found.table.column("a").to_pylist() == [None]


@pytest.mark.parametrize("value", [
    list(_BYTES)[:-1], list(_BYTES)[::-1], [2 * byte for byte in _BYTES], [0] * len(_BYTES), [True] * len(_BYTES),
    ["x"] * len(_BYTES), [*list(_BYTES)[:-1], 0], {"wkb": _wkb(1.0, 2.0), "srid": 4326},
])  # fmt: skip
def test_other_values_are_values(tmp_path: Path, value: Any) -> None:
    (row,) = rows_of(probe(tmp_path, text(event("u", {"id": 1, "a": value}))))
    assert row["a"] is not None
    assert "_dbz_carried" not in row


@pytest.mark.parametrize(("values", "kind"), [
    (list(_BYTES), pa.int16()), ([float(byte) for byte in _BYTES], pa.float64()),
    ([Decimal(byte) for byte in _BYTES], pa.decimal128(12, 2)),
    ([_DAY + timedelta(days=byte) for byte in _BYTES], pa.date32()),
    ([1000 * byte for byte in _BYTES], pa.timestamp("ns")), (list(_BYTES), pa.timestamp("us", "UTC")),
    ([time(0, 0, 0, byte) for byte in _BYTES], pa.time64("us")), ([str(byte) for byte in _BYTES], pa.string()),
])  # fmt: skip
def test_a_placeholder_in_parquet_keeps_the_stored_value(tmp_path: Path, values: list[Any], kind: pa.DataType) -> None:
    after = pa.struct([("id", pa.int64()), ("a", pa.list_(kind)), ("v", pa.string())])
    source = pa.struct([("connector", pa.string()), ("lsn", pa.int64()), ("ts_ms", pa.int64())])
    arrays = pa.array(values, pa.int64()).cast(kind) if pa.types.is_timestamp(kind) else pa.array(values, kind)
    stored = pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), arrays)
    row = pa.StructArray.from_arrays([pa.array([1]), stored, pa.array(["y"])], fields=list(after))
    place = pa.array([{"connector": "postgresql", "lsn": 1, "ts_ms": 1}], source)
    found = pa.table({"before": pa.nulls(1, after), "after": row, "source": place, "op": ["u"]})
    (read,) = rows_of(probe(tmp_path, parquet(found)))
    assert (read["a"], read["v"]) == (None, "y")
    assert json.loads(read["_dbz_carried"]) == ["id", "v", "_dbz_sequence", "_dbz_ts"]


def test_an_empty_placeholder_is_refused_by_rows_and_jobs() -> None:
    spec = TableSpec(table="s.t", keys=("id",), dialect="debezium", options={"unavailable": ""})
    assert [(one.code, one.field) for one in check_options(spec)] == [("FIELD_VALUE", "options.unavailable")]
    with pytest.raises(FatalError, match=r"SPEC_INVALID.*options\.unavailable.*Remedy"):
        dialect_of(spec)


_MODES = {
    "bytes": lambda value: base64.b64encode(value).decode(),
    "base64": lambda value: base64.b64encode(value).decode(),
    "base64-url-safe": lambda value: base64.urlsafe_b64encode(value).decode(),
    "hex": bytes.hex,
}  # fmt: skip
"""`binary.handling.mode` to the text of a value in JSON."""


@pytest.mark.parametrize("word", [_WORD, "~~~???>>>", "é"])
@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("form", ["schema", "json", "parquet"])
@pytest.mark.parametrize("mode", _MODES)
def test_the_placeholder_of_bytes_in_each_mode(tmp_path: Path, mode: str, form: str, array: bool, word: str) -> None:
    written = _MODES[mode](word.encode())
    value = [written] if array else written
    update = event("u", {"id": 1, "v": value, "w": "x"})
    item = {"type": "bytes" if mode == "bytes" else "string"}
    schema = {"type": "array", "items": item} if array else item
    columns = {"id": {"type": "int32"}, "v": schema, "w": {"type": "string"}}
    content: Any = {"schema": lambda: wrapped(columns, update), "json": lambda: text(update),
                    "parquet": lambda: parquet(pa.Table.from_pylist([update]))}[form]()  # fmt: skip
    found = probe(tmp_path, content, unavailable=word)
    (row,) = rows_of(found)
    assert (row["v"], json.loads(row["_dbz_carried"])) == (None, ["id", "w", "_dbz_sequence", "_dbz_ts"])


def _of(connector: str, op: str, value: Any) -> dict[str, Any]:
    places = {"mysql": {"file": "bin.000001", "pos": 4, "row": 0}, "postgresql": {"lsn": 9}}
    source = {"connector": connector, "ts_ms": 1, "table": "t", **places[connector]}
    return {"op": op, "before": None, "after": {"id": "1", "v": value}, "source": source}


@pytest.mark.parametrize("form", [text, lambda one: parquet(pa.Table.from_pylist([one]))])
@pytest.mark.parametrize("value", [_WORD, _BYTES.hex(), _MODES["base64"](_BYTES)])
@pytest.mark.parametrize(("connector", "op"), [("mysql", "c"), ("mysql", "u"), ("postgresql", "r")])
def test_a_value_of_the_source_that_equals_the_placeholder(
    tmp_path: Path, connector: str, op: str, value: str, form: Any
) -> None:
    """Of a connector that writes none, and of a row that a snapshot has read."""
    (row,) = rows_of(probe(tmp_path, form(_of(connector, op, value))))
    assert (row["v"], row.get("_dbz_carried")) == (value, None)


@pytest.mark.parametrize("form", [text, lambda one: parquet(pa.Table.from_pylist([one]))])
def test_a_key_is_always_sent(tmp_path: Path, form: Any) -> None:
    update = _of("postgresql", "u", "x")
    update["after"]["id"] = _WORD
    (row,) = rows_of(probe(tmp_path, form(update)))
    assert (row["id"], row["v"]) == (_WORD, "x")


@pytest.mark.parametrize("arrival", ["together", "apart", "late"])
def test_insert_of_a_changed_key_takes_nothing_of_an_older_row(engine: LocalPort, tmp_path: Path, arrival: str) -> None:
    """The older row was deleted, and its delete was dropped by the transform, or comes later."""
    topic = Topic(engine, tmp_path)
    older, moved = event("c", {"id": 2, "v": "old"}, 10), event("c", {"id": 2, "v": _WORD}, 20)
    first, then = (moved, older) if arrival == "late" else (older, moved)
    topic.land(text(first))
    if arrival != "together":
        topic.run()
    topic.land(text(then))
    topic.run()
    assert topic.replica("id", "v") == [(2, None)]
    assert topic.run(action="verify").details["verdict"] == "equal"
    topic.land(text(event("c", {"id": 3, "v": _WORD}, 30), event("u", {"id": 3, "v": "x"}, 31)))
    assert warnings_of(topic.run()) == ["MOVED_ROW_INCOMPLETE"]
    assert topic.replica("id", "v") == [(2, None), (3, "x")]


@pytest.mark.parametrize(("dropped", "left"), [("keep", "z"), ("null", None)])
def test_a_dropped_column_is_judged_by_its_policy_beside_a_value_that_was_not_sent(
    engine: LocalPort, tmp_path: Path, dropped: str, left: str | None
) -> None:
    topic = Topic(engine, tmp_path, schema_evolution={"dropped_column": dropped})
    topic.land(text(*(event("c", {"id": key, "v": "a", "z": "z"}, key) for key in (1, 2))))
    topic.run()
    topic.land(text(event("u", {"id": 1, "v": _WORD}, 10), event("u", {"id": 2, "v": "b"}, 11)))
    topic.run()
    assert topic.replica("id", "v", "z") == [(1, "a", left), (2, "b", left)]
    assert topic.run(action="verify").details["verdict"] == "equal"
