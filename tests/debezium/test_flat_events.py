"""Flat events, as `ExtractNewRecordState` makes them: read as the events, or refused where they lack what decides."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.errors import FatalError, QuarantinableError
from airflow_gddl.contract.option_checks import check_options
from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.debezium.flattening import FIELDS, flat, flattened
from tests.debezium.probing import event, probe, rows_of, text, wrapped
from tests.debezium.topic import Topic, parquet

_PLACEHOLDER = "__debezium_unavailable_value"
EVENTS = [
    event("r", {"id": 1, "v": "a"}, 1), event("c", {"id": 2, "v": "b"}, 2), event("u", {"id": 2, "v": "c"}, 3),
    event("u", {"id": 1, "v": _PLACEHOLDER}, 4), event("d", {"id": 2, "v": "c"}, 5),
]  # fmt: skip


def row(op: str = "c", **more: Any) -> dict[str, Any]:
    """A flat event of a PostgreSQL connector; a null takes a field away."""
    deleted = "true" if op == "d" else "false"
    found = {"id": 1, "v": "a", "__op": op, "__deleted": deleted, "__source_lsn": 7, "__source_ts_ms": 5,
             "__source_snapshot": "false", **more}  # fmt: skip
    return {name: value for name, value in found.items() if value is not None}


def refusal(folder: Path, content: bytes | str, **options: Any) -> FatalError:
    with pytest.raises(FatalError) as caught:
        probe(folder, content, **options)
    assert caught.value.code == "FLAT_EVENT_INCOMPLETE"
    assert caught.value.where == str(folder / "t+0+0000000000.json")
    return caught.value


@pytest.mark.parametrize("told", [
    {"__source_connector": "mongodb"}, {"__source_ord": 1}, {"__source_collection": "t"}, {"__collection": "t"},
])  # fmt: skip
@pytest.mark.parametrize("options", [{}, {"flat_deletes": "drop"}])
def test_documents_are_refused(tmp_path: Path, told: dict[str, Any], options: dict[str, Any]) -> None:
    """ExtractNewDocumentState: a field that an update has removed is missing, and so may be one that did not change."""
    document = row(_id=1, id=None, __source_lsn=None, **told)
    refused = refusal(tmp_path, text(document), **options)
    assert "fields that were removed" in refused.what
    assert "ExtractNewDocumentState" in (refused.remedy or "")
    refusal(tmp_path, parquet(pa.Table.from_pylist([document])), **options)


def test_a_column_may_be_called_collection(tmp_path: Path) -> None:
    assert rows_of(probe(tmp_path, text(row(collection="x"))))[0]["collection"] == "x"


@pytest.mark.parametrize("around", [
    lambda e: e,
    lambda e: {"schema": None, "payload": e},
    lambda e: {"key": {"id": 1}, "value": e, "offset": 3},
    json.dumps,
])  # fmt: skip
def test_flat_events_are_the_events(tmp_path: Path, around: Any) -> None:
    found = probe(tmp_path, text(*(around(flat(each)) for each in EVENTS)))
    assert found.table == probe(tmp_path, text(*EVENTS)).table


def test_parquet_is_the_events(tmp_path: Path) -> None:
    table = pa.Table.from_pylist([flat(each) for each in EVENTS])
    assert rows_of(probe(tmp_path, parquet(table))) == rows_of(probe(tmp_path, text(*EVENTS)))
    nested = pa.table({"key": [{"id": each["id"]} for each in table.to_pylist()], "value": table.to_pylist()})
    assert rows_of(probe(tmp_path, parquet(nested))) == rows_of(probe(tmp_path, text(*EVENTS)))


def test_columns_have_the_types_of_the_schema(tmp_path: Path) -> None:
    fields = {"id": {"type": "int32"}, "day": {"type": "int32", "name": "io.debezium.time.Date"}}
    enveloped = wrapped(fields, event("c", {"id": 1, "day": 1})).encode()
    found = probe(tmp_path, flattened(enveloped), flat_deletes="drop", snapshots="merge")
    assert found.columns == probe(tmp_path, enveloped).columns


def test_parquet_has_the_types_of_its_avro_schema(tmp_path: Path) -> None:
    day = {"type": "int", "connect.name": "io.debezium.time.Date"}
    avro = {"type": "record", "name": "Value", "fields": [
        {"name": "id", "type": "long"}, {"name": "day", "type": ["null", day]},
        {"name": "__deleted", "type": ["null", "string"]}]}  # fmt: skip
    table = pa.table({"id": [1], "day": pa.array([1], pa.int32()), **{k: [v] for k, v in row(id=None, v=None).items()}})
    sink = io.BytesIO()
    pq.write_table(table.replace_schema_metadata({"parquet.avro.schema": json.dumps(avro)}), sink)
    found = probe(tmp_path, sink.getvalue())
    assert (dict(found.columns)["day"], str(rows_of(found)[0]["day"])) == ("date", "1970-01-02")


def test_columns_of_the_table_may_be_named_as_wrappers_are(tmp_path: Path) -> None:
    own = {"value": {"x": 1}, "payload": "p", "key": "k", "op": "add", "source": "web", "after": "a", "__own": 3}
    (found,) = rows_of(probe(tmp_path, text({**row(), **own})))
    assert {name: found[name] for name in own} == {**own, "value": '{"x":1}'}
    (found,) = rows_of(probe(tmp_path, parquet(pa.Table.from_pylist([{**row(), **own}]))))
    assert {name: found[name] for name in own} == own


@pytest.mark.parametrize(("op", "deleted", "expected"), [
    ("u", "false", "U"), ("d", "true", "D"), ("u", "true", "D"), (None, "true", "D"), (None, "false", "U"),
    (None, True, "D"), ("d", "false", "D"), ("x", "false", "X"),
])  # fmt: skip
def test_operation_follows_op_and_deleted(tmp_path: Path, op: str | None, deleted: object, expected: str) -> None:
    changed = row(__op=op, __deleted=deleted)
    for content in (text(changed), parquet(pa.Table.from_pylist([changed]))):
        assert [found["_dbz_op"] for found in rows_of(probe(tmp_path, content))] == [expected]


@pytest.mark.parametrize("names", [
    {"lsn": "__lsn", "snapshot": "__snapshot"}, {"lsn": "__source_lsn", "snapshot": "__source_snapshot"},
])  # fmt: skip
def test_fields_may_be_added_by_their_own_name(tmp_path: Path, names: dict[str, str]) -> None:
    none = {"__source_lsn": None, "__source_snapshot": None}
    short = row(**{**none, names["lsn"]: 9, names["snapshot"]: "false"})
    (found,) = rows_of(probe(tmp_path, text(short)))
    assert found == {"_dbz_op": "I", "id": 1, "v": "a", "_dbz_sequence": f"{9:020d}.1.{9:020d}"}


def test_time_of_the_connector_is_no_commit_time(tmp_path: Path) -> None:
    assert "source.ts_ms" in refusal(tmp_path, text(row(__source_ts_ms=None, __ts_ms=5))).what


@pytest.mark.parametrize(("source", "place"), [
    ({"lsn": 7, "sequence": '["5","7"]'}, f"{5:020d}.1.{7:020d}"),
    ({"file": "bin.000003", "pos": 4, "row": 1}, f"{3:010d}.{4:020d}.{0:010d}"),
    ({"commit_lsn": "0a:01:02", "change_lsn": "0a:01:01", "event_serial_no": 2}, f"0a:01:02.00:00:00.{0:010d}"),
    ({"scn": "8", "commit_scn": "9", "rs_id": "0x01.02.03", "ssn": 0},
     f"{9:020d}.{8:020d}.00000001.00000002.00000003.{0:010d}"),
])  # fmt: skip
def test_connector_is_known_by_its_fields(tmp_path: Path, source: dict[str, Any], place: str) -> None:
    fields = {f"__source_{name}": value for name, value in source.items()}
    (found,) = rows_of(probe(tmp_path, text(row(**{"__source_lsn": None, **fields}))))
    assert found["_dbz_sequence"] == place
    for name in source:
        if name not in ("sequence", "lsn"):
            lacking = row(**{"__source_lsn": None, **fields, f"__source_{name}": None})
            error = refusal(tmp_path, text(lacking))
            assert f"source.{name}" in error.what
            assert f"source.{name}" in (error.remedy or "")


def test_without_a_place_the_setting_is_named(tmp_path: Path) -> None:
    error = refusal(tmp_path, text(row(__source_lsn=None)))
    assert "source.connector" in error.what
    assert "add.fields=op,source.connector,source.ts_ms,source.snapshot" in (error.remedy or "")
    error = refusal(tmp_path, text(row(__source_lsn=None, __source_connector="postgresql")))
    assert "no source.lsn (connector postgresql)" in error.what
    assert "source.lsn,source.sequence" in (error.remedy or "")
    assert "source.lsn" in refusal(
        tmp_path, parquet(pa.Table.from_pylist([row(__source_lsn=None, __source_connector="postgresql")]))
    ).what  # fmt: skip


def test_connector_without_places_is_ordered_by_time(tmp_path: Path) -> None:
    found = probe(tmp_path, text(row(__source_lsn=None, __source_connector="vitess")))
    assert [name for name, _ in found.columns] == ["_dbz_op", "id", "v", "_dbz_ts"]


def test_deletes_have_to_be_in_the_files(tmp_path: Path) -> None:
    content = text(row(__deleted=None))
    error = refusal(tmp_path, content)
    assert "delete.tombstone.handling.mode=rewrite" in (error.remedy or "")
    assert rows_of(probe(tmp_path, content, flat_deletes="drop"))[0]["_dbz_op"] == "I"


def test_snapshots_have_to_be_in_the_files(tmp_path: Path) -> None:
    content = text(row(__source_snapshot=None))
    assert "source.snapshot" in refusal(tmp_path, content).what
    assert rows_of(probe(tmp_path, content, snapshots="merge"))[0]["id"] == 1


def test_rows_without_any_field_are_named(tmp_path: Path) -> None:
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, text({"id": 1, "v": "a"}))
    assert "add.fields" in caught.value.what


def test_prefix_of_added_fields_is_configured(tmp_path: Path) -> None:
    changed = {name.replace("__", "dbz_") if name != "__deleted" else name: value for name, value in row().items()}
    (found,) = rows_of(probe(tmp_path, text(changed), flat_prefix="dbz_"))
    assert found == {"_dbz_op": "I", "id": 1, "v": "a", "_dbz_sequence": f"{7:020d}.1.{7:020d}"}
    spec = TableSpec(table="shop.t", keys=("id",), dialect="debezium", options={"flat_prefix": ""})
    assert [problem.code for problem in check_options(spec)] == ["FIELD_VALUE"]


def test_fields_with_names_of_their_own(tmp_path: Path) -> None:
    own = {"__op": "__OP", "__source_lsn": "__AT", "__source_snapshot": "__whole"}
    fields = {"op": "OP", "lsn": "AT", "source.snapshot": "whole"}
    changed = [{own.get(name, name): value for name, value in flat(one).items()} for one in EVENTS]
    assert set(changed[0]) > set(own.values())
    found = probe(tmp_path, text(*changed), flat_fields=fields)
    assert found.table == probe(tmp_path, text(*EVENTS)).table
    assert "flat_fields" in str(refusal(tmp_path, text(*changed)))


@pytest.mark.parametrize("fields", [{"after": "x"}, {"source.nothing": "x"}, {"op": ""}, {"op": "x", "lsn": "x"}])
def test_names_that_no_field_can_have_are_refused(fields: dict[str, str]) -> None:
    spec = TableSpec(table="shop.t", keys=("id",), dialect="debezium", options={"flat_fields": fields})
    assert [problem.code for problem in check_options(spec)] == ["FIELD_VALUE"]


def test_tables_follow_flat_events(engine: LocalPort, tmp_path: Path) -> None:
    """Also where the transform is switched on later: places are the same."""
    topic = Topic(engine, tmp_path)
    topic.land(text(*EVENTS[:2]))
    topic.run()
    topic.land(text(*map(flat, EVENTS[3:])))
    topic.land(parquet(pa.Table.from_pylist([flat(EVENTS[2])])), "parquet")
    topic.run()
    assert topic.replica("id", "v") == [(1, "a")]
    assert [change["_gddl"]["op"] for change in topic.change_rows()].count("D") == 1
    assert (
        set().union(*topic.rows("replica")) & {"__op", "__deleted", *(f"__source_{name}" for name in FIELDS)} == set()
    )


def test_table_waits_for_the_setting(engine: LocalPort, tmp_path: Path) -> None:
    """Nothing is taken until the file is written as the message says, or the row says how it is meant."""
    topic = Topic(engine, tmp_path)
    topic.land(text(row()))
    topic.run()
    bad = Path(topic.land(text(row("u", v="b", __source_lsn=None, __source_connector="postgresql"))))
    assert topic.refused().code == "FLAT_EVENT_INCOMPLETE"
    assert topic.replica("v") == [("a",)]
    bad.write_text(text(row("u", v="b", __source_lsn=8)))
    topic.run()
    assert topic.replica("v") == [("b",)]


def test_table_ordered_by_a_column_needs_no_place(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, sequence_by=["version"])
    bare = {"__source_lsn": None, "__source_ts_ms": None, "__source_snapshot": None}
    topic.land(text(row("u", v="b", version=2, **bare), row("c", version=1, **bare)))
    topic.land(text(row("d", id=2, version=3, **bare), row("u", id=2, version=2, **bare)))
    topic.run()
    assert topic.replica("id", "v") == [(1, "b")]


def test_snapshot_after_the_first_removes_what_it_lacks(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, sweep_limit=1.0)
    topic.land(text(row("r", id=1, __source_snapshot="true"), row("r", id=2, __source_snapshot="last")))
    topic.run()
    topic.land(text(row("r", id=2, __source_lsn=9, __source_ts_ms=90, __source_snapshot="last")))
    topic.run()
    assert topic.replica("id") == [(2,)]


def test_last_row_of_an_unnamed_table_ends_no_snapshot(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, sweep_limit=1.0)
    topic.land(text(row("r", id=1, __source_snapshot="true"), row("r", id=2, __source_snapshot="last")))
    topic.run()
    marks = {"__source_lsn": 9, "__source_ts_ms": 90, "__source_snapshot": "last_in_data_collection"}
    topic.land(text(row("r", id=2, **marks)))
    topic.run()
    assert topic.replica("id") == [(1,), (2,)]
    topic.land(text(row("r", id=3, **{**marks, "__source_snapshot": "last"})))
    topic.run()
    assert topic.replica("id") == [(2,), (3,)]
