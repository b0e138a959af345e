"""What the dialect makes of parquet, as Connect's and Avro's writers describe it."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.errors import QuarantinableError
from tests.debezium import nanoseconds
from tests.debezium.probing import probe, rows_of
from tests.spark.children import ROOT

_SOURCE = {"connector": "postgresql", "lsn": 1, "ts_ms": 1}
_ANY_SCALE = pa.struct([("scale", pa.int32()), ("value", pa.binary())])


def envelopes(row: pa.DataType, *rows: Any, avro: Any = None) -> bytes:
    """An insert of each row."""
    table = pa.table({
        "before": pa.nulls(len(rows), row), "after": pa.array(rows, row),
        "source": [_SOURCE] * len(rows), "op": ["c"] * len(rows),
    })  # fmt: skip
    return written(table.replace_schema_metadata({"parquet.avro.schema": json.dumps(avro)} if avro else None))


def written(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


def test_named_avro_type_is_resolved(tmp_path: Path) -> None:
    fields = [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]
    described = {"type": "record", "name": "VariableScaleDecimal", "namespace": "io.debezium.data", "fields": fields,
                 "connect.name": "io.debezium.data.VariableScaleDecimal"}  # fmt: skip
    columns = [{"name": "id", "type": "long"}, {"name": "a", "type": ["null", described]},
               {"name": "b", "type": ["null", "io.debezium.data.VariableScaleDecimal"]}]  # fmt: skip
    avro = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "shop.Value", "fields": columns}]},
        {"name": "after", "type": ["null", "shop.Value"]}]}  # fmt: skip
    row = pa.struct([("id", pa.int64()), ("a", _ANY_SCALE), ("b", _ANY_SCALE)])
    number = {"scale": 3, "value": b"\x01\xe2\x40"}
    (found,) = rows_of(probe(tmp_path, envelopes(row, {"id": 1, "a": number, "b": number}, avro=avro)))
    assert (found["a"], found["b"]) == ("123.456", "123.456")


def test_a_row_in_the_namespace_of_its_envelope_is_found_by_its_full_name(tmp_path: Path) -> None:
    date = {"type": "int", "connect.name": "io.debezium.time.Date"}
    value = {"type": "record", "name": "Value", "fields": [{"name": "id", "type": "long"}, {"name": "a", "type": date}]}
    avro = {"type": "record", "name": "Envelope", "namespace": "shop.orders", "fields": [
        {"name": "before", "type": ["null", value]},
        {"name": "after", "type": ["null", "shop.orders.Value"]}]}  # fmt: skip
    row = pa.struct([("id", pa.int64()), ("a", pa.int32())])
    found = probe(tmp_path, envelopes(row, {"id": 1, "a": 1}, avro=avro))
    assert dict(found.columns)["a"] == "date"


@pytest.mark.parametrize(
    ("value", "sql", "expected"),
    [(Decimal("12.34"), "decimal(38,2)", Decimal("12.34")), (Decimal("9" * 50 + ".25"), "string", "9" * 50 + ".25")],
)
def test_decimals_without_a_precision(tmp_path: Path, value: Decimal, sql: str, expected: Any) -> None:
    row = pa.struct([("id", pa.int64()), ("v", pa.decimal256(64, 2))])
    found = probe(tmp_path, envelopes(row, {"id": 1, "v": value}, {"id": 2, "v": None}))
    assert dict(found.columns)["v"] == sql
    assert [each["v"] for each in rows_of(found)] == [expected, None]


def test_events_without_a_source_are_invalid(tmp_path: Path) -> None:
    table = pa.table({"after": [{"id": 1}], "op": ["c"]})
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, written(table))
    assert caught.value.code == "FILE_UNREADABLE"


def test_times_in_nanoseconds_are_read_alike_without_pandas() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.debezium.nanoseconds"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == nanoseconds.read()
    assert nanoseconds.read()["t"] == "00:00:01.500000001"


@pytest.mark.parametrize(("kind", "value"), [
    (pa.date32(), 3_000_000), (pa.timestamp("ns"), 1_500_000_001), (pa.timestamp("us", "UTC"), 5), (pa.binary(), b"a"),
    (pa.decimal128(9, 2), Decimal("1.50")), (pa.string(), "a"),
])  # fmt: skip
@pytest.mark.parametrize("is_flat", [True, False])
@pytest.mark.parametrize("is_deleted", [True, False])
def test_tombstone_without_its_delete_by_a_key_of_any_type(
    tmp_path: Path, kind: pa.DataType, value: Any, is_flat: bool, is_deleted: bool
) -> None:
    """Dates and times that Python's classes do not hold are keys, too."""
    ops = ["c", "d"] if is_deleted else ["c"]
    plain = pa.int32() if kind == pa.date32() else pa.int64() if pa.types.is_timestamp(kind) else kind
    ids = pa.array([value] * len(ops), plain).cast(kind)
    key = pa.concat_arrays([pa.StructArray.from_arrays([array], ["id"]) for array in (ids, ids[:1])])
    sources = pa.array([_SOURCE] * len(ops))
    if is_flat:
        deleted = pa.array([str(op == "d").lower() for op in ops])
        parts = {"id": ids, "__deleted": deleted, "__op": pa.array(ops)}
        parts |= {f"__source_{name}": sources.field(name) for name in _SOURCE}
        parts["__source_snapshot"] = pa.array(["false"] * len(ops))
    else:
        rows = pa.StructArray.from_arrays([ids], ["id"])
        parts = {"before": rows, "after": rows, "source": sources, "op": pa.array(ops)}
    values = pa.StructArray.from_arrays(list(parts.values()), list(parts))
    values = pa.concat_arrays([values, pa.nulls(1, values.type)])
    found = probe(tmp_path, written(pa.table({"key": key, "value": values})))
    broken = [] if found.malformed is None else [text is not None for text in found.malformed.to_pylist()]
    assert (found.rows, broken) == ((2, []) if is_deleted else (2, [False, True]))


def test_row_is_described_by_the_field_of_its_name(tmp_path: Path) -> None:
    """Whatever stands before it in the envelope."""
    of_source = {"type": "record", "name": "Source", "fields": [{"name": "lsn", "type": "long"}]}
    wide = {"type": "record", "name": "Wide", "connect.name": "io.debezium.data.VariableScaleDecimal", "fields": [
        {"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}]}  # fmt: skip
    avro = {"type": "record", "name": "Envelope", "fields": [
        {"name": "source", "type": ["null", of_source]},
        {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": [
            {"name": "id", "type": "long"}, {"name": "a", "type": ["null", wide]}]}]},
    ]}  # fmt: skip
    row = pa.struct([("id", pa.int64()), ("a", _ANY_SCALE)])
    data = envelopes(row, {"id": 1, "a": {"scale": 3, "value": b"\x01\xe2\x40"}}, avro=avro)
    (found,) = rows_of(probe(tmp_path, data))
    assert found["a"] == "123.456"


@pytest.mark.parametrize("columns", [
    {"op": ["c"], "source": [_SOURCE]}, {"after": [{"id": 1}], "source": [_SOURCE]},
    {"after": [{"id": 1}], "op": ["c"]},
])  # fmt: skip
def test_parquet_without_a_part_of_the_envelope_is_no_event(tmp_path: Path, columns: dict[str, Any]) -> None:
    with pytest.raises(QuarantinableError, match="not change events of Debezium"):
        probe(tmp_path, written(pa.table(columns)))


def test_type_of_a_column_is_propagated(tmp_path: Path) -> None:
    """As in JSON; a text whose parameters say something else stays one."""
    told = {f"__debezium.source.column.{part}": value for part, value in (
        ("type", "NUMERIC"), ("length", "10"), ("scale", "2"))}  # fmt: skip
    columns = [{"name": "id", "type": "long"},
               {"name": "amount", "type": ["null", {"type": "string", "connect.parameters": told}]},
               {"name": "v", "type": ["null", {"type": "string", "connect.parameters": {"allowed": "a"}}]}]  # fmt: skip
    avro = {"type": "record", "name": "Envelope", "fields": [
        {"name": "after", "type": ["null", {"type": "record", "name": "Value", "fields": columns}]}]}  # fmt: skip
    row = pa.struct([("id", pa.int64()), ("amount", pa.string()), ("v", pa.string())])
    found = probe(tmp_path, envelopes(row, {"id": 1, "amount": "12.50", "v": "a"}, avro=avro))
    assert (dict(found.columns)["amount"], dict(found.columns)["v"]) == ("decimal(10,2)", "string")
    assert [(one["amount"], one["v"]) for one in rows_of(found)] == [(Decimal("12.50"), "a")]
