"""Truncates of the source's table: a tombstone of the whole table at its place in the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any, BinaryIO

import pytest

from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.metadata.expression_text import with_expressions
from airflow_gddl.stores import Storage
from tests.debezium.lake import Lake, warnings_of
from tests.debezium.probing import text
from tests.debezium.test_snapshots import event
from tests.harness.engine_port import EnginePort

APPLIED: dict[str, Any] = {"truncate": "apply"}


def truncate(lsn: int) -> dict[str, Any]:
    return {**event("d", {}, lsn), "op": "t", "before": None}


def row(op: str, key: int, lsn: int, **columns: Any) -> dict[str, Any]:
    return event(op, {"id": key, "v": f"{op}{lsn}", **columns}, lsn)


def replica(lake: Lake) -> dict[int, str]:
    return dict(lake.replica("id", "v"))


def is_equal(lake: Lake) -> bool:
    return bool(lake.run(action="verify").details["verdict"] == "equal")


def test_applied(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, history=True, delete="hard", **APPLIED)
    lake.land(text(row("c", 1, 100), row("c", 2, 110), row("c", 3, 120)))
    lake.run()
    lake.land(text(row("u", 1, 130), truncate(140), row("c", 2, 150), row("c", 4, 160)))
    done = lake.run()
    assert warnings_of(done) == ["TRUNCATE_APPLIED"]
    assert (done.truncates, done.rows_read, done.changes_written, done.quarantined) == (1, 3, 3, 0)
    assert replica(lake) == {2: "c150", 4: "c160"}
    assert is_equal(lake)
    lake.land(text(row("u", 1, 135), row("c", 9, 90), row("c", 5, 170)))
    assert lake.run().late_ignored == 2
    assert replica(lake) == {2: "c150", 4: "c160", 5: "c170"}
    assert is_equal(lake)
    lake.run(full_refresh=True)
    assert replica(lake) == {2: "c150", 4: "c160", 5: "c170"}
    assert is_equal(lake)


def test_history_ends_at_the_truncate(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, history=True, **APPLIED)
    lake.land(text(row("c", 1, 100), row("c", 2, 110)))
    lake.run()
    lake.land(text(truncate(140), row("c", 2, 150), truncate(160), row("c", 3, 170)))
    lake.run()
    place = {lsn: f"{lsn - 1:020d}.{lsn:020d}" for lsn in range(100, 200)}
    assert lake.history("id", "__start_at", "__end_at") == [
        (1, place[100], place[140]), (2, place[110], place[140]), (2, place[150], place[160]), (3, place[170], None)
    ]  # fmt: skip
    before = lake.history("id", "v", "__start_at", "__end_at")
    lake.run(full_refresh=True)
    assert lake.history("id", "v", "__start_at", "__end_at") == before


def test_soft_deletes_mark_rows(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, delete="soft", **APPLIED)
    lake.land(text(row("c", 1, 100), row("c", 2, 110), row("d", 3, 115), row("c", 4, 116), row("d", 4, 117)))
    lake.run()
    lake.land(text(truncate(140), row("c", 2, 150)))
    lake.run()
    lake.land(text(row("c", 5, 130)))
    lake.run()
    marked = {key: (v, gddl["deleted"]) for key, v, gddl in lake.replica("id", "v", "_gddl")}
    assert marked == {
        1: ("c100", True), 2: ("c150", False), 4: ("c116", True), 5: ("c130", True)
    }, "what comes late is marked, too"  # fmt: skip
    before = lake.replica("id", "v", "_gddl")
    assert is_equal(lake)
    lake.run(full_refresh=True)
    assert lake.replica("id", "v", "_gddl") == before


def test_held_and_released(engine: EnginePort, tmp_path: Path) -> None:
    """The file of the truncate waits, and all after it; those before it are loaded."""
    lake = Lake(engine, tmp_path)
    lake.land(text(row("c", 1, 100), row("c", 2, 110)))
    lake.run()
    lake.land(text(row("c", 3, 120)))
    lake.land(text(row("c", 4, 130), truncate(140), row("c", 2, 150)))
    lake.land(text(row("c", 5, 160)))
    held = lake.run()
    assert warnings_of(held) == ["TRUNCATE_HELD"]
    assert (held.warnings[0].count, held.truncates) == (2, 0)
    assert sorted(replica(lake)) == [1, 2, 3]
    lake.land(text(row("c", 6, 170), truncate(180)))
    again = lake.run()
    assert (again.status, warnings_of(again), again.warnings[0].count) == ("skipped", ["TRUNCATE_HELD"], 3)
    assert again.rows_read == 0
    released = lake.run(action="truncate_release")
    assert warnings_of(released) == ["TRUNCATE_APPLIED", "TRUNCATE_HELD"], "the next one waits for its own release"
    assert replica(lake) == {2: "c150", 5: "c160"}
    lake.run(action="truncate_release")
    assert replica(lake) == {}
    done = lake.run(action="truncate_release")
    assert (done.status, warnings_of(done)) == ("skipped", [])
    assert is_equal(lake)


def test_held_in_a_file_that_a_replay_has_read(
    engine: EnginePort, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for its release as if it came now, and all that comes after the replay."""
    lake = Lake(engine, tmp_path)
    lake.land(text(row("c", 1, 100), row("c", 2, 110)))
    lake.run()
    path, read = lake.land(text(row("c", 4, 130), truncate(140), row("c", 2, 150))), Storage.open_input

    def damaged(self: Storage, wanted: str) -> BinaryIO:
        if wanted.endswith(path):
            raise ValueError("damaged")
        return read(self, wanted)

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "open_input", damaged)
        assert warnings_of(lake.run()) == ["FILE_UNREADABLE"]
    lake.land(text(row("c", 5, 160)))
    lake.run()
    assert replica(lake) == {1: "c100", 2: "c110", 5: "c160"}
    assert warnings_of(lake.run(action="errors_replay")) == ["TRUNCATE_HELD"]
    lake.land(text(row("c", 6, 170)))
    held = lake.run()
    assert (warnings_of(held), held.warnings[0].count) == (["TRUNCATE_HELD"], 2)
    assert replica(lake) == {1: "c100", 2: "c110", 5: "c160"}
    assert warnings_of(lake.run(action="truncate_release")) == ["TRUNCATE_APPLIED"]
    assert lake.run().status == "skipped"
    assert replica(lake) == {2: "c150", 5: "c160", 6: "c170"}
    assert lake.run(action="errors_list").details["unresolved"] == 0
    assert is_equal(lake)


def test_first_load_is_held(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(row("c", 1, 100), truncate(140), row("c", 2, 150)))
    for _ in range(2):
        held = lake.run()
        assert (held.status, warnings_of(held)) == ("skipped", ["TRUNCATE_HELD"])
    lake.run(action="truncate_release")
    assert replica(lake) == {2: "c150"}


def test_reported(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, truncate="report")
    lake.land(text(row("c", 1, 100), truncate(140), row("c", 2, 150)))
    done = lake.run()
    assert (warnings_of(done), done.truncates, done.quarantined) == (["TRUNCATE_IGNORED"], 1, 0)
    assert replica(lake) == {1: "c100", 2: "c150"}
    lake.land(text(row("c", 1, 130)))
    lake.run()
    assert replica(lake) == {1: "c130", 2: "c150"}
    applied = lake.with_row(**APPLIED)
    applied.run(reload=True, confirmed=True)
    assert replica(applied) == {2: "c150"}, "a reload reads the files by the row as it is now"


def test_policy_that_is_changed_while_files_wait(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path)
    lake.land(text(row("c", 1, 100)))
    lake.run()
    lake.land(text(truncate(140), row("c", 2, 150)))
    lake.run()
    kept = lake.with_row(truncate="report")
    assert warnings_of(kept.run()) == ["TRUNCATE_IGNORED"]
    assert replica(kept) == {1: "c100", 2: "c150"}
    kept.land(text(truncate(160)))
    assert warnings_of(kept.with_row(**APPLIED).run()) == ["TRUNCATE_APPLIED"]
    assert replica(kept) == {}


def test_late_and_delivered_again(engine: EnginePort, tmp_path: Path) -> None:
    """A truncate that comes after newer changes leaves these, and one that comes again deletes nothing."""
    lake = Lake(engine, tmp_path, history=True, **APPLIED)
    lake.land(text(row("c", 1, 100), row("c", 2, 150)))
    lake.run()
    lake.land(text(truncate(140)))
    assert warnings_of(lake.run()) == ["TRUNCATE_APPLIED"]
    assert replica(lake) == {2: "c150"}
    lake.land(text(truncate(140)))
    assert warnings_of(lake.run()) == []
    lake.land(text(truncate(120), row("c", 3, 160)))
    assert warnings_of(lake.run()) == [], "one before it deletes nothing more"
    assert replica(lake) == {2: "c150", 3: "c160"}
    assert is_equal(lake)


def test_tables_without_keys(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, keys=[], **APPLIED)
    lake.land(text(row("c", 1, 100), row("c", 2, 150)))
    lake.run()
    lake.land(text(row("c", 3, 130), truncate(140), row("c", 4, 160)))
    lake.run()
    assert replica(lake) == {2: "c150", 4: "c160"}
    assert is_equal(lake)
    lake.run(full_refresh=True)
    assert replica(lake) == {2: "c150", 4: "c160"}


def test_truncate_without_a_place_is_quarantined(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, sequence_by=["v"], **APPLIED)
    lake.land(text(row("c", 1, 100), truncate(140)))
    lake.run()
    assert [found["code"] for found in lake.errors()] == ["SEQUENCE_NULL"]
    assert replica(lake) == {1: "c100"}


def test_filter_and_expectations_do_not_concern_it(engine: EnginePort, tmp_path: Path) -> None:
    rules = {"where": "id > 1", "expect": {"v_there": {"rule": "v is not null", "on": "quarantine"}}}
    spec = with_expressions(decode(TableSpec, {"table": "shop.t", "keys": ["id"], **rules}))
    lake = Lake(engine, tmp_path, **rules, **APPLIED, expressions=plain(spec)["expressions"])
    lake.land(text(row("c", 1, 100), row("c", 2, 110)))
    lake.run()
    lake.land(text(truncate(140), row("c", 3, 150)))
    done = lake.run()
    assert (done.truncates, done.filtered, done.quarantined) == (1, 0, 0)
    assert [(one.checked, one.failed) for one in done.expectations] == [(1, 0)]
    assert replica(lake) == {3: "c150"}


def test_explained(engine: EnginePort, tmp_path: Path) -> None:
    lake = Lake(engine, tmp_path, **APPLIED)
    lake.land(text(row("c", 1, 100), row("u", 1, 110)))
    lake.run()
    lake.land(text(truncate(140)))
    lake.run()
    found = lake.run(action="explain", key={"id": "1"}).details
    assert (found["outcome"], found["verdict"]) == ("deleted", "equal")
    assert [(change["op"], change["truncate"]) for change in found["changes"]] == [
        ("I", False), ("U", False), ("D", True)
    ]  # fmt: skip
