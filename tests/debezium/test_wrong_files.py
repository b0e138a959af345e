"""What should not be in a table's folder, or not so: a clear code, and nothing lost."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import event, text
from tests.debezium.topic import Topic, enveloped, warnings_of


@pytest.mark.deep_on_many
@pytest.mark.parametrize("source", [
    {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2},
    {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003",
     "ts_ms": 2},
])  # fmt: skip
def test_positions_of_another_log_format_are_refused(engine: LocalPort, tmp_path: Path, source: dict[str, Any]) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.run()
    other = topic.land(text({**event("u", {"id": 1, "v": "b"}), "source": source}))
    error = topic.refused()
    assert (error.code, "take files of another connector" in str(error)) == ("SEQUENCE_WIDTH", True)
    assert topic.replica("v") == [("a",)]
    Path(other).unlink()
    topic.land(text(event("u", {"id": 1, "v": "c"}, 2)))
    topic.run()
    assert topic.replica("v") == [("c",)]


def _cells(source: dict[str, Any], *more: str) -> list[dict[str, Any]]:
    """An update has null in place of the columns that it does not write."""

    def cells(at: int, **values: Any) -> dict[str, Any]:
        row = {name: value and {"value": value, **dict.fromkeys(more), "set": True} for name, value in values.items()}
        return {"op": "u", "before": None, "after": row, "source": {**source, "ts_ms": at}}

    return [cells(1, id="a", v="x", w="y"), cells(2, id="a", v="z", w=None)]


def _plain(source: dict[str, Any]) -> list[dict[str, Any]]:
    rows = [{"id": "a", "v": "x", "w": "y"}, {"id": "a", "v": "z", "w": None}]
    return [{"op": "u", "before": None, "after": row, "source": {**source, "ts_ms": at}} for at, row in enumerate(rows)]


PARTS: dict[str, tuple[list[dict[str, Any]], str]] = {
    "cassandra.adoc": (_cells({"connector": "cassandra", "file": "commitlog-6-1.log"}, "deletion_ts"), "cassandra"),
    "its cells": (_cells({"connector": "other"}, "deletion_ts"), "'id' has cells"),
    "yugabytedb": (_cells({"connector": "yugabytedb"}), "yugabytedb"),
    "cells as of PostgreSQL": (_cells({"connector": "postgresql", "lsn": 1}), "'id' has cells"),
    "without cells (PGCompatible)": (_plain({"connector": "yugabytedb"}), "yugabytedb"),
    "scylla": (_plain({"connector": "scylla"}), "scylla"),
    "spanner.adoc": (_plain({"connector": "spanner", "value_capture_type": "OLD_AND_NEW_VALUES"}), "NEW_ROW"),
    "spanner, not said": (_plain({"connector": "spanner"}), "NEW_ROW"),
}


@pytest.mark.parametrize("ending", ["json", "parquet"])
@pytest.mark.parametrize("writer", PARTS)
def test_parts_of_rows_are_no_rows(engine: LocalPort, tmp_path: Path, writer: str, ending: str) -> None:
    events, reason = PARTS[writer]
    topic = Topic(engine, tmp_path)
    topic.land(text(*events) if ending == "json" else enveloped(*events), ending)
    assert topic.refused().code == "FIRST_LOAD_UNREADABLE"
    assert reason in topic.errors()[0]["reason"]


def test_rows_that_are_whole(engine: LocalPort, tmp_path: Path) -> None:
    """By what a change stream captures; a map of a column that has keys of such names is a value."""
    topic = Topic(engine, tmp_path)
    (first, second) = _plain({"connector": "spanner", "value_capture_type": "NEW_ROW"})
    first["after"]["w"] = {"value": "1", "set": "2"}
    topic.land(text(first, second))
    topic.run()
    assert topic.replica("id", "v", "w") == [("a", "z", None)]


@pytest.mark.deep_on_many
def test_change_of_source_type_orders_by_time_first(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, sequence_by=["_dbz_ts", "_dbz_sequence"])
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    mysql = {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2}
    topic.land(text({**event("u", {"id": 1, "v": "b"}), "source": mysql}))
    topic.run()
    assert topic.replica("v") == [("b",)]


@pytest.mark.deep_on_many
def test_unrelated_files_beside_valid_ones(engine: LocalPort, tmp_path: Path) -> None:
    """Topics that a sink has put into the table's folder; the next version of the file is looked at again."""
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.land(text({"ts_ms": 5}))
    topic.land(text({"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 5}))
    topic.land(text({"source": {"server": "shop"}, "databaseName": "shop", "ddl": "CREATE TABLE t (id int)"}))
    torn = Path(topic.land(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3))[:-9]))
    bare = {name: part for name, part in event("c", {"id": 2, "v": "x"}).items() if name != "source"}
    topic.land(text(bare))
    assert warnings_of(topic.run()) == ["FILE_UNREADABLE"]
    assert [error["code"] for error in topic.errors()] == ["FILE_UNREADABLE"] * 5
    assert topic.replica("id", "v") == [(1, "a")]
    torn.write_text(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3)))
    topic.run()
    assert topic.replica("id", "v") == [(1, "c")]
    assert [error["resolved_at"] is None for error in topic.errors()].count(False) == 1


@pytest.mark.deep_on_many
def test_file_of_another_table_is_put_aside(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.run()
    other = topic.land(text(event("c", {"customer": 1, "name": "x"}, 2)))
    topic.land(text(event("u", {"id": 1, "v": "b"}, 3)))
    topic.run()
    assert [(error["code"], error["source_file"]) for error in topic.errors()] == [("FILE_KEY_MISSING", other)]
    assert topic.replica("id", "v") == [(1, "b")]


@pytest.mark.deep_on_many
def test_deletes_without_a_key_are_quarantined(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 1, "v": "a"})))
    topic.land(text(event("d", None, 2)))
    assert topic.run().quarantined == 1
    assert [error["code"] for error in topic.errors()] == ["KEY_NULL"]
    assert topic.replica("id") == [(1,)]


def test_invalid_records_are_quarantined_unchanged(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, truncate="report")
    lost = event("c", {"id": 6, "v": "b"}, 6) | {"source": {"connector": "postgresql"}}
    odd = text(event("t", None, 3), event("m", {"id": 3}, 4), event("d", None, 5), lost)
    topic.land(text(event("c", {"id": 1, "v": "a"}), {"neither": "nor"}) + "broken\n" + odd)
    result = topic.run()
    assert (result.rows_read, result.changes_written, result.quarantined, result.truncates) == (6, 1, 5, 1)
    found = [(row["position"], row["code"]) for row in topic.errors()]
    assert found == [
        (1, "ROW_MALFORMED"),
        (2, "ROW_MALFORMED"),
        (4, "OP_UNKNOWN"),
        (5, "KEY_NULL"),
        (6, "SEQUENCE_NULL"),
    ]
    records = [json.loads(row["record"]) for row in topic.errors()]
    assert [record.get("line") for record in records[:3]] == ['{"neither": "nor"}', "broken", None]
    assert "one of c, u, d, r, t" in topic.errors()[2]["reason"]
    assert topic.replica("id", "v") == [(1, "a")]


@pytest.mark.deep_on_many
def test_unmaskable_texts_are_dropped(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, mask={"pin": "hash"})
    topic.land(text(event("c", {"id": 1, "pin": "1234"}), {"pin": "secret"}))
    topic.run()
    (error,) = topic.errors()
    assert error["code"] == "ROW_MALFORMED"
    assert "secret" not in str(error)


def test_values_left_out_are_in_no_record(engine: LocalPort, tmp_path: Path) -> None:
    """Nor in that of a line that is no event, whose values belong to no known column.

    A name of other case is the same column, but in one file with both: then the row means the one that it names.
    """
    topic = Topic(engine, tmp_path, exclude_columns=["pin"], before_image_prefix="before_")
    lost = {**event("u", {"id": None, "v": "b", "Pin": "secret"}, 2), "before": {"id": 1, "pin": "secret"}}
    topic.land(text(event("c", {"id": 1, "v": "a", "pin": "secret"}), {"pin": "secret"}))
    topic.run()
    topic.land(text(lost))
    topic.run()
    assert [error["code"] for error in topic.errors()] == ["ROW_MALFORMED", "KEY_NULL"]
    assert "secret" not in str(topic.errors())
    assert json.loads(topic.errors()[1]["record"])["v"] == "b"
    assert topic.replica("id", "v") == [(1, "a")]


@pytest.mark.deep_on_many
def test_lines_that_select_columns_keep_no_text(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, columns=["v"])
    other = event("x", {"pin": "secret"}, 2)
    topic.land(text(event("c", {"id": 1, "v": "a", "pin": "secret"}), {"pin": "secret"}, other))
    topic.run()
    assert [error["code"] for error in topic.errors()] == ["ROW_MALFORMED", "OP_UNKNOWN"]
    assert "secret" not in str(topic.errors())


HALF = "x\ud83d"
"""Half of a surrogate pair: JSON has an escape for it, UTF-8 no bytes."""


def test_half_a_surrogate_pair_stops_only_its_row(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, before_image_prefix="before_")
    topic.land(
        text(
            event("c", {"id": 1, "v": "a\U0001f600", "w": ["a"]}),
            event("c", {"id": 2, "v": HALF, "w": ["b"]}, 2),
            event("c", {"id": 3, "v": "c", "w": ["c", HALF]}, 3),
            event("c", {"id": 4, "v": "d", HALF: 1}, 4),
            event("c", {"id": 5, "v": {"k": {HALF: 1}}}, 5),
            event(HALF, {"id": 6, "v": "f"}, 6),
            {**event("u", {"id": 1, "v": "g"}, 7), "before": {"id": 1, "v": HALF}},
            event("c", {"id": HALF, "v": "h"}, 8),
            event("c", {"id": 9, "v": "i", "w": ["i"]}, 9),
        )
    )
    assert topic.run().quarantined == 7
    found = [(row["position"], row["code"], row["column"]) for row in topic.errors()]
    assert found == [
        (1, "TEXT_NOT_UTF8", "v"), (2, "ROW_MALFORMED", None), (3, "ROW_MALFORMED", None), (4, "ROW_MALFORMED", None),
        (5, "ROW_MALFORMED", None), (6, "TEXT_NOT_UTF8", "before_v"), (7, "TEXT_NOT_UTF8", "id"),
    ]  # fmt: skip
    stored = json.loads(topic.errors()[0]["record"])["v"]
    assert base64.b64decode(stored) == HALF.encode("utf-8", "surrogatepass")
    assert "\\ud83d" in json.loads(topic.errors()[1]["record"])["line"]
    assert topic.replica("id", "v") == [("1", "a\U0001f600"), ("9", "i")]


def test_bytes_that_are_no_text_stop_only_their_row(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    rows = ({"id": 1, "v": "a", "w": "A"}, {"id": 2, "v": "?", "w": "B"}, {"id": 3, "v": "c", "w": ["?"]})
    good, value, nested = (text(event("c", row, row["id"])).encode() for row in rows)
    topic.land(good + value.replace(b"?", b"\xe9") + nested.replace(b"?", b"\xe9") + b"\xe9\n" + good)
    topic.run()
    assert [(row["position"], row["code"]) for row in topic.errors()] == [
        (1, "TEXT_NOT_UTF8"), (2, "ROW_MALFORMED"), (3, "ROW_MALFORMED"),
    ]  # fmt: skip
    assert json.loads(topic.errors()[0]["record"])["v"] == base64.b64encode(b"\xe9").decode()
    assert topic.replica("id", "v") == [(1, "a")]


@pytest.mark.deep_on_many
def test_array_of_events_with_half_a_surrogate_pair(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(json.dumps([event("c", {"id": 1, "v": "a"}), event("c", {"id": 2, HALF: "b"}, 2)]))
    topic.run()
    assert [(row["position"], row["code"]) for row in topic.errors()] == [(1, "ROW_MALFORMED")]


@pytest.mark.deep_on_many
def test_masked_and_excluded_texts_need_no_form(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, mask={"v": "hash"}, exclude_columns=["w"])
    topic.land(text(event("c", {"id": 1, "v": HALF, "w": HALF}), event("c", {"id": 2, "v": "b", "w": "b"}, 2)))
    assert topic.run().quarantined == 0
    assert [len(found) for _, found in topic.replica("id", "v")] == [64, 64]


def test_texts_of_two_lengths_behind_a_time_are_refused(engine: LocalPort, tmp_path: Path) -> None:
    """Unlike the dialect's own positions there: another kind of source has others, and the time is compared first."""
    topic = Topic(engine, tmp_path, sequence_by=["_dbz_ts", "code"])
    topic.land(text(event("c", {"id": 1, "code": "log-9"}, 5), event("c", {"id": 2, "code": "log-10"}, 6)))
    assert topic.refused().code == "SEQUENCE_WIDTH"
