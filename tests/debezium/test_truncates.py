"""Truncates of the source's table: a tombstone of the whole table at its place in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.test_snapshots import event
from tests.debezium.topic import Topic, warnings_of

pytestmark = pytest.mark.wide

APPLIED: dict[str, Any] = {"truncate": "apply"}


def truncate(lsn: int) -> dict[str, Any]:
    return {**event("d", {}, lsn), "op": "t", "before": None}


def row(op: str, key: int, lsn: int, **columns: Any) -> dict[str, Any]:
    return event(op, {"id": key, "v": f"{op}{lsn}", **columns}, lsn)


def replica(topic: Topic) -> dict[int, str]:
    return dict(topic.replica("id", "v"))


def is_equal(topic: Topic) -> bool:
    return bool(topic.run(action="verify").details["verdict"] == "equal")


def test_an_applied_truncate_deletes_older_rows(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, history=True, delete="hard", **APPLIED)
    topic.land(text(row("c", 1, 100), row("c", 2, 110), row("c", 3, 120)))
    topic.run()
    topic.land(text(row("u", 1, 130), truncate(140), row("c", 2, 150), row("c", 4, 160)))
    done = topic.run()
    assert warnings_of(done) == ["TRUNCATE_APPLIED"]
    assert (done.truncates, done.rows_read, done.changes_written, done.quarantined) == (1, 3, 3, 0)
    assert replica(topic) == {2: "c150", 4: "c160"}
    assert is_equal(topic)
    topic.land(text(row("u", 1, 135), row("c", 9, 90), row("c", 5, 170)))
    assert topic.run().late_ignored == 2
    assert replica(topic) == {2: "c150", 4: "c160", 5: "c170"}
    assert is_equal(topic)
    topic.run(action="rebuild")
    assert replica(topic) == {2: "c150", 4: "c160", 5: "c170"}
    assert is_equal(topic)


def test_history_ends_at_the_truncate(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, history=True, **APPLIED)
    topic.land(text(row("c", 1, 100), row("c", 2, 110)))
    topic.run()
    topic.land(text(truncate(140), row("c", 2, 150), truncate(160), row("c", 3, 170)))
    topic.run()
    place = {lsn: f"{lsn - 1:020d}.1.{lsn:020d}" for lsn in range(100, 200)}
    assert topic.history("id", "__start_at", "__end_at") == [
        (1, place[100], place[140]), (2, place[110], place[140]), (2, place[150], place[160]), (3, place[170], None)
    ]  # fmt: skip
    before = topic.history("id", "v", "__start_at", "__end_at")
    topic.run(action="rebuild")
    assert topic.history("id", "v", "__start_at", "__end_at") == before


def test_soft_deletes_mark_rows(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, delete="soft", **APPLIED)
    topic.land(text(row("c", 1, 100), row("c", 2, 110), row("d", 3, 115), row("c", 4, 116), row("d", 4, 117)))
    topic.run()
    topic.land(text(truncate(140), row("c", 2, 150)))
    topic.run()
    topic.land(text(row("c", 5, 130)))
    topic.run()
    marked = {key: (v, gddl["deleted"]) for key, v, gddl in topic.replica("id", "v", "_gddl")}
    assert marked == {
        1: ("c100", True), 2: ("c150", False), 4: ("c116", True), 5: ("c130", True)
    }, "what comes late is marked, too"  # fmt: skip
    before = topic.replica("id", "v", "_gddl")
    assert is_equal(topic)
    topic.run(action="rebuild")
    assert topic.replica("id", "v", "_gddl") == before


def test_a_held_truncate_is_applied_when_it_is_released(engine: LocalPort, tmp_path: Path) -> None:
    """The file of the truncate waits, and all after it; those before it are loaded."""
    topic = Topic(engine, tmp_path)
    topic.land(text(row("c", 1, 100), row("c", 2, 110)))
    topic.run()
    topic.land(text(row("c", 3, 120)))
    topic.land(text(row("c", 4, 130), truncate(140), row("c", 2, 150)))
    topic.land(text(row("c", 5, 160)))
    held = topic.run()
    assert warnings_of(held) == ["TRUNCATE_HELD"]
    assert (held.warnings[0].count, held.truncates) == (2, 0)
    assert sorted(replica(topic)) == [1, 2, 3]
    topic.land(text(row("c", 6, 170), truncate(180)))
    again = topic.run()
    assert (again.status, warnings_of(again), again.warnings[0].count) == ("skipped", ["TRUNCATE_HELD"], 3)
    assert again.rows_read == 0
    released = topic.run(action="release", held="truncate")
    assert warnings_of(released) == ["TRUNCATE_APPLIED", "TRUNCATE_HELD"], "the next one waits for its own release"
    assert replica(topic) == {2: "c150", 5: "c160"}
    topic.run(action="release", held="truncate")
    assert replica(topic) == {}
    done = topic.run(action="release", held="truncate")
    assert (done.status, warnings_of(done)) == ("skipped", [])
    assert is_equal(topic)


def test_held_in_a_file_that_a_replay_has_read(
    engine: LocalPort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its release as if it came now, and all that comes after the replay."""
    topic = Topic(engine, tmp_path)
    topic.land(text(row("c", 1, 100), row("c", 2, 110)))
    topic.run()
    path, read = topic.land(text(row("c", 4, 130), truncate(140), row("c", 2, 150))), Storage.open_input

    def damaged(self: Storage, wanted: str) -> BinaryIO:
        if wanted.endswith(path):
            raise ValueError("damaged")
        return read(self, wanted)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "open_input", damaged)
        assert warnings_of(topic.run()) == ["FILE_UNREADABLE"]
    topic.land(text(row("c", 5, 160)))
    topic.run()
    assert replica(topic) == {1: "c100", 2: "c110", 5: "c160"}
    assert warnings_of(topic.run(action="errors_replay")) == ["TRUNCATE_HELD"]
    topic.land(text(row("c", 6, 170)))
    held = topic.run()
    assert (warnings_of(held), held.warnings[0].count) == (["TRUNCATE_HELD"], 2)
    assert replica(topic) == {1: "c100", 2: "c110", 5: "c160"}
    assert warnings_of(topic.run(action="release", held="truncate")) == ["TRUNCATE_APPLIED"]
    assert topic.run().status == "skipped"
    assert replica(topic) == {2: "c150", 5: "c160", 6: "c170"}
    assert topic.run(action="errors_list").details["unresolved"] == 0
    assert is_equal(topic)


def test_first_load_is_held(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(row("c", 1, 100), truncate(140), row("c", 2, 150)))
    for _ in range(2):
        held = topic.run()
        assert (held.status, warnings_of(held)) == ("skipped", ["TRUNCATE_HELD"])
    topic.run(action="release", held="truncate")
    assert replica(topic) == {2: "c150"}


def test_held_alone_behind_files_of_a_first_load(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(row("c", 1, 100)))
    topic.land(text(truncate(140)))
    topic.land(text(row("c", 2, 160)))
    held = topic.run()
    assert (warnings_of(held), held.warnings[0].count, replica(topic)) == (["TRUNCATE_HELD"], 2, {1: "c100"})
    topic.run(action="release", held="truncate")
    assert replica(topic) == {2: "c160"}


def test_a_reported_truncate_keeps_rows(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, truncate="report")
    topic.land(text(row("c", 1, 100), truncate(140), row("c", 2, 150)))
    done = topic.run()
    assert (warnings_of(done), done.truncates, done.quarantined) == (["TRUNCATE_IGNORED"], 1, 0)
    assert replica(topic) == {1: "c100", 2: "c150"}
    topic.land(text(row("c", 1, 130)))
    topic.run()
    assert replica(topic) == {1: "c130", 2: "c150"}
    applied = topic.with_row(**APPLIED)
    applied.run(action="reload", confirmed=True)
    assert replica(applied) == {2: "c150"}, "a reload reads the files by the row as it is now"


def test_policy_that_is_changed_while_files_wait(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path)
    topic.land(text(row("c", 1, 100)))
    topic.run()
    topic.land(text(truncate(140), row("c", 2, 150)))
    topic.run()
    kept = topic.with_row(truncate="report")
    assert warnings_of(kept.run()) == ["TRUNCATE_IGNORED"]
    assert replica(kept) == {1: "c100", 2: "c150"}
    kept.land(text(truncate(160)))
    assert warnings_of(kept.with_row(**APPLIED).run()) == ["TRUNCATE_APPLIED"]
    assert replica(kept) == {}


def test_late_and_delivered_again(engine: LocalPort, tmp_path: Path) -> None:
    """A truncate that comes after newer changes leaves these, and one that comes again deletes nothing."""
    topic = Topic(engine, tmp_path, history=True, **APPLIED)
    topic.land(text(row("c", 1, 100), row("c", 2, 150)))
    topic.run()
    topic.land(text(truncate(140)))
    assert warnings_of(topic.run()) == ["TRUNCATE_APPLIED"]
    assert replica(topic) == {2: "c150"}
    topic.land(text(truncate(140)))
    assert warnings_of(topic.run()) == []
    topic.land(text(truncate(120), row("c", 3, 160)))
    assert warnings_of(topic.run()) == [], "one before it deletes nothing more"
    assert replica(topic) == {2: "c150", 3: "c160"}
    assert is_equal(topic)


def test_a_truncate_empties_a_table_without_keys(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, keys=[], **APPLIED)
    topic.land(text(row("c", 1, 100), row("c", 2, 150)))
    topic.run()
    topic.land(text(row("c", 3, 130), truncate(140), row("c", 4, 160)))
    topic.run()
    assert replica(topic) == {2: "c150", 4: "c160"}
    assert is_equal(topic)
    topic.run(action="rebuild")
    assert replica(topic) == {2: "c150", 4: "c160"}


def test_truncate_without_a_place_is_quarantined(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, sequence_by=["v"], **APPLIED)
    topic.land(text(row("c", 1, 100), truncate(140)))
    topic.run()
    assert [found["code"] for found in topic.errors()] == ["SEQUENCE_NULL"]
    assert replica(topic) == {1: "c100"}


def test_filter_and_expectations_do_not_concern_it(engine: LocalPort, tmp_path: Path) -> None:
    rules = {"where": "id > 1", "expect": {"v_there": {"rule": "v is not null", "on": "quarantine"}}}
    spec = with_expressions(decode(TableSpec, {"table": "shop.t", "keys": ["id"], **rules}))
    topic = Topic(engine, tmp_path, **rules, **APPLIED, expressions=plain(spec)["expressions"])
    topic.land(text(row("c", 1, 100), row("c", 2, 110)))
    topic.run()
    topic.land(text(truncate(140), row("c", 3, 150)))
    done = topic.run()
    assert (done.truncates, done.filtered, done.quarantined) == (1, 0, 0)
    assert [(one.checked, one.failed) for one in done.expectations] == [(1, 0)]
    assert replica(topic) == {3: "c150"}


def test_explain_shows_the_delete_by_a_truncate(engine: LocalPort, tmp_path: Path) -> None:
    topic = Topic(engine, tmp_path, **APPLIED)
    topic.land(text(row("c", 1, 100), row("u", 1, 110)))
    topic.run()
    topic.land(text(truncate(140)))
    topic.run()
    found = topic.run(action="explain", key={"id": "1"}).details
    assert (found["outcome"], found["verdict"]) == ("deleted", "equal")
    assert [(change["op"], change["truncate"]) for change in found["changes"]] == [
        ("I", False), ("U", False), ("D", True)
    ]  # fmt: skip
