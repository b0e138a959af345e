from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError, RetriableError
from spark_jobs.dialects.dms_names import change_time
from spark_jobs.ledger import COMMITS_PER_SNAPSHOT, Ledger
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.files import FileEntry, PlannedFile
from spark_jobs.storage import Storage, StoredObject
from tests.landed import LANDING, committed, content, entry_of, landed


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


def planned_file(name: str, generation: int = 1, version: int = 1) -> PlannedFile:
    file = landed(name, version)
    return PlannedFile(
        path=file.path,
        kind=file.kind,
        format=file.format,
        size=file.size,
        etag=file.etag,
        modified=file.modified,
        fingerprint=content(file),
        generation=generation,
    )


def plan_of(number: int, *names: str, version: int = 1) -> BatchPlan:
    return BatchPlan(
        number=number,
        mode="incremental",
        planned_at="2025-01-01T00:00:00.000000+00:00",
        generation=1,
        files=tuple(planned_file(name, version=version) for name in names),
    )


def change(minute: int) -> str:
    return (
        f"2024{1 + minute // 40320:02d}{1 + minute // 1440 % 28:02d}-{minute // 60 % 24:02d}{minute % 60:02d}00000.csv"
    )


def grow(ledger: Ledger, batches: int, files_per_batch: int = 1) -> list[FileEntry]:
    """Commit batches of new change files, a minute apart; their rows."""
    rows: list[FileEntry] = []
    for _ in range(batches):
        number = ledger.state.batch + 1
        names = [change(number * files_per_batch + each) for each in range(files_per_batch)]
        commit = committed(plan_of(number, *names), ledger.state)
        ledger.commit(commit)
        rows.extend(commit.files)
    return rows


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


def test_a_commit_comes_back_as_it_was(root: str) -> None:
    ledger = Ledger.open(Storage(), f"{root}/")
    plan = plan_of(1, "LOAD00000001.csv", change(5))
    commit = committed(plan, ledger.state)
    state = replace(
        commit.state, schemas=({"id": "int", "näme": "string"},), max_sequence='["1","2"]', generation_floor=(None,)
    )
    odd = replace(commit.files[0], rows=None, state="unreadable", quarantined=2, min_sequence='"a\\nb"', schema=0)
    commit = replace(commit, state=state, files=(odd, commit.files[1]))
    ledger.commit(commit)
    again = Ledger.open(Storage(), root)
    for each in (ledger, again):
        assert each.last_commit() == commit
        assert each.state == state
        assert each.entries() == {row.path: row for row in commit.files}


def test_a_path_that_is_no_unicode_comes_back(root: str) -> None:
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


def test_the_plan_lives_until_its_commit(root: str) -> None:
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


def test_a_commit_whose_answer_was_lost_counts(root: str) -> None:
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


def test_what_a_listing_found_is_kept_without_a_batch(root: str) -> None:
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
    assert '"touched":{}' in Path(root, "seen.json").read_text(), "folded into the snapshot"


class Recording(Storage):
    """Remembers every write, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[tuple[str, str, bytes]] = []

    def write(self, path: str, data: bytes) -> None:
        super().write(path, data)
        self.log.append(("write", path, data))

    def create(self, path: str, data: bytes) -> bool:
        made = super().create(path, data)
        self.log += [("create", path, data)] if made else []
        return made

    def delete(self, path: str) -> None:
        super().delete(path)
        self.log.append(("delete", path, b""))


def replayed(log: list[tuple[str, str, bytes]], root: str, copy: str) -> Iterator[str]:
    """The copy's root after each write."""
    storage = Storage()
    yield copy
    for action, path, data in log:
        target = copy + path.removeprefix(root)
        if action == "delete":
            storage.delete(target)
        else:
            storage.write(target, data)
        yield copy


def test_a_crash_between_any_two_writes_leaves_a_right_ledger(root: str, tmp_path: Path) -> None:
    storage = Recording()
    ledger = Ledger.open(storage, root)
    ledger.keep(timedelta(minutes=10))
    rows: dict[int, FileEntry] = {}
    for number in range(1, 70):
        plan = plan_of(number, change(number))
        ledger.write_plan(plan)
        ledger.note_listing(None, {f"{LANDING}/{change(1)}": ("content:etag-1", f"moved-{number}")})
        ledger.commit(committed(plan, ledger.state))
        rows[number] = entry_of(plan.files[0], number)
    assert {action for action, _, _ in storage.log} == {"write", "create", "delete"}
    commits = 0
    for index, copy in enumerate(replayed(storage.log, root, str(tmp_path / "copy"))):
        commits += int(index > 0 and storage.log[index - 1][0] == "create")
        opened = Ledger.open(Storage(), copy)
        assert opened.state.batch == commits
        left = opened.plan()
        assert left is None or left.number == commits + 1
        found = {row.batch: row.path for row in opened.all_entries().values()}
        assert found == {number: rows[number].path for number in range(1, commits + 1)}


def test_a_run_goes_on_after_a_crash_at_any_write(root: str, tmp_path: Path) -> None:
    storage = Recording()
    ledger = Ledger.open(storage, root)
    ledger.keep(timedelta(minutes=7))
    grow(ledger, COMMITS_PER_SNAPSHOT + 3)
    for index, copy in enumerate(replayed(storage.log, root, str(tmp_path / "copy"))):
        if index % 5:
            continue
        branch = f"{tmp_path}/branch-{index}"
        for found in Storage().list(copy):
            Storage().write(branch + found.path.removeprefix(copy), Storage().read(found.path))
        ledger = Ledger.open(Storage(), branch)
        before = set(ledger.all_entries())
        ledger.keep(timedelta(minutes=5))
        added = {row.path for row in grow(ledger, COMMITS_PER_SNAPSHOT + 2)}
        assert set(Ledger.open(Storage(), branch).all_entries()) == before | added


@pytest.mark.parametrize("cut", [0, 1, 30, 60, 200, -200, -2, -1])
def test_a_damaged_commit_is_named(root: str, cut: int) -> None:
    grow(Ledger.open(Storage(), root), 3)
    path = Path(root, "commits", f"{3:020d}.json")
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(FatalError, match="LEDGER_DAMAGED") as caught:
        Ledger.open(Storage(), root)
    assert caught.value.where == str(path)


@pytest.mark.parametrize("name", ["plan.json", "seen.json", "recent/*", "archive/*"])
def test_any_other_damaged_file_is_named(root: str, name: str) -> None:
    ledger = Ledger.open(Storage(), root)
    ledger.keep(timedelta(minutes=7))
    grow(ledger, COMMITS_PER_SNAPSHOT + 1)
    ledger.note_listing("2025-01-01T00:00:00.000000+00:00", {})
    ledger.write_plan(plan_of(ledger.state.batch + 1, change(50)))
    (path,) = Path(root).glob(name)
    path.write_bytes(path.read_bytes()[:-9] + b"ruined   ")

    def read_all() -> None:
        opened = Ledger.open(Storage(), root)
        opened.all_entries()
        opened.plan()

    with pytest.raises(FatalError, match="LEDGER_DAMAGED") as caught:
        read_all()
    assert caught.value.where == str(path)


def test_a_commit_under_a_wrong_number_and_a_plan_from_beyond_are_damage(root: str) -> None:
    ledger = Ledger.open(Storage(), root)
    grow(ledger, 2)
    ledger.write_plan(plan_of(3, change(3)))
    Path(root, "commits", f"{2:020d}.json").unlink()
    with pytest.raises(FatalError, match="LEDGER_DAMAGED"):
        Ledger.open(Storage(), root).plan()
    Path(root, "commits", f"{1:020d}.json").rename(Path(root, "commits", f"{2:020d}.json"))
    with pytest.raises(FatalError, match="it holds batch 1"):
        Ledger.open(Storage(), root)


class Counting(Storage):
    """Counts requests as an object store would."""

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[str] = []

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[StoredObject]:
        self.requests.append("LIST")
        return super().list(prefix, start_after)

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
    # Measured 1 ms; the bound leaves room for a busy machine.
    assert min(seconds) < 0.003
    assert len(opened.entries()) == 10_000
    assert len(storage.requests) == 61
