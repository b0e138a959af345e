"""Each connector's places in its log compare as the log does."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from spark_jobs.batch.source_log import log_time
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.source_snapshots import FirstChange, earliest, is_alone
from spark_jobs.rooms.dialects.debezium.technical import (
    OP,
    SEQUENCE,
    commit_time,
    is_of_snapshot,
    is_read,
    position,
    with_keys,
    with_order_of_delivery,
)
from spark_jobs.rules.figures import Figures, FileFigures


def postgresql(lsn: Any, commit: int | None = None) -> dict[str, Any]:
    return {"connector": "postgresql", "lsn": lsn, "sequence": json.dumps([commit and str(commit), str(lsn)])}


def mysql(file: str, pos: int, row: int, connector: str = "mysql") -> dict[str, Any]:
    return {"connector": connector, "file": file, "pos": pos, "row": row}


def sqlserver(commit: str | None, change: str | None, serial: int | None) -> dict[str, Any]:
    return {"connector": "sqlserver", "commit_lsn": commit, "change_lsn": change, "event_serial_no": serial}


def db2(commit: str, change: str | None) -> dict[str, Any]:
    return {"connector": "db2", "commit_lsn": commit, "change_lsn": change}


def oracle(scn: str | None, rs_id: str | None, ssn: int | None, commit: str | None = None) -> dict[str, Any]:
    return {"connector": "oracle", "scn": scn, "commit_scn": commit, "rs_id": rs_id, "ssn": ssn}


@pytest.mark.parametrize(
    "ascending",
    [
        [postgresql(9), postgresql(10), postgresql(2**63 - 1)],
        [{"connector": "postgresql", "lsn": 9}, {"connector": "postgresql", "lsn": 10}],
        # a snapshot, a transaction after it, one that was open during the snapshot, rows of an incremental snapshot
        [postgresql(60), postgresql(65, 61), postgresql(50, 70), postgresql(51, 70), postgresql(90, 85),
         postgresql(55, 95)],
        [mysql("bin.000009", 5, 0), mysql("bin.000010", 4, 0), mysql("bin.000010", 400, 0), mysql("bin.000010", 400, 2),
         mysql("bin.000010", 400, 10), mysql("bin.1000000", 4, 0)],
        [mysql("mariadb-bin.000001", 4, 0, "mariadb"), mysql("mariadb-bin.000001", 31, 0, "mariadb")],
        [sqlserver("00000027:00000758:0005", None, None),
         sqlserver("00000027:00000758:0005", "00000027:00000758:0003", 1),
         sqlserver("00000027:00000758:0005", "00000027:00000758:0003", 2),
         sqlserver("00000027:00000ac0:0002", "00000027:00000758:0001", 1)],
        [db2("00000000:00001e36:000000000004a1b4", None), db2("00000000:00001e36:000000000004a1b5", "NULL"),
         db2("00000000:00001e36:000000000004a1b5", "00000000:00000000:000000000446140f")],
        [oracle("99", None, None), oracle("100", None, None), oracle("100", " 0x0002b5.000175d3.0010 ", 0),
         oracle("100", " 0x0002b5.000175d3.0010 ", 1), oracle("100", " 0x0002b5.000175d4.0010 ", 0)],
        [oracle("60", None, None), oracle("50", "0x1.1.1", 0, "70"), oracle("61", "0x1.1.1", 0, "71"),
         oracle("72", "0x1.1.1", 0, "71:1:0a00")],
        # a commit before the change is another transaction's: the last of the redo thread
        [oracle("400", "0x2.1.1", 0, "450"), oracle("590", "0x2.1.1", 0, "500"), oracle("690", "0x1.1.1", 0, "100"),
         oracle("700", "0x2.1.1", 0, "690"), oracle("701", "0x1.1.1", 0, "100"), oracle("650", "0x1.1.1", 0, "710")],
    ],
)  # fmt: skip
def test_later_is_greater(ascending: list[dict[str, Any]]) -> None:
    found = [position(source) for source in ascending]
    assert None not in found
    assert found == sorted(set(map(str, found)))
    assert len({len(str(place)) for place in found}) == 1


@pytest.mark.parametrize(
    "source",
    [{}, postgresql(5) | {"sequence": "soon"},
     {"connector": "vitess", "vgtid": "[]"}, postgresql(None), postgresql("soon"), postgresql(-1),
     {"connector": "mysql", "file": "", "pos": 4}, sqlserver(None, None, None), sqlserver("0x27", None, None),
     oracle(None, None, None)],
)  # fmt: skip
def test_events_without_a_place_in_the_log_have_no_position(source: dict[str, Any]) -> None:
    assert position(source) is None


@pytest.mark.parametrize(
    ("source", "micros"),
    [({"ts_ms": 1_700_000_000_123}, 123_000), ({"ts_ms": 1_700_000_000_123, "ts_us": 1_700_000_000_123_456}, 123_456),
     ({"ts_ms": 1_700_000_000_123, "ts_ns": 1_700_000_000_123_456_789}, 123_456)],
)  # fmt: skip
def test_commit_time_keeps_its_precision(source: dict[str, int], micros: int) -> None:
    assert commit_time(source) == datetime(2023, 11, 14, 22, 13, 20, micros, tzinfo=UTC)


def test_events_without_a_readable_time_have_no_commit_time() -> None:
    assert commit_time({}) is None
    assert commit_time({"ts_ms": 10**30}) is None


@pytest.mark.parametrize("stated", ["5", "{}", '{"a": "1"}', '"text"', "true"])
def test_sequence_that_is_no_list_states_no_commit(stated: str) -> None:
    """The change's own place orders it, as without the field."""
    bare = {"connector": "postgresql", "lsn": 5}
    assert position({**bare, "sequence": stated}) == position(bare) is not None


@pytest.mark.parametrize(("mark", "found"), [
    ("true", (True, True)), ("first", (True, True)), ("last", (True, True)), (True, (True, True)),
    ("incremental", (True, False)), ("INCREMENTAL", (True, False)), ("false", (False, False)), (False, (False, False)),
    (None, (False, False)), ("", (False, False)),
])  # fmt: skip
def test_marks_of_rows_that_were_read(mark: Any, found: tuple[bool, bool]) -> None:
    assert (is_read({"snapshot": mark}), is_of_snapshot({"snapshot": mark})) == found


@pytest.mark.parametrize("source", [
    sqlserver("00000027:00000ac0:0002", "00000027:00000ac0:0001", 2), mysql("mysql-bin.000003", 154, 7),
    mysql("mysql-bin.000003", 154, 7, "mariadb"),
])  # fmt: skip
def test_places_inside_a_transaction_order_rows_without_a_key_alone(source: dict[str, Any]) -> None:
    """Of a key their order is that of delivery; without one they tell a row from an equal one."""
    rows = pa.table({"id": [1], SEQUENCE: [position(source)]})
    unordered = {**source, **dict.fromkeys(("change_lsn", "event_serial_no", "row"))}
    keyed, keyless = (with_order_of_delivery(rows, [source], keys).column(SEQUENCE)[0].as_py() for keys in (["id"], []))
    assert (keyed, keyless) == (position(unordered), position(source))
    assert keyed != keyless


def test_rows_without_places_are_as_they_were() -> None:
    rows = pa.table({"id": [1]})
    assert with_order_of_delivery(rows, [postgresql(5)], ["id"]) is rows


@pytest.mark.parametrize(("rows", "added"), [(["D", "T"], False), (["T", "T"], True), ([], True)])
def test_file_that_names_no_row_gets_the_columns_of_the_key(rows: list[str], added: bool) -> None:
    table = pa.table({OP: pa.array(rows, pa.string()), "v": pa.nulls(len(rows), pa.string())})
    assert ("id" in with_keys(table, ("id",)).column_names) is added


def test_earliest_change_is_that_of_its_place_and_that_of_its_time() -> None:
    late, early = "2024-01-02T00:00:00+00:00", "2024-01-01T00:00:00+00:00"
    placed = [FirstChange(position=at) for at in ("b", "a")]
    timed = [FirstChange(position="d", committed_at=early), FirstChange(position="c", committed_at=late)]
    assert earliest(placed) == (FirstChange(position="a"),)
    assert earliest([*placed, *timed]) == (FirstChange(position="a"), FirstChange(position="c", committed_at=early))
    assert earliest([]) == ()


def test_first_transaction_of_a_log_is_alone() -> None:
    """PostgreSQL's connector states no commit before it."""
    alone, follows = position(postgresql(9)), position(postgresql(10, 9))
    assert alone is not None
    assert follows is not None
    assert (is_alone(alone), is_alone(follows), is_alone("1.2.0")) == (True, False, False)


def test_time_of_the_end_of_the_log_is_of_changes_that_are_there() -> None:
    """Changes of an older place, such as files that came late, say nothing of how far the log was read."""
    times = ["2024-01-01T00:00:00+00:00", "2024-01-02T00:00:00+00:00", "2024-01-03T00:00:00+00:00"]

    def figures(number: int, at: str) -> Figures:
        place = json.dumps(position(mysql(f"bin.{number:06d}", 4, 0)))
        one = FileFigures(rows=1, quarantined=0, min_sequence=place, max_sequence=place, min_commit_ts=at,
                          max_commit_ts=at)  # fmt: skip
        return cast("Figures", SimpleNamespace(files={"f": one}))

    known = json.dumps(position(mysql("bin.000005", 4, 0)))
    state = TableState(batch=1, max_sequence=known, log_time=times[1])
    found = [log_time(figures(number, at), state) for number, at in ((4, times[2]), (5, times[2]), (6, times[0]))]
    assert found == [times[1], times[2], times[1]]
    assert log_time(figures(1, times[0]), TableState()) == times[0]
