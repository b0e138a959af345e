"""Where each connector's events are in the log of their source: incremental snapshots, transactions of SQL Server, a
MySQL that was replaced by its replica; against the order in which the source made the changes.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Reload
from airflow_gddl.contract.spec import JobOptions
from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic, warnings_of

T = 1_700_000_000_000
Event = dict[str, Any]


def event(op: str, row: Event, source: Event, *, at: int = 0) -> Event:
    side, other = ("before", "after") if op == "d" else ("after", "before")
    return {"op": op, side: row, other: None, "source": {"snapshot": "false", "ts_ms": T + at, **source}}


def postgresql(commit: int | None, lsn: int | None, **more: Any) -> Event:
    sequence = json.dumps([None if commit is None else str(commit), None if lsn is None else str(lsn)])
    return {"connector": "postgresql", "lsn": lsn, "txId": None if lsn is None else 7, "sequence": sequence, **more}


def incremental(commit: int | None, last: int | None = None) -> Event:
    """The `source` of a row of an incremental snapshot: `lsn` and `txId` are null."""
    return postgresql(commit, last) | {"lsn": None, "txId": None, "snapshot": "incremental"}


@pytest.mark.parametrize("last", [None, 100, 130])
def test_rows_of_an_incremental_snapshot_lose_to_each_later_change(
    engine: LocalPort, tmp_path: Path, last: int | None
) -> None:
    """The next transaction may have begun before the last commit, so that its changes have lower positions."""
    topic = Topic(engine, tmp_path)
    topic.land(text(
        event("c", {"id": 1, "v": "old"}, postgresql(90, 95)),
        event("c", {"id": 3, "v": "old"}, postgresql(90, 96)),
        event("c", {"id": 2, "v": "new"}, postgresql(100, 97)),
        event("d", {"id": 3, "v": None}, postgresql(100, 98)),
    ))  # fmt: skip
    read = [event("r", {"id": n, "v": "read"}, incremental(100, last)) for n in (1, 2, 3, 4)]
    topic.land(text(*read))
    assert warnings_of(topic.run()) == []
    assert topic.errors() == []
    assert topic.replica("id", "v") == [(1, "read"), (2, "new"), (4, "read")]
    topic.land(text(event("u", {"id": 4, "v": "later"}, postgresql(150, 99))))
    topic.run()
    topic.land(text(*read))
    assert topic.run().late_ignored == 0
    assert topic.replica("id", "v") == [(1, "read"), (2, "new"), (4, "later")]


def test_rows_of_an_incremental_snapshot_before_any_commit_have_the_place_of_the_last_change(
    engine: LocalPort, tmp_path: Path
) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(event("r", {"id": 1, "v": "read"}, incremental(None, 90))))
    topic.land(text(event("u", {"id": 1, "v": "new"}, postgresql(None, 95))))
    topic.run()
    assert (topic.replica("id", "v"), topic.errors()) == ([(1, "new")], [])


def test_flat_rows_of_an_incremental_snapshot_have_the_place_of_the_sequence(engine: LocalPort, tmp_path: Path) -> None:
    def flat(key: int, value: str, source: Event) -> Event:
        fields = {f"__source_{name}": part for name, part in source.items()}
        return {"id": key, "v": value, "__deleted": "false", "__op": "r", "__source_ts_ms": T, **fields}

    changed = postgresql(100, 97) | {"snapshot": "false"}
    topic = Topic(engine, tmp_path)
    topic.land(text(flat(1, "read", incremental(100)), flat(2, "new", changed), flat(2, "read", incremental(100))))
    topic.run()
    assert (topic.replica("id", "v"), topic.errors()) == ([(1, "read"), (2, "new")], [])


def sqlserver(commit: int, change: int, serial: int = 1) -> Event:
    places = {"commit_lsn": f"00000027:{commit:08x}:0002", "change_lsn": f"00000027:{change:08x}:0001"}
    return {"connector": "sqlserver", "event_serial_no": serial, **places}


def transactions(seed: int) -> tuple[list[Event], dict[int, str]]:
    """Changes in the order of delivery, whose `change_lsn` has another order within a transaction; and the rows."""
    rng, rows, events = random.Random(seed), dict[int, str](), []  # noqa: S311 - a history, no secret
    for commit in range(1, 6):
        changes = [rng.randrange(100 * commit) for _ in range(rng.randint(1, 5))]
        for number, change in enumerate(changes):
            key, value = rng.randrange(3), rng.choice("ab")
            if key not in rows:
                op, rows[key] = "c", value
            elif rng.random() < 0.5:
                op = "d"
                value = rows.pop(key)
            else:
                op, rows[key] = "u", value
            events.append(event(op, {"id": key, "v": value}, sqlserver(commit, change, number + 1), at=commit))
    return events, rows


@pytest.mark.parametrize("seed", range(25))
def test_in_a_transaction_of_sql_server_the_order_of_delivery_decides(
    engine: LocalPort, tmp_path: Path, seed: int
) -> None:
    """Also over files and batches, and where the connector sends a part again."""
    if engine.name != "one" and seed > 1:
        pytest.skip("the rule is the same, and a run of Spark takes seconds")
    events, rows = transactions(seed)
    rng = random.Random(seed)  # noqa: S311 - as above
    topic = Topic(engine, tmp_path)
    cut = sorted(rng.sample(range(len(events) + 1), 2))
    for part in (events[: cut[0]], events[cut[0] : cut[1]], events[cut[1] :]):
        if part:
            topic.land(text(*part))
            if rng.random() < 0.5:
                topic.run()
    topic.run()
    assert topic.replica("id", "v") == sorted(rows.items())
    again = next(n for n, one in enumerate(events) if one["source"]["commit_lsn"] == events[-1]["source"]["commit_lsn"])
    topic.land(text(*events[again:]))
    topic.run()
    assert topic.replica("id", "v") == sorted(rows.items())
    topic.run(action="rebuild")
    assert topic.replica("id", "v") == sorted(rows.items())


def test_rows_without_a_key_are_told_apart_by_their_change_in_a_transaction(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=[])
    both = [event("c", {"id": 1, "v": "a"}, sqlserver(1, change)) for change in (5, 6)]
    topic.land(text(both[0]))
    topic.land(text(both[1]))
    topic.land(text(both[1]))
    topic.run()
    assert topic.replica("id", "v") == [(1, "a"), (1, "a")]


def mysql(op: str, row: Event, pos: int, seconds: int, file: int = 3, *, server: int = 1, nth: int = 0) -> Event:
    source = {"connector": "mysql", "file": f"bin.{file:06d}", "pos": pos, "row": nth, "server_id": server}
    return event(op, row, source, at=1000 * seconds)


FAILOVERS = {
    "lower": [mysql("u", {"id": 1, "v": "b"}, 200, 10)],
    "lower, then beyond": [mysql("u", {"id": 1, "v": "b"}, 200, 10), mysql("u", {"id": 2, "v": "b"}, 9000, 11)],
    "the end of the old log first": [
        mysql("u", {"id": 2, "v": "old"}, 5100, 3), mysql("u", {"id": 1, "v": "b"}, 200, 10),
        mysql("u", {"id": 2, "v": "b"}, 9000, 11),
    ],
    "in the same second": [mysql("u", {"id": 1, "v": "b"}, 200, 2, server=2)],
    "in the same second, inside a file": [
        mysql("u", {"id": 2, "v": "old"}, 5100, 2), mysql("u", {"id": 1, "v": "b"}, 200, 2, server=2),
    ],
    "a file before": [mysql("u", {"id": 1, "v": "b"}, 900, 10, 2), mysql("u", {"id": 2, "v": "b"}, 9000, 11)],
}  # fmt: skip


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("name", FAILOVERS)
def test_a_replica_that_takes_over_has_other_positions_in_a_log_of_the_same_number(
    engine: LocalPort, tmp_path: Path, name: str, files: int, together: bool
) -> None:
    """Named before anything is written, and in order once the row says when the log began."""
    topic = Topic(engine, tmp_path)
    topic.land(text(mysql("c", {"id": 1, "v": "a"}, 4000, 0), mysql("c", {"id": 2, "v": "a"}, 5000, 2)))
    if not together:
        topic.run()
    events = FAILOVERS[name]
    for part in [events] if files == 1 else [[one] for one in events]:
        topic.land(text(*part))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"
    rows = [] if together else [(1, "a"), (2, "a")]
    assert topic.replica("id", "v") == rows
    if "same second" in name:
        return  # no moment is between the logs: load the table again
    configured = topic.with_row(options={"log_began": ["2023-11-14T22:13:27Z"]})
    configured.run()
    assert configured.replica("id", "v") == [(1, "b"), (2, "b" if len(events) > 1 else "a")]


@pytest.mark.parametrize("runs", [1, 3])
def test_a_long_statement_and_events_that_are_sent_again_are_no_new_log(
    engine: LocalPort, tmp_path: Path, runs: int
) -> None:
    """An event has the time at which its statement began, so that it may be earlier than those before it in the log."""
    topic = Topic(engine, tmp_path)
    quick, long = mysql("c", {"id": 1, "v": "a"}, 4000, 50), mysql("c", {"id": 2, "v": "a"}, 5000, 2)
    more = mysql("u", {"id": 1, "v": "b"}, 6000, 60)
    for part in ([quick], [long], [quick, long, more]):
        topic.land(text(*part))
        if runs > 1:
            topic.run()
    topic.run()
    assert topic.replica("id", "v") == [(1, "b"), (2, "a")]


def test_partitions_of_a_topic_are_not_compared_within_a_minute(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land_in(0, 0, text(mysql("c", {"id": 2, "v": "a"}, 5000, 2)))
    topic.run()
    topic.land_in(1, 0, text(mysql("c", {"id": 1, "v": "a"}, 4000, 50)))
    topic.run()
    assert topic.replica("id", "v") == [(1, "a"), (2, "a")]
    topic.land_in(1, 1, text(mysql("u", {"id": 1, "v": "b"}, 200, 150)))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"


@pytest.mark.parametrize("cut", range(5))
def test_rows_of_a_compressed_transaction_come_in_the_order_of_delivery(
    engine: LocalPort, tmp_path: Path, cut: int
) -> None:
    """All of its events have one position, and `row` begins again in each."""
    events = [
        mysql("c", {"id": 1, "v": "a"}, 100, 0, nth=1), mysql("u", {"id": 1, "v": "b"}, 100, 0, nth=0),
        mysql("d", {"id": 1, "v": "b"}, 100, 0, nth=1), mysql("c", {"id": 1, "v": "c"}, 100, 0, nth=0),
    ]  # fmt: skip
    topic = Topic(engine, tmp_path)
    for part in (events[:cut], events[cut:], events):
        if part:
            topic.land(text(*part))
            topic.run()
    assert topic.replica("id", "v") == [(1, "c")]


def test_the_end_of_the_old_log_that_comes_later_tells_the_new_one(engine: LocalPort, tmp_path: Path) -> None:
    """The places of the new server are behind those of the old one that are known when it takes over."""
    topic = Topic(engine, tmp_path)
    topic.land_in(0, 0, text(mysql("c", {"id": 1, "v": "a"}, 400, 0)))
    topic.run()
    topic.land_in(0, 200, text(mysql("u", {"id": 1, "v": "new"}, 900, 10, server=2)))
    topic.run()
    topic.land_in(0, 100, text(mysql("u", {"id": 1, "v": "old"}, 5000, 5), mysql("c", {"id": 2, "v": "a"}, 5100, 5)))
    assert topic.refused().code == "SOURCE_LOG_RESTARTED"
    configured = topic.with_row(options={"log_began": ["2023-11-14T22:13:27Z"]})
    configured.run()
    configured.run(action="rebuild")
    assert configured.replica("id", "v") == [(1, "new"), (2, "a")]


def test_a_server_that_takes_over_behind_the_old_log_is_followed(engine: LocalPort, tmp_path: Path) -> None:
    """Its changes are compared with those of the old server alone, also where partitions come in any order."""
    topic = Topic(engine, tmp_path)
    topic.land_in(0, 0, text(mysql("c", {"id": 1, "v": "a"}, 400, 0), mysql("c", {"id": 2, "v": "a"}, 900, 2)))
    topic.run()
    topic.land_in(0, 1, text(mysql("u", {"id": 2, "v": "b"}, 500, 2, 5, server=2)))
    topic.land_in(1, 0, text(mysql("u", {"id": 1, "v": "b"}, 200, 2, 5, server=2)))
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "v") == [(1, "b"), (2, "b")]


def test_servers_whose_changes_come_mixed_write_one_log(engine: LocalPort, tmp_path: Path) -> None:
    """A replica has each change under the server that has made it."""
    topic = Topic(engine, tmp_path)
    topic.land(text(
        mysql("c", {"id": 1, "v": "a"}, 100, 5), mysql("c", {"id": 2, "v": "a"}, 200, 4, server=2),
        mysql("u", {"id": 1, "v": "b"}, 300, 6, server=2), mysql("u", {"id": 2, "v": "b"}, 400, 7),
    ))  # fmt: skip
    assert warnings_of(topic.run()) == []
    assert topic.replica("id", "v") == [(1, "b"), (2, "b")]


ONE_LOG = {
    "a delayed change of another server": [[mysql("u", {"id": 1, "v": "x"}, 400, 12, server=2)],
                                           [mysql("u", {"id": 1, "v": "b"}, 500, 10)]],
    "in one second": [[mysql("u", {"id": 1, "v": "x"}, 400, 12, server=2), mysql("u", {"id": 1, "v": "b"}, 500, 12)]],
    "a new server whose clock is behind": [[mysql("u", {"id": 1, "v": "x"}, 400, 900)],
                                           [mysql("u", {"id": 1, "v": "b"}, 500, 3, server=2)]],
    "a change from the future": [[mysql("u", {"id": 1, "v": "x"}, 400, 10**8)],
                                 [mysql("u", {"id": 1, "v": "b"}, 500, 5)]],
    "captured again": [[mysql("u", {"id": 1, "v": "x"}, 400, 12, server=2), mysql("u", {"id": 1, "v": "b"}, 500, 10)],
                       [mysql("u", {"id": 1, "v": "x"}, 400, 12, server=2), mysql("u", {"id": 1, "v": "b"}, 500, 10)]],
    "of both servers": [[mysql("u", {"id": 1, "v": "x"}, 400, 2), mysql("u", {"id": 1, "v": "y"}, 450, 90, server=2)],
                        [mysql("u", {"id": 1, "v": "x"}, 460, 1), mysql("u", {"id": 1, "v": "b"}, 500, 80, server=2)]],
}  # fmt: skip


@pytest.mark.parametrize("connector", ["mysql", "mariadb"])
@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("name", ONE_LOG)
def test_places_that_grow_are_one_log_whatever_the_times_say(
    engine: LocalPort, tmp_path: Path, name: str, together: bool, connector: str
) -> None:
    topic = Topic(engine, tmp_path)
    for part in ([mysql("c", {"id": 1, "v": "a"}, 300, 5), mysql("c", {"id": 2, "v": "a"}, 350, 6)], *ONE_LOG[name]):
        topic.land(text(*({**one, "source": {**one["source"], "connector": connector}} for one in part)))
        if not together:
            assert warnings_of(topic.run()) == []
    topic.run()
    assert topic.replica("id", "v") == [(1, "b"), (2, "a")]


def test_partitions_are_streams_of_their_own(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land_in(0, 0, text(mysql("c", {"id": 1, "v": "a"}, 500, 10)))
    topic.run()
    topic.land_in(1, 0, text(mysql("c", {"id": 2, "v": "a"}, 400, 900, server=2)))
    topic.run()
    topic.land_in(1, 1, text(mysql("u", {"id": 2, "v": "b"}, 450, 800)))
    topic.run()
    assert topic.replica("id", "v") == [(1, "a"), (2, "b")]


HIDDEN = {
    "another server": [mysql("u", {"id": 1, "v": "b"}, 200, 20, server=2)],
    "a log of a lower number": [mysql("u", {"id": 1, "v": "b"}, 200, 20, 1)],
    "another server, a file of both": [mysql("u", {"id": 1, "v": "x"}, 600, 7),
                                       mysql("u", {"id": 1, "v": "b"}, 500, 20, server=2)],
}  # fmt: skip


@pytest.mark.parametrize("name", HIDDEN)
def test_a_change_from_the_future_hides_no_reset(engine: LocalPort, tmp_path: Path, name: str) -> None:
    """No moment is between the logs; a snapshot of the new one is loaded in place of the old files."""
    topic = Topic(engine, tmp_path)
    topic.land(text(mysql("c", {"id": 1, "v": "a"}, 400, 5), mysql("c", {"id": 2, "v": "a"}, 500, 10**8)))
    topic.run()
    topic.land(text(*HIDDEN[name]))
    error = topic.refused()
    assert (error.code, "new snapshot" in str(error), "log_began" in str(error)) == (
        "SOURCE_LOG_RESTARTED",
        True,
        False,
    )
    topic.empty()
    read = {"connector": "mysql", "file": "bin.000001", "pos": 250, "row": 0, "server_id": 0, "snapshot": "true"}
    topic.land(text(event("r", {"id": 1, "v": "b"}, read, at=30_000), event("r", {"id": 3, "v": "b"}, read, at=30_000)))
    topic.run(JobOptions(action=Reload(confirmed=True)))
    assert topic.replica("id", "v") == [(1, "b"), (3, "b")]
