from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.file_names import change_time
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.ledger.commit_files import decode_files
from spark_jobs.ledger.ledger import COMMITS_PER_SNAPSHOT, Ledger
from spark_jobs.plan.planned_batch import FileEntry, GenerationFloor, TableState
from tests.harness.landed import LANDING, change, committed, grow, plan_of


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


def paths(root: str, folder: str) -> list[str]:
    return sorted(path.name for path in Path(root, folder).glob("*"))


def test_an_absent_ledger_is_empty(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    assert ledger.state == TableState()
    assert ledger.entries() == {}
    assert ledger.all_entries() == {}
    assert ledger.plan() is None
    assert ledger.last_commit() is None
    assert not Path(root).exists()


def test_commit_round_trips(root: str) -> None:
    ledger = Ledger.open(Storage(), f"{root}/")
    plan = plan_of(1, "LOAD00000001.csv", change(5))
    commit = committed(plan, ledger.state)
    state = replace(
        commit.state, schemas=({"id": "int", "näme": "string"},), max_sequence='["1","2"]', floors=(GenerationFloor(),)
    )
    odd = replace(commit.files[0], rows=None, state="unreadable", quarantined=2, min_sequence='"a\\nb"', schema=0)
    commit = replace(commit, state=state, files=(odd, commit.files[1]))
    ledger.commit(commit)
    again = Ledger.open(Storage(), root)
    for each in (ledger, again):
        assert each.last_commit() == commit
        assert each.state == state
        assert each.entries() == {row.path: row for row in commit.files}


def test_invalid_unicode_path_round_trips(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    commit = committed(plan_of(1, change(1)), ledger.state)
    name = b"/landing/\xff/20240101-000000000.csv".decode(errors="surrogateescape")
    ledger.commit(replace(commit, files=(replace(commit.files[0], path=name),)))
    assert list(Ledger.open(Storage(), root).entries()) == [name]


def test_the_newest_row_of_a_path_wins(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    for number in range(1, 3 * COMMITS_PER_SNAPSHOT):
        ledger.commit(committed(plan_of(number, change(1), version=number % 28 + 1), ledger.state))
        (row,) = Ledger.open(Storage(), root).entries().values()
        assert (row.batch, row.fingerprint) == (number, f"content:etag-{number % 28 + 1}")


def test_plan_is_kept_until_its_commit(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    plan = plan_of(1, change(1))
    ledger.write_plan(plan)
    assert Ledger.open(Storage(), root).plan() == plan
    storage = Storage()
    kept = storage.read(f"{root}/plan.json")
    ledger.commit(committed(plan, ledger.state))
    assert ledger.plan() is None
    assert not storage.exists(f"{root}/plan.json")
    storage.write(f"{root}/plan.json", kept)
    assert Ledger.open(storage, root).plan() is None, "a crash after the commit leaves it, to be ignored"


def test_a_plan_can_be_dropped_and_replaced(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.write_plan(plan_of(1, change(1)))
    ledger.write_plan(plan_of(1, change(2)))
    assert Ledger.open(Storage(), root).plan() == plan_of(1, change(2))
    ledger.drop_plan()
    assert ledger.plan() is None
    assert Ledger.open(Storage(), root).plan() is None


def test_two_writers_conflict(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    other = Ledger.open(Storage(), root)
    commit = committed(plan_of(1, change(1)), ledger.state)
    ledger.commit(commit)
    with pytest.raises(RetriableError, match="LEDGER_CONFLICT"):
        other.commit(committed(plan_of(1, change(2)), other.state))
    assert list(Ledger.open(Storage(), root).entries()) == [f"{LANDING}/{change(1)}"]
    with pytest.raises(RetriableError, match="LEDGER_CONFLICT"):
        ledger.commit(commit)
    with pytest.raises(RetriableError, match="LEDGER_CONFLICT"):
        ledger.write_plan(plan_of(3, change(3)))


def test_commit_with_a_lost_response_is_recognized(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    other = Ledger.open(Storage(), root)
    commit = committed(plan_of(1, change(1)), ledger.state)
    ledger.commit(commit)
    other.commit(commit)
    assert other.state == ledger.state


def test_a_state_of_another_batch_is_refused(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    commit = committed(plan_of(1, change(1)), ledger.state)
    with pytest.raises(ValueError, match="commit 1 says batch 0"):
        ledger.commit(replace(commit, state=TableState()))


def test_snapshots_keep_the_folder_small_and_lose_nothing(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    rows = grow(ledger, 200)
    again = Ledger.open(Storage(), root)
    assert again.all_entries() == again.entries() == {row.path: row for row in rows}
    assert 0 < len(paths(root, "commits")) <= 2 * COMMITS_PER_SNAPSHOT
    assert len(paths(root, "recent")) <= 2


def test_old_change_files_move_to_archives(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.commit(committed(plan_of(1, "LOAD00000001.csv"), ledger.state))
    rows = grow(ledger, 120)
    assert ledger.archived_before is None, "nobody has said how long to keep"
    ledger.keep(timedelta(minutes=30))
    rows += grow(ledger, 80)
    again = Ledger.open(Storage(), root)
    horizon = again.archived_before
    assert horizon is not None
    recent = {row.path: row for row in rows if (change_time(row.path) or "") >= horizon}
    assert 30 <= len(recent) <= 30 + COMMITS_PER_SNAPSHOT + 1
    assert {path: row for path, row in again.entries().items() if row.kind == "change"} == recent
    assert {path: row for path, row in again.all_entries().items() if row.kind == "change"} == {r.path: r for r in rows}
    assert again.entries()[f"{LANDING}/LOAD00000001.csv"].batch == 1, "full-load files stay"


def test_archives_stay_few(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.keep(timedelta(minutes=30))
    rows = grow(ledger, 40 * COMMITS_PER_SNAPSHOT)
    again = Ledger.open(Storage(), root)
    assert 0 < len(paths(root, "archive")) <= 8
    assert again.all_entries() == ledger.all_entries() == {row.path: row for row in rows}
    assert len(again.entries()) <= 30 + COMMITS_PER_SNAPSHOT + 1


def test_a_rewritten_archived_file_keeps_its_newest_row(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.keep(timedelta(minutes=30))
    grow(ledger, 100)
    path = f"{LANDING}/{change(3)}"
    assert path not in ledger.entries()
    number = ledger.state.batch + 1
    ledger.commit(committed(plan_of(number, change(3), version=9), ledger.state))
    for _ in range(3):
        again = Ledger.open(Storage(), root)
        assert (again.all_entries()[path].batch, again.all_entries()[path].fingerprint) == (number, "content:etag-9")
        grow(ledger, COMMITS_PER_SNAPSHOT + 1)


def test_listing_findings_are_stored_without_a_batch(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.keep(timedelta(minutes=30))
    grow(ledger, 115)
    old, new = f"{LANDING}/{change(2)}", f"{LANDING}/{change(100)}"
    assert old not in ledger.entries()
    ledger.note_listing("2025-01-01T00:00:00.000000+00:00", {})
    ledger.note_listing(None, dict.fromkeys((old, new), ("content:etag-1", "moved")))
    ledger.note_listing(None, {f"{LANDING}/{change(101)}": ("other content", "moved")})
    for _ in range(2):
        again = Ledger.open(Storage(), root)
        assert again.state.listed_in_full_at == "2025-01-01T00:00:00.000000+00:00"
        rows = again.all_entries()
        assert sorted(path for path, row in rows.items() if row.etag == "moved") == [old, new]
        assert rows[new].modified == rows[f"{LANDING}/{change(101)}"].modified
        again.keep(timedelta(minutes=30))
        grow(again, COMMITS_PER_SNAPSHOT + 1)
    assert '"touched"' not in Path(root, "seen.json").read_text(), "folded into the snapshot"


def test_listing_and_erasure_at_the_same_time_are_both_stored(root: str) -> None:
    grow(Ledger.open(Storage(), root), 3)
    listing, erasure = Ledger.open(Storage(), root), Ledger.open(Storage(), root)
    erasure.note_rows(7)
    listing.note_listing("2025-01-01T00:00:00.000000+00:00", {f"{LANDING}/{change(2)}": ("content:etag-1", "moved")})
    erasure.note_rows(6)
    again = Ledger.open(Storage(), root)
    assert (again.state.rows, again.state.listed_in_full_at) == (6, "2025-01-01T00:00:00.000000+00:00")
    listing.note_listing("2024-01-01T00:00:00.000000+00:00", {})
    again = Ledger.open(Storage(), root)
    assert (again.state.rows, again.state.listed_in_full_at) == (6, "2025-01-01T00:00:00.000000+00:00")
    assert [row.etag for path, row in again.entries().items() if path.endswith(change(2))] == ["moved"]


class Counting(Storage):
    """Counts requests as an object store would."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        self.requests.append("LIST")
        return super().list(folder, after, within)

    def read(self, path: str) -> bytes:
        self.requests.append("GET")
        return super().read(path)


def test_opening_an_idle_table_is_cheap(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    rows = grow(ledger, 100, files_per_batch=100)
    assert len(rows) == 10_000
    ledger.note_listing("2025-01-01T00:00:00.000000+00:00", {})
    storage = Counting()
    seconds = []
    for _ in range(20):
        start = time.perf_counter()
        opened = Ledger.open(storage, root)
        assert (opened.state.batch, opened.plan()) == (100, None)
        seconds.append(time.perf_counter() - start)
    assert storage.requests == ["LIST", "GET", "GET"] * 20
    # Measured 0.3 ms; the bound leaves room for a busy machine.
    assert min(seconds) < 0.003
    assert len(opened.entries()) == 10_000
    assert len(storage.requests) == 61


def test_rows_may_lack_columns_that_have_defaults_and_no_others() -> None:
    row: dict[str, Any] = {"path": "/l/x", "kind": "load", "size": 1, "etag": "e", "modified": "m", "fingerprint": "f"}
    known = {**row, "generation": 1, "batch": 1}
    (read,) = decode_files(json.dumps({"columns": list(known), "rows": [list(known.values())]}), "s")
    assert read == FileEntry(**known)
    for columns, code in ((row, "LEDGER_DAMAGED"), ({**known, "colour": "red"}, "LEDGER_NEWER")):
        with pytest.raises(FatalError, match=code):
            decode_files(json.dumps({"columns": list(columns), "rows": [list(columns.values())]}), "s")
