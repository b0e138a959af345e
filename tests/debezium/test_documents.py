"""MongoDB's events: documents as texts of extended JSON."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import probe, rows_of, text
from tests.debezium.topic import Topic, parquet, warnings_of

Json = dict[str, Any]


def oid(number: int) -> Json:
    return {"$oid": f"{number:024x}"}


def event(op: str, key: int, at: int, document: Json | None = None, **more: Any) -> Json:
    """A record with its key beside it, as sinks write them."""
    source = {"connector": "mongodb", "name": "shop", "db": "shop", "collection": "t", "ts_ms": 1_700_000_000_000,
              "ord": at, "snapshot": "false"}  # fmt: skip
    after = None if document is None else json.dumps({"_id": oid(key), **document})
    described = {"removedFields": None, "updatedFields": None, "truncatedArrays": None, **more} if more else None
    value = {"before": None, "after": after, "updateDescription": described, "source": source, "op": op}
    return {"key": {"id": json.dumps(oid(key))}, "value": value}


def as_lines(*events: Json) -> bytes:
    return text(*events).encode()


def as_parquet(*events: Json) -> bytes:
    return parquet(pa.Table.from_pylist(list(events)))


@pytest.mark.parametrize("form", [as_lines, as_parquet])
def test_documents_are_rows(engine: LocalPort, tmp_path: Path, form: Callable[..., bytes]) -> None:
    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(form(
        event("r", 1, 1, {"v": "a", "n": {"$numberLong": "5"}}), event("c", 2, 2, {"v": "b", "n": 6}),
        event("c", 3, 3, {"v": "c", "n": 7, "deep": {"x": [1, {"$date": 0}]}}), event("c", 4, 4, {"v": "d"}),
    ))  # fmt: skip
    assert (warnings_of(topic.run()), topic.errors()) == ([], [])
    topic.land(form(
        event("u", 1, 11, {"v": "a2"}),  # $unset of n
        event("d", 2, 12),
        event("u", 3, 13, updatedFields=json.dumps({"v": "c2"}), removedFields=["deep"]),
    ))  # fmt: skip
    assert (warnings_of(topic.run()), topic.errors()) == ([], [])
    key = [oid(number)["$oid"] for number in range(5)]
    expected = [(key[1], "a2", None, None), (key[3], "c2", 7, None), (key[4], "d", None, None)]
    assert sorted(topic.replica("_id", "v", "n", "deep"), key=lambda row: row[0]) == expected
    topic.land(form(event("u", 1, 5, {"v": "late", "n": 1}), event("u", 2, 6, {"v": "late", "n": 1})))
    assert topic.run().late_ignored == 2
    assert sorted(topic.replica("_id", "v", "n", "deep"), key=lambda row: row[0]) == expected
    assert topic.run(action="verify").details["verdict"] == "equal"


def test_an_update_has_its_key_in_the_document_before(engine: LocalPort, tmp_path: Path) -> None:
    """`change_streams_with_pre_image`, where no key is beside the event."""
    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(as_lines(event("c", 1, 1, {"v": "a", "n": 5})))
    update = event("u", 1, 2, updatedFields=json.dumps({"v": "b"}))["value"]
    topic.land(as_lines(update | {"before": json.dumps({"_id": oid(1), "v": "a", "n": 5})}))
    topic.run()
    assert (topic.replica("v", "n"), topic.errors()) == ([("b", 5)], [])


def test_whole_document_empties_fields_that_its_file_lacks(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(as_lines(event("c", 1, 1, {"v": "a", "n": 5})))
    topic.run()
    topic.land(as_lines(event("u", 1, 2, {"v": "b"})))
    topic.run()
    assert topic.replica("v", "n") == [("b", None)]


@pytest.mark.parametrize(("value", "column"), [
    ("t", "t"), (5, 5), (1.5, 1.5), (True, True), (None, None),
    ({"$oid": "5f" * 12}, "5f" * 12),
    ({"$numberLong": "9007199254740993"}, 9007199254740993), ({"$numberInt": "3"}, 3), ({"$numberDouble": "1.5"}, 1.5),
    ({"$numberDecimal": "1.10"}, "1.10"),
    ({"$date": 1_000}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ({"$date": {"$numberLong": "-1000"}}, datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ({"$date": "1970-01-01T00:00:01Z"}, datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)),
    ({"$binary": "AQI=", "$type": "00"}, b"\x01\x02"),
    ({"$binary": {"base64": "AQI=", "subType": "00"}}, b"\x01\x02"),
    ({"$timestamp": {"t": 1, "i": 2}}, '{"$timestamp":{"t":1,"i":2}}'),
    ({"a": {"b": {"$oid": "ab"}}}, '{"a":{"b":"ab"}}'), ([1, "x"], '[1,"x"]'), ([], "[]"), ({}, "{}"),
])  # fmt: skip
def test_values_of_documents_become_columns(tmp_path: Path, value: Any, column: Any) -> None:
    (found,) = rows_of(probe(tmp_path, as_lines(event("c", 1, 1, {"v": value}))))
    assert found["v"] == column


@pytest.mark.parametrize("key", [{"id": '"abc"'}, {"schema": None, "payload": {"id": '"abc"'}}])
def test_key_of_a_delete(tmp_path: Path, key: Json) -> None:
    (found,) = rows_of(probe(tmp_path, as_lines({**event("d", 1, 1), "key": key})))
    assert (found["_dbz_op"], found["_id"]) == ("D", "abc")


@pytest.mark.parametrize("broken", [
    event("u", 1, 2, updatedFields='{"deep.x": 5}'),
    event("u", 1, 2, truncatedArrays=[{"field": "a", "newSize": 1}]),
    event("u", 1, 2),
    {"key": None, "value": {**event("c", 1, 2)["value"], "after": "[5]"}},
    {"key": None, "value": {**event("c", 1, 2)["value"], "after": "{"}},
    {"key": None, "value": {**event("c", 1, 2)["value"], "after": '{"_id": 1, "v": {"$numberLong": "x"}}'}},
])  # fmt: skip
def test_events_without_a_row_are_quarantined(tmp_path: Path, broken: Json) -> None:
    found = probe(tmp_path, as_lines(event("c", 1, 1, {"v": "a"}), broken))
    assert found.malformed is not None
    assert [original is not None for original in found.malformed.to_pylist()] == [False, True]


def test_nested_values_are_structs_where_the_row_declares_them(engine: LocalPort, tmp_path: Path) -> None:
    types = {
        "address": "struct<city:string,since:timestamp,spot:array<double>>",
        "owner": "struct<_id:string,n:bigint>",
    }
    topic = Topic(engine, tmp_path, keys=["_id"], options={"types": types})
    since, owner = {"$date": {"$numberLong": "1500"}}, {"_id": oid(9), "n": {"$numberLong": "9007199254740993"}}
    address = {"city": "Bern", "since": since, "spot": [{"$numberDouble": "7.4"}, 46]}
    topic.land(as_lines(
        event("c", 1, 1, {"address": address, "owner": owner}),
        event("c", 2, 2, {"address": {"city": "Chur"}, "owner": None}),
        event("c", 3, 3, {"address": {"town": "Biel"}}),
    ))  # fmt: skip
    topic.run()
    moment = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    assert sorted(topic.replica("_id", "address", "owner"), key=lambda row: row[0]) == [
        (oid(1)["$oid"], {"city": "Bern", "since": moment, "spot": [7.4, 46.0]},
         {"_id": oid(9)["$oid"], "n": 9_007_199_254_740_993}),
        (oid(2)["$oid"], {"city": "Chur", "since": None, "spot": None}, None),
    ]  # fmt: skip
    assert [error["code"] for error in topic.errors()] == ["CAST_FAILED"]


_NO_NUMBERS = {"n": "NaN", "p": "Infinity", "m": "-Infinity"}
_AS_WRAPPED = {name: {"$numberDouble": text} for name, text in _NO_NUMBERS.items()}
_AS_TOKENS = {name: float(text) for name, text in _NO_NUMBERS.items()}


@pytest.mark.parametrize("written", [_AS_WRAPPED, _AS_TOKENS])
@pytest.mark.parametrize("form", [as_lines, as_parquet])
def test_what_is_no_number_is_a_text_of_nested_json(
    engine: LocalPort, tmp_path: Path, form: Callable[..., bytes], written: Json
) -> None:
    """`json.serialization.mode=legacy` writes `NaN` without quotes, which is no JSON; others wrap it.

    A declared type reads such a text as the number that it names.
    """
    types = {"spots": "array<double>", "spot": "struct<n:double,p:double,m:double>"}
    topic = Topic(engine, tmp_path, keys=["_id"], options={"types": types})
    document = {**written, "deep": {"in": [1.5, written]}, "spots": [*written.values(), 1], "spot": written}
    topic.land(form(event("c", 1, 1, document)))
    assert (warnings_of(topic.run()), topic.errors()) == ([], [])
    ((deep, *found),) = topic.replica("deep", "n", "p", "m", "spots", "spot")
    assert deep == '{"in":[1.5,{"n":"NaN","p":"Infinity","m":"-Infinity"}]}'
    numbers = list(_AS_TOKENS.values())
    assert list(map(repr, found)) == list(map(repr, [*numbers, [*numbers, 1.0], _AS_TOKENS]))


_FAR = {"$numberLong": "8640000000000000"}


@pytest.mark.parametrize(("far", "said"), [
    (_FAR, "+275760-09-13T00:00:00+00:00"), ({"$numberLong": "-62167219200000"}, "+000000-01-01T00:00:00+00:00"),
    ({"$numberLong": str(2**63 - 1)}, "+292278994-08-17T07:12:55.807000+00:00"),
    ({"$numberLong": str(-(2**63))}, "-292275055-05-16T16:47:04.192000+00:00"),
    ("+12025-01-01T00:00:00Z", "+12025-01-01T00:00:00Z"),
])  # fmt: skip
@pytest.mark.parametrize("form", [as_lines, as_parquet])
def test_date_outside_the_years_is_a_misfit_of_its_value(
    engine: LocalPort, tmp_path: Path, form: Callable[..., bytes], far: Any, said: str
) -> None:
    """BSON's dates are 64-bit milliseconds. Inside a nested value one is part of the text."""
    topic = Topic(engine, tmp_path, keys=["_id"])
    documents = ({"until": {"$date": 0}}, {"until": {"$date": far}}, {"deep": {"until": {"$date": far}}})
    topic.land(form(*(event("c", n, n, document) for n, document in enumerate(documents, 1))))
    topic.run()
    assert [(row["code"], row["column"]) for row in topic.errors()] == [("CAST_FAILED", "until")]
    start = datetime(1970, 1, 1, tzinfo=UTC)
    found = sorted(topic.replica("_id", "until", "deep"), key=lambda row: row[0])
    assert [row[1:] for row in found] == [(start, None), (None, json.dumps({"until": said}, separators=(",", ":")))]


@pytest.mark.parametrize("types", [{}, {"until": "string"}])
def test_date_outside_the_years_where_the_row_takes_it(
    engine: LocalPort, tmp_path: Path, types: dict[str, str]
) -> None:
    """Rescued, or as text where the column is declared so."""
    topic = Topic(engine, tmp_path, keys=["_id"], options={"types": types}, schema_evolution={"type_change": "rescue"})
    topic.land(as_lines(event("c", 1, 1, {"until": {"$date": _FAR}})))
    topic.run()
    far = "+275760-09-13T00:00:00+00:00"
    ((value, rescued),) = topic.replica("until", "_rescued_data")
    held = value if types else json.loads(rescued)["until"]
    assert (held, value is None) == (far, not types)


def with_id(op: str, key: Any, at: int, v: str | None = None, shard: str = "rs0") -> Json:
    """An event of a document with this key, captured on a shard."""
    found = event(op, 1, at)
    after = None if v is None else json.dumps({"_id": key, "v": v})
    value = {**found["value"], "after": after, "source": {**found["value"]["source"], "rs": shard}}
    return {"key": {"id": json.dumps(key)}, "value": value}


_DAY = "2024-01-02T00:00:00+00:00"
_UUID = "0123abcd-0000-4000-8000-000000000000"
OTHER_TYPES: dict[str, tuple[Any, Any]] = {
    "number": (1, "1"), "fraction": (1.5, "1.5"), "decimal": ({"$numberDecimal": "1.10"}, "1.10"),
    "long": ({"$numberLong": "1"}, "1"), "ObjectId": (oid(95), f"{95:024x}"), "UUID": ({"$uuid": _UUID}, _UUID),
    "boolean": (True, "true"), "date": ({"$date": _DAY}, _DAY),
}  # fmt: skip
"""Keys that BSON tells apart, and a column of text does not."""


@pytest.mark.parametrize("name", OTHER_TYPES)
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("is_text_first", [False, True])
def test_keys_that_differ_by_their_type_alone_are_refused(
    engine: LocalPort, tmp_path: Path, name: str, files: int, is_text_first: bool
) -> None:
    topic = Topic(engine, tmp_path, keys=["_id"])
    keys = OTHER_TYPES[name][::-1] if is_text_first else OTHER_TYPES[name]
    events = [with_id("c", key, at, v) for at, (key, v) in enumerate(zip(keys, "ab", strict=True), 1)]
    if files == 2:
        topic.land(as_lines(events[0]))
        topic.run()
    topic.land(as_lines(*events[files - 1 :]))
    assert topic.refused().code == "KEY_TYPE"


@pytest.mark.parametrize("keys", [("a", "b"), ("1", "2"), (1, {"$numberLong": "2"}), (oid(1), "a"), (oid(1), oid(2)),
                                  (f"{1:024x}", "x"), (_UUID, f"{1:024x}")])  # fmt: skip
def test_keys_that_are_distinct_as_text_are_rows(engine: LocalPort, tmp_path: Path, keys: tuple[Any, Any]) -> None:
    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(as_lines(*(with_id("c", key, at, v) for at, (key, v) in enumerate(zip(keys, "ab", strict=True), 1))))
    assert warnings_of(topic.run()) == []
    assert topic.replica("v") == [("a",), ("b",)]


@pytest.mark.parametrize("files", [1, 2])
def test_documents_of_several_shards_are_told(engine: LocalPort, tmp_path: Path, files: int) -> None:
    """An `_id` is unique on its shard alone. By default it is the key, for a document may move from shard to shard.

    Its updates come from the new shard then, and no event tells of the move: with the shard in the key the former row
    would stay. So two documents of one `_id` are two rows only where the row says so.
    """
    events = [with_id("c", 1, 1, "a", "shard0"), with_id("c", 1, 2, "b", "shard1")]
    topic = Topic(engine, tmp_path / "told", keys=["_id"])
    apart = Topic(engine, tmp_path / "apart", keys=["_id", "_dbz_shard"])
    for each in (topic, apart):
        for part in [events] if files == 1 else [[one] for one in events]:
            each.land(as_lines(*part))
            result = each.run()
        assert warnings_of(result) == (["SHARDS_SHARE_KEYS"] if each is topic else [])
        each.land(as_lines(with_id("d", 1, 9, None, "shard0")))
        each.run()
    assert apart.replica("_id", "v", "_dbz_shard") == [(1, "b", "shard1")]
    assert apart.run(action="verify").details["verdict"] == "equal"


def test_shards_whose_keys_are_object_ids_share_none(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(as_lines(with_id("c", oid(1), 1, "a", "shard0"), with_id("c", oid(2), 2, "b", "shard1")))
    assert warnings_of(topic.run()) == []
