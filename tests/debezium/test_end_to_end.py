"""Debezium's files through a whole run: what the scenarios, made from DMS's rows, have no counterpart of."""

from __future__ import annotations

import gzip
import json
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import event, text, wrapped
from tests.debezium.topic import Topic, enveloped, parquet, warnings_of

pytestmark = pytest.mark.wide

_PLACEHOLDER = "__debezium_unavailable_value"


@pytest.mark.deep_on_many
def test_unsent_values_are_kept(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("r", {"id": 1, "v": "a", "big": "one"}), event("r", {"id": 2, "v": "a", "big": "two"})))
    topic.run()
    topic.land(
        text(event("u", {"id": 1, "v": "b", "big": _PLACEHOLDER}, 10), event("u", {"id": 2, "v": "b", "big": None}, 11))
    )
    topic.run()
    assert topic.replica("id", "v", "big") == [(1, "b", "one"), (2, "b", None)]
    topic.land(text(event("u", {"id": 2, "v": "late", "big": "zwei"}, 5)))
    topic.land(gzip.compress(text(event("u", {"id": 1, "v": "c", "big": "uno"}, 12)).encode()), "json.gz")
    topic.run()
    assert topic.replica("id", "v", "big") == [(1, "c", "uno"), (2, "b", None)]
    assert topic.run(action="rebuild").mode == "refresh"
    assert topic.replica("id", "v", "big") == [(1, "c", "uno"), (2, "b", None)]


def test_unsent_values_of_a_column_with_our_prefix_are_kept(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("r", {"id": 1, "v": "a", "_dbz_ops": "one"})))
    topic.run()
    topic.land(text(event("u", {"id": 1, "v": "b", "_dbz_ops": _PLACEHOLDER}, 10)))
    topic.run()
    assert topic.replica("id", "v", "_dbz_ops") == [(1, "b", "one")]


@pytest.mark.deep_on_many
@pytest.mark.parametrize("step", ["plan", "quarantine", "append", "tombstones", "replica", "commit"])
def test_interrupted_run_is_resumed(engine: LocalPort, tmp_path: Path, step: str) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(*(event("r", {"id": number, "v": "a", "big": "one"}) for number in (1, 2, 3))))
    topic.run()
    update = event("u", {"id": 1, "v": "b", "big": _PLACEHOLDER}, 10)
    topic.land(
        text(
            update, event("d", {"id": 2}, 11), None, event("c", {"id": 4, "v": "d", "big": "four"}, 12), {"no": "event"}
        )
    )
    topic.break_off(step)
    topic.run()
    assert topic.replica("id", "v", "big") == [(1, "b", "one"), (3, "a", "one"), (4, "d", "four")]
    assert [error["code"] for error in topic.errors()] == ["ROW_MALFORMED"]
    assert len(topic.change_rows()) == 6


@pytest.mark.deep_on_many
def test_key_update_moves_the_row(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("r", {"id": 1, "v": "a"})))
    topic.land(text(event("d", {"id": 1, "v": None}, 10), None, event("c", {"id": 2, "v": "a"}, 10)))
    topic.run()
    assert topic.replica("id", "v") == [(2, "a")]


@pytest.mark.deep_on_many
def test_redelivered_events_change_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    events = text(event("c", {"id": 1, "v": "a"}, 1), event("u", {"id": 1, "v": "b"}, 2))
    topic.land(events)
    topic.run()
    topic.land(events)
    result = topic.run()
    assert (result.redelivered, result.changes_written, len(topic.change_rows())) == (2, 0, 2)


def test_redelivery_is_recognized_after_new_columns(engine: LocalPort, tmp_path: Path) -> None:
    """What it carries is told otherwise there: its file has a column that it lacks."""
    topic = Topic(engine, tmp_path)
    update = event("u", {"id": 1, "v": "b"}, 2)
    topic.land(text(event("c", {"id": 1, "v": "a"}), update))
    topic.run()
    topic.land(text(update, event("u", {"id": 1, "v": "c", "w": 1}, 3)))
    result = topic.run()
    assert (result.redelivered, len(topic.change_rows()), warnings_of(result)) == (1, 3, [])
    assert topic.replica("id", "v", "w") == [(1, "c", 1)]


@pytest.mark.deep_on_many
def test_source_without_positions_is_ordered_by_time_and_offset(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    source = {"connector": "vitess", "ts_ms": 1000}
    for value in ("a", "b", "c"):
        topic.land(text(event("u" if value > "a" else "c", {"id": 1, "v": value}) | {"source": source}))
    result = topic.run()
    assert topic.replica("id", "v") == [(1, "c")]
    assert warnings_of(result) == ["ORDER_NOT_TOTAL"], "the names of the files tell which came first"


@pytest.mark.deep_on_many
def test_file_of_only_tombstones_and_truncates(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, truncate="report")
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.land(text(None, None))
    topic.land(text(event("t", None, 9)))
    result = topic.run()
    assert (result.truncates, result.quarantined) == (1, 0)
    assert topic.replica("id", "v") == [(1, "a")]


@pytest.mark.deep_on_many
def test_table_starts_with_its_first_row(engine: LocalPort, tmp_path: Path) -> None:
    """Of tombstones alone nobody knows the type of its key."""
    topic = Topic(engine, tmp_path)
    topic.land(text(None, None))
    topic.run()
    assert topic.replica("id") == []
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.run()
    assert (topic.replica("id", "v"), topic.run().batches) == ([(1, "a")], 0)


@pytest.mark.parametrize("form", [pytest.param("json", marks=pytest.mark.deep_on_many), "parquet"])
def test_types_named_in_the_schema_are_read(engine: LocalPort, tmp_path: Path, form: str) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(_named_json() if form == "json" else _namedparquet(), form)
    topic.run()
    ((identity, at, day),) = topic.replica("id", "at", "day")
    assert (identity, at.isoformat(), day.isoformat()) == (1, "2024-01-01T00:00:00.123456", "2024-01-01")


_FIELDS: dict[str, dict[str, Any]] = {
    "id": {"type": "int32"},
    "at": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "day": {"type": "int32", "name": "io.debezium.time.Date"},
}
_ROW = {"id": 1, "at": 1704067200123456, "day": 19723}


@pytest.mark.parametrize("form", [pytest.param("json", marks=pytest.mark.deep_on_many), "parquet"])
def test_before_images_are_kept_and_move_rows(engine: LocalPort, tmp_path: Path, form: str) -> None:
    """The table's key is not the topic's: Debezium tells of its update as of any other column's."""
    topic = Topic(engine, tmp_path, keys=["mail"], before_image_prefix="BI_")
    topic.land(text(event("c", {"id": 1, "mail": "a", "v": "x"})))
    update = event("u", {"id": 1, "mail": "b", "v": "y"}, 2) | {"before": {"id": 1, "mail": "a", "v": "x"}}
    topic.land(text(update) if form == "json" else enveloped(update), form)
    topic.run()
    assert topic.replica("mail", "v") == [("b", "y")]
    assert "BI_mail" not in set().union(*topic.rows("replica"))
    assert [(row["v"], row["BI_mail"], row["BI_v"]) for row in topic.change_rows()] == [
        ("x", None, None), ("y", "a", "x"),
    ]  # fmt: skip


@pytest.mark.deep_on_many
def test_tombstones_in_parquet_are_skipped(engine: LocalPort, tmp_path: Path) -> None:
    """Aiven's sink puts the record beside its key and offset."""
    topic = Topic(engine, tmp_path)
    topic.land(parquet(pa.Table.from_pylist([
        {"offset": 1, "value": event("c", {"id": 1, "v": "a"})}, {"offset": 2, "value": None},
    ])), "parquet")  # fmt: skip
    assert (topic.run().rows_read, topic.replica("id", "v"), topic.errors()) == (1, [(1, "a")], [])


def test_tombstone_without_its_delete_is_quarantined_from_parquet(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    rows = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    one, other = ({"key": {"id": row["id"]}, "value": event("c", row)} for row in rows)
    topic.land(parquet(pa.Table.from_pylist([one, {**one, "value": None}, other])), "parquet")
    assert (topic.run().rows_read, sorted(topic.replica("id", "v"))) == (3, [(1, "a"), (2, "b")])
    assert [(error["code"], error["position"], error["record"]) for error in topic.errors()] == [
        ("ROW_MALFORMED", 1, json.dumps({"line": '{"key":{"id":1},"value":null}'}, separators=(",", ":")))
    ]


def _named_json() -> str:
    return wrapped(_FIELDS, event("c", _ROW))


def _namedparquet() -> bytes:
    """With the Avro schema that the sink's writer leaves; `after` refers to the record that `before` defines."""
    row = pa.struct([("id", pa.int32()), ("at", pa.int64()), ("day", pa.int32())])
    avro = [{"name": name, "type": ["null", {"type": "long", "connect.name": kind.get("name")}]}
            for name, kind in _FIELDS.items()]  # fmt: skip
    schema = {"type": "record", "name": "Envelope", "fields": [
        {"name": "before", "type": ["null", {"type": "record", "name": "Value", "fields": avro}]},
        {"name": "after", "type": ["null", "Value"]}]}  # fmt: skip
    source = pa.struct([("connector", pa.string()), ("file", pa.string()), ("pos", pa.int64()), ("row", pa.int32())])
    table = pa.table({
        "before": pa.array([None], row), "after": pa.array([_ROW], row), "op": pa.array(["c"]),
        "source": pa.array([{"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0}], source),
    }).replace_schema_metadata({"parquet.avro.schema": json.dumps(schema)})  # fmt: skip
    return parquet(table)


_STATED: list[tuple[dict[str, Any], Any, Any, str]] = [
    ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2024-01-01T02:00:00+02:00", "infinity",
     "2024-01-01 00:00:00+00:00"),
    ({"type": "int64", "name": "io.debezium.time.Timestamp"}, 1704067200123, 2**63 - 1, "2024-01-01 00:00:00.123000"),
    ({"type": "int64", "name": "io.debezium.time.NanoTimestamp"}, 1704067200123456000, 2**63,
     "2024-01-01 00:00:00.123456"),
    ({"type": "int32", "name": "io.debezium.time.Date"}, 19723, 2**31, "2024-01-01"),
    ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal",
      "parameters": {"scale": "2", "connect.decimal.precision": "6"}}, "MDk=", "B1vNFQ==", "123.45"),
    ({"type": "int32"}, 7, 2**31, "7"),
    ({"type": "boolean"}, True, 5, "True"),
    ({"type": "double"}, 0.5, "1e400", "0.5"),
]  # fmt: skip


@pytest.mark.parametrize("policy", ["widen", pytest.param("rescue", marks=pytest.mark.deep_on_many)])
def test_first_misfit_does_not_decide_the_type(engine: LocalPort, tmp_path: Path, policy: str) -> None:
    """Misfits of all types are in the first file; what its other rows and later files hold is of the stated types."""
    topic = Topic(engine, tmp_path, schema_evolution={"type_change": policy})
    names = [f"v{at}" for at in range(len(_STATED))]
    fields = {"id": {"type": "int32"}, **{name: schema for name, (schema, *_) in zip(names, _STATED, strict=True)}}
    good = {name: value for name, (_, value, _, _) in zip(names, _STATED, strict=True)}
    bad = [event("c", {"id": at + 2, **good, name: _STATED[at][2]}, at + 2) for at, name in enumerate(names)]
    topic.land(wrapped(fields, event("c", {"id": 1, **good}), *bad))
    topic.run()
    topic.land(wrapped(fields, event("c", {"id": 100, **good}, 100)))
    topic.run()
    rows = {identity: tuple(map(str, values)) for identity, *values in topic.replica("id", *names)}
    wanted = tuple(expected for *_, expected in _STATED)
    assert (rows[1], rows[100]) == (wanted, wanted)
    if policy == "rescue":
        assert {at: tuple(v for n, v in enumerate(row) if n != at - 2) for at, row in rows.items() if 1 < at < 100} == {
            at + 2: tuple(v for n, v in enumerate(wanted) if n != at) for at in range(len(names))
        }
        (rescued,) = [text for identity, text in topic.replica("id", "_rescued_data") if identity == 2]
        assert '"v0":"infinity"' in rescued
    else:
        assert [(row["code"], row["column"]) for row in topic.errors()] == [("CAST_FAILED", name) for name in names]


@pytest.mark.parametrize(
    ("form", "policy"),
    [  # on many, one of each form in each change
        *(pytest.param("json", policy, marks=pytest.mark.deep_on_many) for policy in ("truncate", "round")),
        *(pytest.param("parquet", policy, marks=pytest.mark.deep_on_many) for policy in ("truncate", "quarantine")),
        ("json", "quarantine"),
        ("parquet", "round"),
    ],
)
def test_zoned_times_finer_than_a_microsecond(engine: LocalPort, tmp_path: Path, policy: str, form: str) -> None:
    named = {"at": "io.debezium.time.ZonedTimestamp"}
    topic = Topic(engine, tmp_path, sub_microseconds=policy, options={"semantic_types": named})
    times = ("2024-01-01T00:00:00.1234567Z", "2024-01-01T02:00:00+02:00")
    events = [event("c", {"id": at, "at": time}, at) for at, time in enumerate(times, start=1)]
    topic.land(text(*events) if form == "json" else enveloped(*events), form)
    topic.run()
    topic.land(text(event("c", {"id": 3, "at": "2024-01-01T00:00:00Z"}, 3)))
    topic.run()
    fine = {"truncate": ".123456", "round": ".123457"}
    first = [(1, f"2024-01-01 00:00:00{fine[policy]}+00:00")] if policy in fine else []
    found = [(identity, str(at)) for identity, at in topic.replica("id", "at")]
    assert found == [*first, (2, "2024-01-01 00:00:00+00:00"), (3, "2024-01-01 00:00:00+00:00")]


@pytest.mark.parametrize("form", [pytest.param("json", marks=pytest.mark.deep_on_many), "parquet"])
def test_delete_without_a_row_has_the_key_of_its_record(engine: LocalPort, tmp_path: Path, form: str) -> None:
    """A source that logs no row before deletes (`REPLICA IDENTITY NOTHING`)."""
    topic = Topic(engine, tmp_path)
    row = {"id": 1, "v": "a"}
    events = [event("c", row), event("c", row | {"id": 2}, 2), event("d", None, 3) | {"before": None}]
    records = [{"key": {"id": at}, "value": each, "offset": at} for at, each in zip((1, 2, 1), events, strict=True)]
    topic.land(text(*records) if form == "json" else parquet(pa.Table.from_pylist(records)), form)
    topic.run()
    assert (topic.replica("id", "v"), topic.errors()) == ([(2, "a")], [])


_ISO = {
    "id": {"type": "int32"}, "d": {"type": "string", "name": "io.debezium.time.IsoDate"},
    "at": {"type": "string", "name": "io.debezium.time.IsoTimestamp"},
    "h": {"type": "string", "name": "io.debezium.time.IsoTime"},
}  # fmt: skip


@pytest.mark.parametrize("written", ["2017-09-15Z", "2017-09-15+14:00", "2017-09-15-11:00"])
def test_iso_dates_and_times_become_the_declared_types(engine: LocalPort, tmp_path: Path, written: str) -> None:
    """`time.precision.mode=isostring`: the zone of a day says nothing."""
    topic = Topic(engine, tmp_path, options={"types": {"d": "date", "at": "timestamp_ntz"}})
    row = {"id": 1, "d": written, "at": "2017-09-15T20:40:00Z", "h": "20:40:00Z"}
    topic.land(wrapped(_ISO, event("c", row)))
    topic.run()
    assert topic.replica("d", "at", "h") == [(date(2017, 9, 15), datetime(2017, 9, 15, 20, 40), "20:40:00Z")]  # noqa: DTZ001 - no zone is meant
    assert topic.errors() == []
