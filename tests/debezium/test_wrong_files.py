"""What should not be in a table's folder, or not so: a clear code, and nothing lost."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.debezium.lake import Lake, warnings_of
from tests.debezium.probing import event, text
from tests.harness.engine_port import EnginePort


@pytest.mark.parametrize("source", [
    {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2},
    {"connector": "sqlserver", "commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003",
     "ts_ms": 2},
])  # fmt: skip
def test_positions_of_another_log_format_are_refused(
    engine: EnginePort, tmp_path: Path, source: dict[str, Any]
) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.run()
    other = lake.land(text({**event("u", {"id": 1, "v": "b"}), "source": source}))
    assert lake.refused() == "SEQUENCE_WIDTH"
    assert lake.replica("v") == [("a",)]
    Path(other).unlink()
    lake.land(text(event("u", {"id": 1, "v": "c"}, 2)))
    lake.run()
    assert lake.replica("v") == [("c",)]


def test_change_of_source_type_orders_by_time_first(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, sequence_by=["_dbz_ts", "_dbz_sequence"])
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    mysql = {"connector": "mysql", "file": "bin.000001", "pos": 4, "row": 0, "ts_ms": 2}
    lake.land(text({**event("u", {"id": 1, "v": "b"}), "source": mysql}))
    lake.run()
    assert lake.replica("v") == [("b",)]


def test_unrelated_files_beside_valid_ones(engine: EnginePort, tmp_path: Path) -> None:
    """Topics that a sink has put into the table's folder; the next version of the file is looked at again."""
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.land(text({"ts_ms": 5}))
    lake.land(text({"status": "BEGIN", "id": "571:53195829", "event_count": None, "ts_ms": 5}))
    lake.land(text({"source": {"server": "shop"}, "databaseName": "shop", "ddl": "CREATE TABLE t (id int)"}))
    torn = Path(lake.land(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3))[:-9]))
    bare = {name: part for name, part in event("c", {"id": 2, "v": "x"}).items() if name != "source"}
    lake.land(text(bare))
    assert warnings_of(lake.run()) == ["FILE_UNREADABLE"]
    assert [error["code"] for error in lake.errors()] == ["FILE_UNREADABLE"] * 5
    assert lake.replica("id", "v") == [(1, "a")]
    torn.write_text(text(event("u", {"id": 1, "v": "b"}, 2), event("u", {"id": 1, "v": "c"}, 3)))
    lake.run()
    assert lake.replica("id", "v") == [(1, "c")]
    assert [error["resolved_at"] is None for error in lake.errors()].count(False) == 1


def test_file_of_another_table_stops_only_its_table(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.run()
    other = lake.land(text(event("c", {"customer": 1, "name": "x"}, 2)))
    lake.land(text(event("u", {"id": 1, "v": "b"}, 3)))
    assert lake.refused() == "KEY_COLUMN_MISSING"
    Path(other).unlink()
    lake.run()
    assert lake.replica("id", "v") == [(1, "b")]


def test_deletes_without_a_key_are_quarantined(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(event("c", {"id": 1, "v": "a"})))
    lake.land(text(event("d", None, 2)))
    assert lake.run().quarantined == 1
    assert [error["code"] for error in lake.errors()] == ["KEY_NULL"]
    assert lake.replica("id") == [(1,)]


def test_invalid_records_are_quarantined_unchanged(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, truncate="report")
    lost = event("c", {"id": 6, "v": "b"}, 6) | {"source": {"connector": "postgresql"}}
    odd = text(event("t", None, 3), event("m", {"id": 3}, 4), event("d", None, 5), lost)
    lake.land(text(event("c", {"id": 1, "v": "a"}), {"neither": "nor"}) + "broken\n" + odd)
    result = lake.run()
    assert (result.rows_read, result.changes_written, result.quarantined, result.truncates) == (6, 1, 5, 1)
    found = [(row["position"], row["code"]) for row in lake.errors()]
    assert found == [
        (1, "ROW_MALFORMED"),
        (2, "ROW_MALFORMED"),
        (4, "OP_UNKNOWN"),
        (5, "KEY_NULL"),
        (6, "SEQUENCE_NULL"),
    ]
    records = [json.loads(row["record"]) for row in lake.errors()]
    assert [record.get("line") for record in records[:3]] == ['{"neither": "nor"}', "broken", None]
    assert "one of c, u, d, r, t" in lake.errors()[2]["reason"]
    assert lake.replica("id", "v") == [(1, "a")]


def test_unmaskable_texts_are_dropped(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, mask={"pin": "hash"})
    lake.land(text(event("c", {"id": 1, "pin": "1234"}), {"pin": "secret"}))
    lake.run()
    (error,) = lake.errors()
    assert error["code"] == "ROW_MALFORMED"
    assert "secret" not in str(error)


def test_values_left_out_are_in_no_record(engine: EnginePort, tmp_path: Path) -> None:
    """Nor in that of a line that is no event, whose values belong to no known column."""
    lake = Lake(engine, tmp_path, exclude_columns=["pin"], before_image_prefix="before_")
    lost = {**event("u", {"id": None, "v": "b", "Pin": "secret"}, 2), "before": {"id": 1, "pin": "secret"}}
    lake.land(text(event("c", {"id": 1, "v": "a", "pin": "secret"}), {"pin": "secret"}, lost))
    lake.run()
    assert [error["code"] for error in lake.errors()] == ["ROW_MALFORMED", "KEY_NULL"]
    assert "secret" not in str(lake.errors())
    assert json.loads(lake.errors()[1]["record"])["v"] == "b"
    assert lake.replica("id", "v") == [(1, "a")]


def test_lines_that_select_columns_keep_no_text(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, columns=["v"])
    other = event("x", {"pin": "secret"}, 2)
    lake.land(text(event("c", {"id": 1, "v": "a", "pin": "secret"}), {"pin": "secret"}, other))
    lake.run()
    assert [error["code"] for error in lake.errors()] == ["ROW_MALFORMED", "OP_UNKNOWN"]
    assert "secret" not in str(lake.errors())


HALF = "x\ud83d"
"""Half of a surrogate pair: JSON has an escape for it, UTF-8 no bytes."""


def test_half_a_surrogate_pair_stops_only_its_row(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, before_image_prefix="before_")
    lake.land(
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
    assert lake.run().quarantined == 7
    found = [(row["position"], row["code"], row["column"]) for row in lake.errors()]
    assert found == [
        (1, "TEXT_NOT_UTF8", "v"), (2, "ROW_MALFORMED", None), (3, "ROW_MALFORMED", None), (4, "ROW_MALFORMED", None),
        (5, "ROW_MALFORMED", None), (6, "TEXT_NOT_UTF8", "before_v"), (7, "TEXT_NOT_UTF8", "id"),
    ]  # fmt: skip
    stored = json.loads(lake.errors()[0]["record"])["v"]
    assert base64.b64decode(stored) == HALF.encode("utf-8", "surrogatepass")
    assert "\\ud83d" in json.loads(lake.errors()[1]["record"])["line"]
    assert lake.replica("id", "v") == [("1", "a\U0001f600"), ("9", "i")]


def test_bytes_that_are_no_text_stop_only_their_row(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    rows = ({"id": 1, "v": "a", "w": "A"}, {"id": 2, "v": "?", "w": "B"}, {"id": 3, "v": "c", "w": ["?"]})
    good, value, nested = (text(event("c", row, row["id"])).encode() for row in rows)
    lake.land(good + value.replace(b"?", b"\xe9") + nested.replace(b"?", b"\xe9") + b"\xe9\n" + good)
    lake.run()
    assert [(row["position"], row["code"]) for row in lake.errors()] == [
        (1, "TEXT_NOT_UTF8"), (2, "ROW_MALFORMED"), (3, "ROW_MALFORMED"),
    ]  # fmt: skip
    assert json.loads(lake.errors()[0]["record"])["v"] == base64.b64encode(b"\xe9").decode()
    assert lake.replica("id", "v") == [(1, "a")]


def test_array_of_events_with_half_a_surrogate_pair(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(json.dumps([event("c", {"id": 1, "v": "a"}), event("c", {"id": 2, HALF: "b"}, 2)]))
    lake.run()
    assert [(row["position"], row["code"]) for row in lake.errors()] == [(1, "ROW_MALFORMED")]


def test_masked_and_excluded_texts_need_no_form(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, mask={"v": "hash"}, exclude_columns=["w"])
    lake.land(text(event("c", {"id": 1, "v": HALF, "w": HALF}), event("c", {"id": 2, "v": "b", "w": "b"}, 2)))
    assert lake.run().quarantined == 0
    assert [len(found) for _, found in lake.replica("id", "v")] == [64, 64]
