"""Snapshots that a connector takes again: rows that they lack are gone at the source."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic, warnings_of

T = 1_700_000_000_000
ROWS = {"delete": "hard", "history": False}


def event(op: str, row: dict[str, Any], lsn: int, snapshot: str = "false", **source: Any) -> dict[str, Any]:
    """A change at a place in PostgreSQL's log, after the commit before it; snapshots have no such commit."""
    before = None if snapshot != "false" else str(lsn - 1)
    place = {
        "connector": "postgresql", "name": "shop", "db": "shop", "schema": "public", "table": "t", "lsn": lsn,
        "sequence": f'[{"null" if before is None else chr(34) + before + chr(34)},"{lsn}"]', "ts_ms": T + lsn,
    }  # fmt: skip
    sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**sides, "source": {**place, "snapshot": snapshot, **source}, "op": op}


def snapshot(lsn: int, ids: Iterable[int], *, v: str = "s", ends: bool = True, **source: Any) -> list[dict[str, Any]]:
    ids = list(ids)
    marks = ["first_in_data_collection", *["true"] * (len(ids) - 2), "last" if ends else "true"]
    return [event("r", {"id": i, "v": v}, lsn, mark, **source) for i, mark in zip(ids, marks[-len(ids) :], strict=True)]


def filled(engine: LocalPort, tmp_path: Path, **row: Any) -> Topic:
    """Six rows of a snapshot, one of which is changed, and one added."""
    topic = Topic(engine, tmp_path, **row)
    topic.land(
        text(*snapshot(100, range(1, 7)), event("u", {"id": 1, "v": "u"}, 110), event("c", {"id": 7, "v": "c"}, 120))
    )
    assert warnings_of(topic.run()) == []
    assert [row[0] for row in topic.replica("id")] == [1, 2, 3, 4, 5, 6, 7]
    return topic


def ids(topic: Topic) -> list[int]:
    return [row[0] for row in topic.replica("id")]


def test_new_snapshot_removes_rows_that_it_lacks(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path, history=True)
    topic.land(text(event("c", {"id": 8, "v": "c"}, 190), *snapshot(200, [1, 2, 3, 4, 5, 9], v="s2")))
    topic.land(text(event("u", {"id": 2, "v": "u2"}, 210)))
    done = topic.run()
    assert warnings_of(done) == []
    assert topic.replica("id", "v") == [(1, "s2"), (2, "u2"), (3, "s2"), (4, "s2"), (5, "s2"), (9, "s2")]
    assert topic.run(action="verify").details["verdict"] == "equal"
    later = topic.run()
    assert (later.rows_read, later.changes_written, warnings_of(later)) == (0, 0, [])
    topic.run(action="rebuild")
    assert topic.replica("id", "v") == [(1, "s2"), (2, "u2"), (3, "s2"), (4, "s2"), (5, "s2"), (9, "s2")]


@pytest.mark.deep_on_many
def test_late_change_from_before_a_snapshot_brings_no_row_back(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, range(1, 7))))
    topic.run()
    assert ids(topic) == [1, 2, 3, 4, 5, 6]
    topic.land(text(event("u", {"id": 7, "v": "late"}, 150), event("u", {"id": 1, "v": "late"}, 150)))
    assert topic.run().late_ignored == 2
    assert topic.replica("id", "v") == [(n, "s") for n in range(1, 7)]
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_delivered_again_opens_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    parts = text(*snapshot(200, range(1, 7))), text(event("c", {"id": 8, "v": "c"}, 210))
    for content in (*parts, parts[0], text(*snapshot(100, range(1, 7)))):
        topic.land(content)
        assert warnings_of(topic.run()) in ([], ["BATCH_LATE"])
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 8]
    assert {row["_gddl"]["generation"] for row in topic.change_rows()} == {1, 2}


@pytest.mark.deep_on_many
def test_interrupted_snapshot_removes_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, [1, 2, 3, 4], ends=False)))
    assert warnings_of(topic.run()) == ["SNAPSHOT_INCOMPLETE"]
    idle = topic.run()
    assert (warnings_of(idle), idle.revisit) == (["SNAPSHOT_INCOMPLETE"], False), "each run says so, and none is due"
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7]
    topic.land(text(*snapshot(300, [1, 2, 3, 4, 5, 8])))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 8]
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_snapshot_in_several_batches(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    whole = snapshot(200, range(1, 7))
    for part in (whole[:2], whole[2:5]):
        topic.land(text(*part))
        assert warnings_of(topic.run()) == ["SNAPSHOT_INCOMPLETE"]
        assert 7 in ids(topic)
    topic.land(text(*whole[5:]))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 6]


@pytest.mark.deep_on_many
def test_change_after_a_snapshot_shows_that_it_is_whole(engine: LocalPort, tmp_path: Path) -> None:
    """Versions before 1.9 mark the last row of all tables alone, and a table of one row may have no last one at all."""
    topic = filled(engine, tmp_path)
    topic.land(text(*[event("r", {"id": n, "v": "s"}, 200, "true") for n in range(1, 7)]))
    assert warnings_of(topic.run()) == ["SNAPSHOT_INCOMPLETE"]
    topic.land(text(event("u", {"id": 1, "v": "u"}, 210)))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 6]


@pytest.mark.deep_on_many
def test_incremental_snapshot_removes_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(
        text(
            *[event("r", {"id": n, "v": "i"}, 200, "incremental") for n in (1, 2)], event("c", {"id": 8, "v": "c"}, 210)
        )
    )
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_first_snapshot_is_no_reload_of_changes_from_after_it(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 9, "v": "c"}, 150)))
    topic.run()
    topic.land(text(*snapshot(100, [1, 2])))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 9]


def test_first_snapshot_after_changes_is_a_reload(engine: LocalPort, tmp_path: Path) -> None:
    """A connector began on an empty table, and lost a delete: what the whole table lacks at that place is gone."""
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 9, "v": "c"}, 50)))
    topic.run()
    topic.land(text(*snapshot(100, [1, 2, 3])))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3]


@pytest.mark.parametrize("empties", [False, True])
def test_first_snapshot_in_a_batch_with_changes_before_it_is_a_reload(
    engine: LocalPort, tmp_path: Path, empties: bool
) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 9, "v": "c"}, 50), event("c", {"id": 1, "v": "c"}, 60)))
    topic.land(text(*snapshot(100, [1, 2, 3])))
    if empties:  # the first transaction, too, which has no commit before it
        topic.empty()
        first = event("c", {"id": 9, "v": "c"}, 50, sequence='[null,"50"]')
        topic.land(text(first, *snapshot(100, [1, 2, 3])))
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "v") == [(1, "s"), (2, "s"), (3, "s")]
    assert topic.run(action="verify").details["verdict"] == "equal"


def test_first_snapshot_behind_earlier_and_later_changes_says_that_it_removes_nothing(
    engine: LocalPort, tmp_path: Path
) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("c", {"id": 9, "v": "c"}, 50), event("c", {"id": 4, "v": "c"}, 150)))
    topic.run()
    topic.land(text(*snapshot(100, [1, 2, 3])))
    assert warnings_of(topic.run()) == ["SNAPSHOT_MERGED"]
    assert ids(topic) == [1, 2, 3, 4, 9]


@pytest.mark.parametrize("arrival", ["together", "apart"])
def test_transaction_that_was_open_while_a_later_snapshot_was_taken_wins(
    engine: LocalPort, tmp_path: Path, arrival: str
) -> None:
    """Its changes are before the snapshot in the log, behind the same last commit."""
    topic = filled(engine, tmp_path)
    taken = snapshot(200, range(1, 7), sequence='["190","200"]')
    place = {"sequence": '["190","195"]', "ts_ms": T + 1000}
    then = [event("d", {"id": 1, "v": None}, 195, **place), event("u", {"id": 2, "v": "u"}, 195, **place)]
    topic.land(text(*taken))
    if arrival == "apart":
        topic.run()
    topic.land(text(*then))
    topic.run()
    assert topic.replica("id", "v") == [(2, "u"), *((number, "s") for number in range(3, 7))]
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_first_snapshot_that_began_again(engine: LocalPort, tmp_path: Path) -> None:
    """What the first attempt read was partly deleted before the second."""
    topic = Topic(engine, tmp_path)
    topic.land(text(*snapshot(100, [1, 2, 3, 4], ends=False)))
    topic.land(text(*snapshot(200, [1, 2, 3, 5, 6])))
    topic.run()
    assert ids(topic) == [1, 2, 3, 5, 6]


@pytest.mark.deep_on_many
def test_sweep_limit_holds(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path, sweep_limit=0.1)
    topic.land(text(*snapshot(200, range(1, 6))))
    assert warnings_of(topic.run()) == ["SWEEP_HELD"]
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7]
    topic.run(action="release", held="sweep")
    assert ids(topic) == [1, 2, 3, 4, 5]


@pytest.mark.deep_on_many
def test_release_of_an_interrupted_snapshot(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, [1, 2], ends=False)))
    topic.run()
    topic.run(action="release", held="sweep")
    assert ids(topic) == [1, 2]


@pytest.mark.deep_on_many
def test_unreadable_file_keeps_rows(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    whole = snapshot(200, range(1, 7))
    topic.land(text(*whole[:3]))
    broken = topic.land('{"op": "r", "aft')
    topic.land(text(*whole[4:]))
    assert warnings_of(topic.run()) == ["FILE_UNREADABLE", "SNAPSHOT_INCOMPLETE"]
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7]
    Path(broken).write_text(text(whole[3]))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 6]


@pytest.mark.deep_on_many
def test_tables_of_the_source_that_share_one_table(engine: LocalPort, tmp_path: Path) -> None:
    """Partitions of a table in one topic: the snapshot of one of them is not that of all."""
    topic = Topic(engine, tmp_path, options={"source_tables": "several"})
    topic.land(text(*snapshot(100, [1, 2, 3], ends=False), *snapshot(100, [4, 5, 6], table="t2")))
    topic.run()
    first = snapshot(200, [1, 2], ends=False)
    first[-1]["source"]["snapshot"] = "last_in_data_collection"
    topic.land(text(*first))
    assert warnings_of(topic.run()) == ["SNAPSHOT_INCOMPLETE"]
    assert ids(topic) == [1, 2, 3, 4, 5, 6]
    second = snapshot(200, [4, 5, 6], table="t2", ends=False)
    second[-1]["source"]["snapshot"] = "last_in_data_collection"
    topic.land(text(*second))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 4, 5, 6]


@pytest.mark.deep_on_many
def test_snapshot_of_one_of_several_connectors_removes_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, [11, 12, 13], name="other")))
    assert warnings_of(topic.run()) == ["CONNECTORS_SHARE_KEYS", "SNAPSHOT_MERGED"]
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7, 11, 12, 13]


@pytest.mark.deep_on_many
def test_snapshot_behind_later_changes_removes_nothing(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(event("u", {"id": 7, "v": "new"}, 250)))
    topic.run()
    topic.land(text(*snapshot(200, range(1, 8))))
    assert "SNAPSHOT_MERGED" in warnings_of(topic.run())
    assert topic.replica("id", "v")[-1] == (7, "new")


@pytest.mark.deep_on_many
def test_snapshots_that_are_merged(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path, options={"snapshots": "merge"})
    topic.land(text(*snapshot(200, [1, 2])))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7]


@pytest.mark.deep_on_many
def test_first_transaction_after_a_snapshot_stays(engine: LocalPort, tmp_path: Path) -> None:
    """It was open while the snapshot was taken, so its changes are before it in the log."""
    topic = filled(engine, tmp_path)
    open_then = event("c", {"id": 8, "v": "c"}, 195, sequence='[null,"195"]', ts_ms=T + 1000)
    topic.land(text(*snapshot(200, range(1, 7)), open_then))
    topic.run()
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 8]
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
@pytest.mark.parametrize("step", ["append", "replica", "committed"])
def test_run_that_died_in_the_middle(engine: LocalPort, tmp_path: Path, step: str) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(event("u", {"id": 7, "v": "x"}, 190), *snapshot(200, range(1, 7), v="s2")))
    topic.break_off(step)
    topic.run()
    assert topic.replica("id", "v") == [(n, "s2") for n in range(1, 7)]
    assert len(topic.change_rows()) == 15
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_soft_deletes_and_reset_logs(engine: LocalPort, tmp_path: Path) -> None:
    """A snapshot after a reset is lower in the log than what it follows, and later by the row's word."""
    topic = filled(engine, tmp_path, delete="soft", options={"log_began": ["2023-11-14T22:13:30Z"]})
    later = [*snapshot(60, range(1, 7), v="s2"), event("c", {"id": 8, "v": "c"}, 70)]
    for one in later:
        one["source"]["ts_ms"] += 60_000
    topic.land(text(*later))
    topic.run()
    rows = {row["id"]: row["_gddl"]["deleted"] for row in topic.rows("replica")}
    assert [n for n, deleted in sorted(rows.items()) if deleted] == [7]
    assert topic.run(action="verify").details["verdict"] == "equal"
    topic.land(text(event("u", {"id": 7, "v": "late"}, 130)))
    assert topic.run().late_ignored == 1
    assert topic.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_repairs_keep_the_generations(engine: LocalPort, tmp_path: Path) -> None:
    """Rebuilt, rebuilt without a ledger, and loaded again from the files: the rows of the last snapshot."""
    topic = filled(engine, tmp_path)
    topic.land(text(event("u", {"id": 7, "v": "x"}, 190), *snapshot(200, range(1, 7), v="s2")))
    topic.run()
    wanted = [(n, "s2") for n in range(1, 7)]
    topic.run(action="rebuild")
    assert topic.replica("id", "v") == wanted
    rmtree(topic.layout.state)
    done = topic.run(action="rebuild")
    assert (topic.replica("id", "v"), warnings_of(done)) == (wanted, ["GENERATIONS_INFERRED"])
    assert topic.run(action="verify").details["verdict"] == "equal"
    topic.land(text(event("u", {"id": 7, "v": "late"}, 150)))
    assert topic.run().late_ignored == 1
    done = topic.run(action="reload", confirmed=True)
    assert (topic.replica("id", "v"), done.details["reload"]["archived"]) == (wanted, 0)
    assert topic.run(action="verify").details["verdict"] == "equal"
    topic.land(text(*snapshot(300, [1, 2, 3, 4, 5], v="s3")))
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "v") == [(n, "s3") for n in range(1, 6)]


@pytest.mark.deep_on_many
def test_reset_that_is_named_after_a_snapshot(engine: LocalPort, tmp_path: Path) -> None:
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, range(1, 7), v="s2")))
    topic.run()
    named = topic.with_row(options={"log_began": ["2023-11-14T22:13:20.150Z"]})
    named.run(action="rebuild")
    assert named.replica("id", "v") == [(n, "s2") for n in range(1, 7)]
    named.land(text(event("u", {"id": 7, "v": "late"}, 150)))
    assert named.run().late_ignored == 1
    assert named.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_reload_follows_what_only_a_person_knows(engine: LocalPort, tmp_path: Path) -> None:
    """A truncate, and a snapshot that could only be merged: old files moved out, and a reload from those left."""
    topic = filled(engine, tmp_path, truncate="report")
    truncate = {"op": "t", "before": None, "after": None, "source": event("c", {"id": 0}, 300)["source"]}
    topic.land(text(truncate))
    assert topic.run().truncates == 1
    topic.empty()
    topic.land(text(*snapshot(400, [11, 12], name="renamed"), event("c", {"id": 13, "v": "c"}, 410, name="renamed")))
    assert warnings_of(topic.run()) == ["CONNECTORS_SHARE_KEYS", "SNAPSHOT_MERGED"]
    assert ids(topic) == [1, 2, 3, 4, 5, 6, 7, 11, 12, 13]
    done = topic.run(action="reload", confirmed=True)
    assert (ids(topic), done.details["reload"]["vanish"]) == ([11, 12, 13], 7)
    topic.land(text(*snapshot(500, [11, 12], name="renamed")))
    assert warnings_of(topic.run()) == []
    assert ids(topic) == [11, 12], "the connector's next snapshot is a reload again"


@pytest.mark.deep_on_many
def test_rebuild_by_another_sequence_decides_ties(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    for number, (name, n) in enumerate([("b", 2), ("a", 1)]):
        path = Path(topic.land("", "ignored")).with_name(f"{name}.json")
        path.write_text(text(event("c", {"id": 1, "v": name, "n": n}, 100)))
        path.with_name(f"shop.t+0+{number * 100:010d}.ignored").unlink()
    assert warnings_of(topic.run()) == ["SEQUENCE_TIE"]
    ordered = topic.with_row(sequence_by=["_dbz_sequence", "n"])
    ordered.run(action="rebuild")
    assert ordered.replica("id", "v") == [(1, "b")]
    assert ordered.run(action="verify").details["verdict"] == "equal"


@pytest.mark.deep_on_many
def test_reload_from_a_source_that_was_moved(engine: LocalPort, tmp_path: Path) -> None:
    """Its log begins at lower places than the snapshots that the table knows."""
    topic = filled(engine, tmp_path)
    topic.land(text(*snapshot(200, range(1, 7))))
    topic.run()
    topic.empty()
    topic.land(text(*snapshot(20, [1, 2, 9], v="moved"), event("u", {"id": 9, "v": "u"}, 30)))
    topic.run(action="reload", confirmed=True)
    assert topic.replica("id", "v") == [(1, "moved"), (2, "moved"), (9, "u")]
    assert topic.run(action="verify").details["verdict"] == "equal"
    topic.land(text(*snapshot(50, [1, 2], v="again")))
    topic.run()
    assert topic.replica("id", "v") == [(1, "again"), (2, "again")]
    topic.run(action="rebuild")
    assert topic.replica("id", "v") == [(1, "again"), (2, "again")]


@pytest.mark.deep_on_many
def test_rows_of_other_partitions_may_follow(engine: LocalPort, tmp_path: Path) -> None:
    for sweep_after, warned, left in (("1h", ["SWEEP_PENDING"], [1, 2, 3, 4, 5, 6]), ("0s", [], [1, 2, 3, 4, 5])):
        topic = Topic(engine, tmp_path / sweep_after, sweep_after=sweep_after)
        for number, rows in enumerate((snapshot(100, range(1, 7)), snapshot(200, range(1, 6)))):
            for partition in (0, 1):
                topic.land_in(partition, number, text(*rows[partition::2]))
            done = topic.run()
        assert (warnings_of(done), done.revisit, ids(topic)) == (warned, bool(warned), left)
