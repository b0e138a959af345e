"""What a crash between two writes and what damage does to a ledger."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.stores import Storage
from spark_jobs.ledger.ledger import COMMITS_PER_SNAPSHOT, Ledger
from spark_jobs.plan.planned_batch import FileEntry
from tests.harness.landed import LANDING, change, committed, entry_of, grow, plan_of


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "ledger")


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


def test_crash_between_writes_leaves_a_valid_ledger(root: str, tmp_path: Path) -> None:
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


def test_run_resumes_after_a_crash_at_any_write(root: str, tmp_path: Path) -> None:
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
