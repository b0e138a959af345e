"""What the dialect makes of JSON: operations, wrappers, what is broken, values that the source did not send."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import QuarantinableError
from spark_jobs.rooms.dialects.debezium.change_events import FLAT, unwrapped
from tests.conftest import LocalPort
from tests.debezium.probing import event, probe, rows_of, text, wrapped
from tests.debezium.topic import Topic, parquet

_PLACEHOLDER = "__debezium_unavailable_value"
_LSN = "_dbz_sequence"


def place(lsn: int) -> str:
    return f"{lsn:020d}.1.{lsn:020d}"


def carried(*names: str) -> str:
    """A list of columns that a change carries, as the dialect delivers it."""
    return json.dumps(names)


def test_each_event_is_a_row_with_its_operation(tmp_path: Path) -> None:
    rows = rows_of(probe(tmp_path, text(event("r", {"id": 1}, 1), event("c", {"id": 2}, 2), event("u", {"id": 2}, 3),
                                       event("d", {"id": 2}, 4), None, event("t", None, 5))))  # fmt: skip
    assert [(row["_dbz_op"], row["id"], row[_LSN]) for row in rows] == [
        ("I", 1, place(1)), ("I", 2, place(2)), ("U", 2, place(3)), ("D", 2, place(4)), ("T", None, place(5)),
    ]  # fmt: skip


def test_key_update_is_a_delete_and_an_insert_at_one_position(tmp_path: Path) -> None:
    rows = rows_of(probe(tmp_path, text(event("d", {"id": 1}, 7), event("c", {"id": 2}, 7))))
    assert [(row["_dbz_op"], row["id"], row[_LSN]) for row in rows] == [("D", 1, place(7)), ("I", 2, place(7))]


@pytest.mark.parametrize("around", [
    lambda e: e,
    lambda e: {"schema": None, "payload": e},
    lambda e: {"schema": {"type": "struct", "fields": []}, "payload": e},
    lambda e: {"key": {"id": 1 if e else 2}, "value": e, "offset": 3, "timestamp": 5},
    lambda e: {"value": {"schema": None, "payload": e}},
    lambda e: {"payload": e, "schema": {"type": "struct"}},
    json.dumps,
])  # fmt: skip
def test_wrapped_events_are_read_as_bare_ones(tmp_path: Path, around: Any) -> None:
    events = [event("c", {"id": 1, "v": "a"}), event("u", {"id": 1, "v": "b"}, 2)]
    bare = rows_of(probe(tmp_path, text(*events)))
    assert [(row["id"], row["v"]) for row in bare] == [(1, "a"), (1, "b")]
    assert rows_of(probe(tmp_path, text(*map(around, events), around(None)))) == bare


@pytest.mark.parametrize("form", ["array", "concatenated", "gzip", "crlf", "marked"])
def test_each_form_of_a_file_has_the_same_rows(tmp_path: Path, form: str) -> None:
    events = [event("c", {"id": 1}), event("u", {"id": 1}, 2)]
    lines = text(*events)
    content: dict[str, bytes] = {
        "array": json.dumps(events).encode(),
        "concatenated": lines.replace("\n", "").encode(),
        "gzip": gzip.compress(lines.encode()),
        "marked": lines.encode("utf-8-sig"),
        "crlf": lines.replace("\n", "\r\n").encode(),
    }
    assert rows_of(probe(tmp_path, content[form])) == rows_of(probe(tmp_path, lines))


@pytest.mark.parametrize("broken", ['{"op": "c", "after"', "nonsense", '{"id": 1}', "5", '"c"',
                                    '{"op":"c","before":null}', '{"op":"c","after":{"id":1}}',
                                    '{"op":"u","after":"{\\"id\\":1}"}'])  # fmt: skip
def test_invalid_event_keeps_its_text(tmp_path: Path, broken: str) -> None:
    found = probe(tmp_path, text(event("c", {"id": 1})) + broken + "\n" + text(event("c", {"id": 2})))
    assert found.malformed is not None
    assert found.malformed.to_pylist() == [None, broken, None]
    assert [row["id"] for row in rows_of(found)] == [1, None, 2]


@pytest.mark.parametrize("content", [
    text(event("c", {"id": 1}))[:-20],
    gzip.compress(text(event("c", {"id": 1})).encode(), mtime=0)[:-9],
    text({"id": 1}, {"id": 2}),
    b"\xff\xfe{}\n",
    text(event("c", {"id": 1, "_dbz_op": "x"})),
])  # fmt: skip
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes | str) -> None:
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, content)
    assert caught.value.code == "FILE_UNREADABLE"


def test_file_of_tombstones_has_no_rows_but_key_columns(tmp_path: Path) -> None:
    found = probe(tmp_path, text(None, {"schema": None, "payload": None}))
    assert (found.rows, dict(found.columns)["id"]) == (0, "void")


def _wrapped_keys(*records: dict[str, Any]) -> str:
    return text(*({**one, "key": one["key"] and {"schema": None, "payload": one["key"]}} for one in records))


def _with_keys_in_parquet(*records: dict[str, Any]) -> bytes:
    """As Aiven's sink writes it with `format.output.fields=key,value`."""
    row = pa.struct([("id", pa.int64()), ("v", pa.string())])
    source = pa.struct([("connector", pa.string()), ("lsn", pa.int64()), ("ts_ms", pa.int64())])
    value = pa.struct([("before", row), ("after", row), ("source", source), ("op", pa.string())])
    schema = pa.schema([("key", pa.struct([("id", pa.int64())])), ("value", value)])
    return parquet(pa.Table.from_pylist(list(records), schema))


@pytest.mark.parametrize("form", [text, _wrapped_keys, _with_keys_in_parquet])
@pytest.mark.parametrize(
    ("records", "lost"),
    [
        (["c1", "t1"], 1),
        (["c1", "d1", "t1"], 0),
        (["c1", "c2", "t1", "t2"], 2),
        (["c1", "d1", "c2", "t1"], 0),
        (["c1", "d1", "t1", "c1", "t1"], 1),
        (["t1", "c1"], 0),
        (["c2", "t1"], 0),
        (["u1", "t1"], 1),
        (["c1", "truncate", "t1"], 0),
    ],
    ids=str,
)
def test_tombstone_of_a_row_that_no_event_has_deleted_is_quarantined(
    tmp_path: Path, form: Callable[..., bytes | str], records: list[str], lost: int
) -> None:
    """A filter leaves out the delete, and the tombstone comes all the same."""
    made = []
    for name in records:
        row = {"id": int(name[1:]), "v": "a"} if name[1:].isdigit() else None
        key = {"id": row["id"]} if row else None
        value = None if name[0] == "t" and row else event(name[0], row) if row else event("t", None)
        made.append({"key": key, "value": value})
    found = probe(tmp_path, form(*made))
    events = [name for name in records if not name.startswith("t") or name == "truncate"]
    assert found.rows == len(events) + lost
    texts = [] if found.malformed is None else [one for one in found.malformed.to_pylist() if one is not None]
    shown = [json.loads(one) for one in texts]
    assert [one["key"].get("payload", one["key"])["id"] for one in shown] == list(range(1, lost + 1))
    assert {one["value"] for one in shown} <= {None}
    ops = [row["_dbz_op"] for row in rows_of(found)]
    assert [op for op in ops if op] == [{"c": "I", "u": "U", "d": "D", "t": "T"}[name[0]] for name in events]


@pytest.mark.parametrize("stands", [
    _PLACEHOLDER, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==", [_PLACEHOLDER], list(_PLACEHOLDER.encode()),
    {_PLACEHOLDER: _PLACEHOLDER}, json.dumps({_PLACEHOLDER: _PLACEHOLDER}, separators=(",", ":")),
])  # fmt: skip
def test_unsent_value_is_not_carried(tmp_path: Path, stands: Any) -> None:
    rows = rows_of(
        probe(
            tmp_path, text(event("u", {"id": 1, "v": "a", "big": stands}), event("u", {"id": 2, "v": "b", "big": None}))
        )
    )
    all_but_big = carried("id", "v", "_dbz_sequence", "_dbz_ts")
    assert [(row["big"], row["_dbz_carried"]) for row in rows] == [(None, all_but_big), (None, None)]


@pytest.mark.parametrize(("op", "becomes"), [("c", "I"), ("r", "U")])
def test_insert_without_a_value_stays_one_but_a_row_that_was_read(tmp_path: Path, op: str, becomes: str) -> None:
    source = {"connector": "oracle", "scn": "7", "snapshot": "true" if op == "r" else "false"}
    (row,) = rows_of(probe(tmp_path, text(event(op, {"id": 9, "big": _PLACEHOLDER}, source=source))))
    assert (row["_dbz_op"], row["_dbz_carried"]) == (becomes, carried("id", "_dbz_sequence", "_dbz_ts"))


def test_a_custom_placeholder_counts_as_unavailable(tmp_path: Path) -> None:
    (row,) = rows_of(probe(tmp_path, text(event("u", {"id": 1, "big": "gone"})), unavailable="gone"))
    assert (row["big"], row["_dbz_carried"]) == (None, carried("id", "_dbz_sequence", "_dbz_ts"))


def test_column_added_within_a_file_is_not_nulled_before(tmp_path: Path) -> None:
    rows = rows_of(probe(tmp_path, text(event("u", {"id": 1, "v": "a"}), event("u", {"id": 1, "v": "b", "w": 1}, 2))))
    assert [row["_dbz_carried"] for row in rows] == [carried("id", "v", "_dbz_sequence", "_dbz_ts"), None]


def test_schema_of_each_line_is_used(tmp_path: Path) -> None:
    narrow = wrapped({"id": {"type": "int32"}}, event("c", {"id": 1}))
    wide = wrapped({"id": {"type": "int32"}, "day": {"type": "int32", "name": "io.debezium.time.Date"}},
                   event("c", {"id": 2, "day": 1}))  # fmt: skip
    found = probe(tmp_path, narrow + wide)
    assert dict(found.columns) == {"_dbz_op": "string", "id": "int", "day": "date", _LSN: "string",
                                   "_dbz_ts": "timestamp"}  # fmt: skip
    assert [row["id"] for row in rows_of(found)] == [1, 2]


def test_deletes_without_a_row_belong_to_the_table(tmp_path: Path) -> None:
    found = probe(tmp_path, text(event("d", None), event("d", None, 2)))
    assert (found.rows, dict(found.columns)["id"]) == (2, "void")


def test_missing_position_column_is_reported(tmp_path: Path) -> None:
    """Else the first such file would have the table ordered by time for ever."""
    source = {"connector": "postgresql", "lsn": None, "ts_ms": 5}
    found = probe(tmp_path, text({**event("c", {"id": 1}), "source": source}))
    assert rows_of(found) == [{"_dbz_op": "I", "id": 1, _LSN: None}]


def test_file_of_two_connectors_is_refused(tmp_path: Path) -> None:
    source = {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0}
    with pytest.raises(QuarantinableError) as caught:
        probe(tmp_path, text(event("c", {"id": 1}), {**event("c", {"id": 2}), "source": source}))
    assert "several connectors" in caught.value.what


def test_before_images_are_delivered_on_request(tmp_path: Path) -> None:
    before = {"id": 1, "v": "a", "big": _PLACEHOLDER}
    events = text(
        event("c", {"id": 1, "v": "a", "big": "x"}),
        {**event("u", {"id": 1, "v": "b", "big": "x"}, 2), "before": before},
        event("d", {"id": 1, "v": "b", "big": "x"}, 3),
    )
    rows = rows_of(probe(tmp_path, events, before_image_prefix="BI_"))
    assert [(row["BI_id"], row["BI_v"], row["BI_big"]) for row in rows] == [
        (None, None, None), (1, "a", None), (None, None, None),
    ]  # fmt: skip
    assert not any(name.startswith("BI_") for name in rows_of(probe(tmp_path, events))[0])


def test_without_positions_only_commit_time_orders(tmp_path: Path) -> None:
    found = probe(tmp_path, text({**event("c", {"id": 1}), "source": {"connector": "vitess", "ts_ms": 5}}))
    assert [name for name, _ in found.columns] == ["_dbz_op", "id", "_dbz_ts"]


@pytest.mark.parametrize("key", [
    {"id": 7, "shard": "s"},
    {"schema": None, "payload": {"id": 7}},
    {"schema": {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}, "payload": {"id": 7}},
    json.dumps({"id": 7}),
])  # fmt: skip
@pytest.mark.parametrize("before", [None, {"v": "a"}, {"id": None, "v": "a"}])
def test_delete_takes_its_key_from_the_record(tmp_path: Path, key: Any, before: Any) -> None:
    insert, delete = event("c", {"id": 7, "v": "a"}), event("d", before, 2)
    records = [{"key": key, "value": each, "offset": 1} for each in (insert, delete)]
    found = probe(tmp_path, text(*records))
    assert [(row["_dbz_op"], row["id"]) for row in rows_of(found)] == [("I", 7), ("D", 7)]
    assert "shard" not in dict(found.columns)


def test_key_of_a_record_has_the_type_of_its_own_schema(tmp_path: Path) -> None:
    day = {"type": "int32", "name": "io.debezium.time.Date", "field": "id"}
    key = {"schema": {"type": "struct", "fields": [day]}, "payload": {"id": 19723}}
    found = probe(tmp_path, text({"key": key, "value": event("d", None)}))
    assert (dict(found.columns)["id"], [str(row["id"]) for row in rows_of(found)]) == ("date", ["2024-01-01"])


def test_other_operations_take_nothing_from_the_key(tmp_path: Path) -> None:
    (row,) = rows_of(probe(tmp_path, text({"key": {"id": 7}, "value": event("u", {"id": 8})})))
    assert row["id"] == 8


def keyed(key: dict[str, Any], value: dict[str, Any]) -> dict[str, Any]:
    """As a sink writes a record with its key."""
    return {"key": key, "value": value, "offset": 1}


@pytest.mark.parametrize("before", [
    {"id": 0, "code": "x", "v": None}, {"id": 0, "code": "x", "v": ""}, {"id": None, "code": "x", "v": None},
])  # fmt: skip
def test_delete_by_another_key_removes_no_row_zero(engine: LocalPort, tmp_path: Path, before: dict[str, Any]) -> None:
    """The replica identity was another index for a while: a column that can't be null is zero in such a delete."""
    topic = Topic(engine, tmp_path)
    rows = [event("c", {"id": number, "code": code, "v": code}, number + 1) for number, code in enumerate("wx")]
    topic.land(text(*(keyed({"id": number}, row) for number, row in enumerate(rows))))
    delete = keyed({"code": "x"}, event("d", before, 9))
    topic.land(text(delete, keyed({"id": 2}, event("c", {"id": 2, "code": "y", "v": "y"}, 10))))
    topic.run()
    assert topic.replica("id") == [(0,), (1,), (2,)]
    assert [(row["code"], row["column"]) for row in topic.errors()] == [("KEY_NULL", "id")]


def test_delete_by_another_key_with_its_whole_row_is_followed(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(
        text(*(event("c", {"id": number, "code": code, "v": "v"}, number + 1) for number, code in enumerate("wx")))
    )
    topic.land(text(keyed({"code": "w"}, event("d", {"id": 0, "code": "w", "v": "v"}, 9))))
    topic.run()
    assert (topic.replica("id"), topic.errors()) == ([(1,)], [])


def test_event_whose_members_are_named_as_a_wrapper_s_is_no_wrapper() -> None:
    """A transform may add such a member."""
    one = {"op": "c", "after": {"id": 1}, "value": {"op": "d"}, "payload": {"op": "u"}}
    assert unwrapped(one, FLAT).value == one
    assert unwrapped({"key": 7, "value": {"schema": {}, "payload": one}}, FLAT).value == one
