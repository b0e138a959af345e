"""Events of several tables of a source in one folder: refused, or told apart by the key; never one row in silence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic, warnings_of

T = 1_700_000_000_000
PLACES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "tables": ({"db": "d", "table": "a"}, {"db": "d", "table": "b"}),
    "databases": ({"db": "d1", "table": "a"}, {"db": "d2", "table": "a"}),
    "schemas": ({"db": "d", "schema": "s1", "table": "a"}, {"db": "d", "schema": "s2", "table": "a"}),
}


def event(op: str, row: dict[str, Any], place: dict[str, Any], at: int) -> dict[str, Any]:
    source = {"connector": "mysql", "file": "bin.000001", "pos": at, "row": 0, "ts_ms": T + at, **place}
    side, other = ("before", "after") if op == "d" else ("after", "before")
    return {"op": op, side: row, other: None, "source": source}


@pytest.mark.parametrize("options", [{}, {"snapshots": "merge"}])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", PLACES)
def test_rows_of_two_tables_are_refused(
    engine: LocalPort, tmp_path: Path, name: str, together: bool, options: dict[str, Any]
) -> None:
    first, second = PLACES[name]
    topic = Topic(engine, tmp_path, options=options)
    topic.land(text(event("c", {"id": 1, "v": "Ada"}, first, 100)))
    if not together:
        topic.run()
    topic.land(text(event("c", {"id": 1, "v": "Bo"}, second, 200)))
    refused = topic.refused()
    assert refused.code == "TABLES_SHARE_KEYS"
    assert all(".".join(place.values()) in refused.message for place in (first, second))
    assert topic.replica("id", "v") == ([] if together else [(1, "Ada")])
    assert topic.refused().code == "TABLES_SHARE_KEYS"
    allowed = topic.with_row(options={**options, "source_tables": "several"})
    allowed.run()
    assert allowed.replica("id", "v") == [(1, "Bo")]


def test_the_table_is_a_part_of_the_key_on_request(engine: LocalPort, tmp_path: Path) -> None:
    first, second = PLACES["tables"]
    topic = Topic(engine, tmp_path, keys=["id", "_dbz_table"])
    topic.land(text(event("c", {"id": 1, "v": "Ada"}, first, 100), event("c", {"id": 1, "v": "Bo"}, second, 200)))
    topic.run()
    assert topic.replica("id", "v", "_dbz_table") == [(1, "Ada", "d.a"), (1, "Bo", "d.b")]
    topic.land(text(event("d", {"id": 1}, first, 300)))
    topic.run()
    assert topic.replica("id", "v", "_dbz_table") == [(1, "Bo", "d.b")]


def test_collections_of_mongodb_are_tables(engine: LocalPort, tmp_path: Path) -> None:
    def document(collection: str, at: int) -> dict[str, Any]:
        source = {"connector": "mongodb", "db": "d", "collection": collection, "ts_ms": T, "ord": at}
        return {"op": "c", "before": None, "after": '{"_id": 1, "v": "a"}', "source": source}

    topic = Topic(engine, tmp_path, keys=["_id"])
    topic.land(text(document("a", 1), document("b", 2)))
    assert topic.refused().code == "TABLES_SHARE_KEYS"


def of(connector: str, at: int, op: str, row: dict[str, Any]) -> dict[str, Any]:
    return event(op, row, {"name": connector, "db": "d", "table": "a", "server_id": len(connector)}, at)


MINUTES = 60_000
BESIDE = {
    "in a file": [[("eu", 100), ("us", 200), ("eu", 300)]],
    "by their times": [[("eu", 100)], [("us", 200)], [("eu", 200 + 2 * MINUTES), ("us", 300 + 4 * MINUTES)]],
}


@pytest.mark.parametrize("name", BESIDE)
def test_rows_of_two_servers_are_refused(engine: LocalPort, tmp_path: Path, name: str) -> None:
    """Two connectors of databases with one name, whose topics a RegexRouter makes one."""
    topic = Topic(engine, tmp_path)
    *before, last = BESIDE[name]
    for events in before:
        topic.land(text(*(of(connector, at, "c", {"id": 1, "v": connector}) for connector, at in events)))
        topic.run()
    rows = topic.replica("id", "v") if before else []
    topic.land(text(*(of(connector, at, "c", {"id": 1, "v": connector}) for connector, at in last)))
    refused = topic.refused()
    assert refused.code == "TABLES_SHARE_KEYS"
    assert "connectors eu and us" in refused.message
    assert (topic.replica("id", "v") if before else []) == rows
    allowed = topic.with_row(options={"source_tables": "several"})
    assert "CONNECTORS_SHARE_KEYS" not in warnings_of(allowed.run())
    assert allowed.replica("id", "v") == [(1, last[-1][0])]


def test_a_connector_that_follows_another_is_named_once(engine: LocalPort, tmp_path: Path) -> None:
    """A connector of a new name captures the same table, or another server's: nothing in the events tells which."""
    topic = Topic(engine, tmp_path)
    topic.land(text(of("old", 100, "c", {"id": 1, "v": "a"})))
    assert warnings_of(topic.run()) == []
    topic.land(text(of("new one", 200, "c", {"id": 1, "v": "b"})))
    assert warnings_of(topic.run()) == ["CONNECTORS_SHARE_KEYS"]
    topic.land(text(of("new one", 300, "c", {"id": 2, "v": "c"})))
    assert warnings_of(topic.run()) == []
    topic.land(text(of("newest", 400, "c", {"id": 2, "v": "c"})))
    assert warnings_of(topic.run()) == ["CONNECTORS_SHARE_KEYS"]
    told = topic.with_row(options={"source_tables": "several"})
    told.land(text(of("another", 500, "c", {"id": 2, "v": "c"})))
    assert warnings_of(told.run()) == []


def test_a_table_of_each_connector_is_no_table_of_both(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=["id", "_dbz_table"])
    first, second = ({"name": name, "db": name, "table": "a"} for name in ("eu", "us"))
    places = [(first, 100), (second, 200), (first, 300)]
    topic.land(text(*(event("c", {"id": at, "v": "x"}, place, at) for place, at in places)))
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "_dbz_table") == [(100, "eu.a"), (200, "us.a"), (300, "eu.a")]
