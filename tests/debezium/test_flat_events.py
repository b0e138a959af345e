"""Flat events of `ExtractNewRecordState`: the tables are those of the envelopes that they were made of."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import QuarantinableError
from tests.debezium.lake import Lake, parquet, warnings_of
from tests.debezium.probing import probe, rows_of, text
from tests.debezium.test_snapshots import event, snapshot
from tests.engine_port import EnginePort

Json = dict[str, Any]
_ADDED = ("connector", "lsn", "sequence", "ts_ms", "snapshot", "name")


def flat(envelope: Mapping[str, Any], prefix: str = "__source_") -> Json:
    """What the transform makes of an event, with `delete.tombstone.handling.mode=rewrite`."""
    deleted = envelope["op"] == "d"
    row = envelope["before"] if deleted else envelope["after"]
    source = envelope["source"]
    added = {f"{prefix}{name}": source[name] for name in _ADDED if name in source}
    return {**row, "__op": envelope["op"], **added, "__deleted": str(deleted).lower()}


def as_lines(*events: Json) -> bytes:
    return text(*events).encode()


def as_parquet(*events: Json) -> bytes:
    return parquet(pa.Table.from_pylist(list(events)))


def as_parquet_of_sink(*events: Json) -> bytes:
    return parquet(pa.table({"key": [{"id": e["id"]} for e in events], "value": list(events),
                             "offset": list(range(len(events)))}))  # fmt: skip


def as_wrapped(*events: Json) -> bytes:
    kinds = {int: "int64", str: "string"}
    fields = [{"field": name, "type": kinds[type(value)], "optional": True} for name, value in events[0].items()]
    return text(*({"schema": {"type": "struct", "fields": fields}, "payload": e} for e in events)).encode()


FORMS = (as_lines, as_parquet, as_parquet_of_sink, as_wrapped)


def row(op: str, key: int, lsn: int) -> Json:
    # Columns with names of the envelope and of sinks are the source's.
    columns = {"id": key, "v": f"{op}{lsn}", "value": lsn, "op": "x", "key": "k", "payload": "p"}
    return event(op, columns, lsn)


FIRST = (row("r", 1, 100), row("r", 2, 100), row("c", 3, 110))
SECOND = (row("u", 1, 120), row("d", 2, 130), row("u", 3, 115), row("d", 3, 117), row("c", 4, 140))
LATE = (row("u", 3, 112), row("u", 1, 119))


@pytest.mark.parametrize("form", FORMS)
def test_tables_are_those_of_the_envelopes(engine: EnginePort, tmp_path: Path, form: Callable[..., bytes]) -> None:
    def played(name: str, content: Callable[..., bytes]) -> Lake:
        lake = Lake(engine, tmp_path / name, history=True)
        for number, events in enumerate((FIRST, SECOND, LATE)):
            lake.land(content(*events), "parquet" if "parquet" in form.__name__ else "json")
            done = lake.run()
            assert (done.rows_read, done.quarantined) == (len(events), 0), number
        assert lake.run(action="verify").details["verdict"] == "equal"
        return lake

    enveloped = played("enveloped", lambda *events: text(*events).encode())
    unwrapped = played("flat", lambda *events: form(*map(flat, events)))
    columns = ("id", "v", "value", "op", "key", "payload", "_dbz_sequence", "_dbz_ts")
    assert unwrapped.replica("id", "v") == [(1, "u120"), (4, "c140")]
    assert unwrapped.replica(*columns) == enveloped.replica(*columns)
    assert unwrapped.columns() == enveloped.columns()
    versions = ("id", "v", "__start_at", "__end_at")
    assert sorted(map(str, unwrapped.history(*versions))) == sorted(map(str, enveloped.history(*versions)))


def test_new_snapshot_removes_what_it_lacks(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(as_lines(*map(flat, snapshot(100, range(1, 7)))))
    lake.run()
    lake.land(as_lines(*map(flat, snapshot(200, [1, 3, 4, 5, 6], v="again"))))
    assert warnings_of(lake.run()) == []
    assert lake.replica("id", "v") == [(key, "again") for key in (1, 3, 4, 5, 6)]


@pytest.mark.parametrize(("added", "place"), [
    ({"__lsn": 7}, f"{7:020d}.{7:020d}"),
    ({"__source_lsn": 7, "__source_sequence": '["5","7"]'}, f"{5:020d}.{7:020d}"),
    ({"__file": "bin.000002", "__pos": 9, "__row": 1}, f"{2:010d}.{9:020d}.{1:010d}"),
    ({"__source_connector": "mariadb", "__source_file": "bin.000002", "__source_pos": 9},
     f"{2:010d}.{9:020d}.{0:010d}"),
    ({"__commit_lsn": "0a:01:02", "__change_lsn": "0a:01:01"}, f"0a:01:02.0a:01:01.{0:010d}"),
    ({"__source_ts_ms": 5, "__source_ord": 2}, f"{5:020d}.{2:010d}"),
    ({"__scn": "12", "__commit_scn": "15"}, f"{15:020d}.{12:020d}.00000000.00000000.00000000.{0:010d}"),
])  # fmt: skip
def test_place_of_each_connector(tmp_path: Path, added: Json, place: str) -> None:
    (lines,) = rows_of(probe(tmp_path, as_lines({"id": 1, "__op": "c", **added})))
    (table,) = rows_of(probe(tmp_path, as_parquet({"id": 1, "__op": "c", **added})))
    assert lines == table == {"_dbz_op": "I", "id": 1, "_dbz_sequence": place}


@pytest.mark.parametrize(("record", "op"), [
    ({"__op": "c"}, "I"), ({"__op": "r"}, "I"), ({"__op": "u"}, "U"), ({"__op": "d"}, "D"), ({"__op": "x"}, "X"),
    ({"__deleted": "false"}, "I"), ({"__deleted": "true"}, "D"), ({"__deleted": True}, "D"),
    ({"__op": "d", "__deleted": "true"}, "D"), ({"__deleted": None, "__op": "u"}, "U"),
])  # fmt: skip
def test_operations(tmp_path: Path, record: Json, op: str) -> None:
    full = {"id": 1, "__lsn": 1, **record}
    assert [r["_dbz_op"] for r in rows_of(probe(tmp_path, as_lines(full)))] == [op]
    assert [r["_dbz_op"] for r in rows_of(probe(tmp_path, as_parquet(full)))] == [op]


@pytest.mark.parametrize("form", [as_lines, as_parquet])
def test_without_order_they_are_refused_by_name(tmp_path: Path, form: Callable[..., bytes]) -> None:
    """`ts_ms` without `source.` is the time of the connector."""
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, form({"id": 1, "__op": "c", "__ts_ms": 5, "__deleted": "false"}))
    assert caught.value.code == "FILE_UNREADABLE"
    assert "add.fields" in caught.value.what


def test_a_column_of_the_row_may_order_them(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, sequence_by=["at"])
    lake.land(as_lines({"id": 1, "v": "new", "at": 9, "__deleted": "false"}, {"id": 2, "v": "x", "at": 1, "__op": "c"}))
    lake.run()
    lake.land(as_lines({"id": 1, "v": "old", "at": 8, "__deleted": "false"}, {"id": 2, "at": 5, "__deleted": "true"}))
    done = lake.run()
    assert (warnings_of(done), done.late_ignored) == (["BATCH_LATE"], 1)
    assert lake.replica("id", "v") == [(1, "new")]


def test_columns_of_the_source_stay(tmp_path: Path) -> None:
    """Only fields that the transform adds are taken away."""
    (found,) = rows_of(probe(tmp_path, as_lines({"id": 1, "__mine": "m", "__op": "c", "__lsn": 1, "__table": "t"})))
    assert (found["__mine"], "__table" in found) == ("m", False)


def test_types_of_the_avro_schema_in_parquet(tmp_path: Path) -> None:
    fields = [
        {"name": "id", "type": "long"},
        {"name": "at", "type": ["null", {"type": "long", "connect.name": "io.debezium.time.MicroTimestamp"}]},
        {"name": "__op", "type": ["null", "string"]},
    ]
    avro = json.dumps({"type": "record", "name": "Value", "fields": fields})
    table = pa.Table.from_pylist([{"id": 1, "at": 5, "__op": "c", "__lsn": 1}])
    found = probe(tmp_path, parquet(table.replace_schema_metadata({"parquet.avro.schema": avro})))
    assert dict(found.columns)["at"] == "timestamp_ntz"


def test_values_that_the_source_did_not_send(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(as_lines({"id": 1, "v": "a", "big": "long", "__op": "c", "__lsn": 1}))
    lake.land(as_lines({"id": 1, "v": "b", "big": "__debezium_unavailable_value", "__op": "u", "__lsn": 2}))
    lake.run()
    assert lake.replica("v", "big") == [("b", "long")]
