"""Old submissions are removed with all that belongs to them; young ones, and those under way, never are."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import results_folder, spec_path
from airflow_gddl.runners import remote as forgetting
from airflow_gddl.runners.interface import Handle
from airflow_gddl.runners.remote import DAY, Attempts, Submission, TaskKey, forget_old
from airflow_gddl.stores import Storage, StoredObject

NOW = time.time()


@dataclass
class Submissions:
    root: Path
    store: Storage = field(default_factory=Storage)

    @property
    def path(self) -> str:
        return str(self.root / "lake")

    def submit(self, run: str, days: float, *, ended: bool = True, pipeline: str = "p") -> None:
        """A task that was submitted so long ago, twice, with its order and an answer."""
        attempts = Attempts(self.store, self.path, TaskKey(pipeline=pipeline, run=run, task="t"))
        for number in (1, 2):
            job = f"{run}-{number}"
            made = attempts.begin(number, Submission(run_id=job, size="small", tables=("s.a",)))
            attempts.started(made, Handle(run="7"))
            if ended:
                attempts.mark(made.number, "end")
            self.store.write(spec_path(self.path, job), b"{}")
            self.store.write(f"{results_folder(self.path, job)}/a.json", b"{}")
        for path in Path(self.path).rglob("*.json"):
            if path.stat().st_mtime > NOW - DAY / 2:
                os.utime(path, (NOW - days * DAY, NOW - days * DAY))

    def forget(self, now: float = NOW, store: Storage | None = None) -> int:
        return forget_old(store or self.store, self.path, "p", now)

    @property
    def left(self) -> set[str]:
        """Runs of which anything is left: of records, orders or answers."""
        orders = {path.stem.rpartition("-")[0] for path in Path(self.path, "_gddl", "specs").glob("*.json")}
        answers = {path.parent.name.rpartition("-")[0] for path in Path(self.path, "_gddl", "results").rglob("*.json")}
        assert orders == answers
        return orders

    @property
    def records(self) -> int:
        return len(list(Path(self.path, "_gddl", "submissions").rglob("0*.json")))


@pytest.fixture
def submissions(tmp_path: Path) -> Submissions:
    made = Submissions(tmp_path)
    made.submit("old", 31)
    made.submit("lost", 40, ended=False)
    made.submit("young", 25)
    made.submit("other", 50, pipeline="q")
    return made


def test_what_is_old_goes_with_its_orders_and_answers(submissions: Submissions) -> None:
    before = submissions.records
    assert submissions.forget() == 2
    assert submissions.left == {"young", "other"}
    # Two attempts of order, handle and end, and two without an end.
    assert before - submissions.records == 6 + 4


def test_once_a_day_is_enough(submissions: Submissions) -> None:
    submissions.forget()
    submissions.submit("older", 60)
    assert submissions.forget(NOW + DAY / 2) == 0
    assert submissions.forget(NOW + DAY + 1) == 1
    assert submissions.left == {"young", "other"}


def test_a_task_with_one_recent_object_is_kept(submissions: Submissions) -> None:
    """It was tried again, or stopped, long after its first attempt."""
    attempts = Attempts(submissions.store, submissions.path, TaskKey(pipeline="p", run="old", task="t"))
    attempts.mark(2, "stop")
    assert submissions.forget() == 1
    assert "old" in submissions.left
    assert [attempt.number for attempt in attempts.all()] == [1, 2]


def test_a_call_forgets_a_bounded_number_the_oldest_first(
    submissions: Submissions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forgetting, "MOST", 1)
    assert submissions.forget() == 1
    assert submissions.left == {"old", "young", "other"}


@dataclass
class Broken(Storage):
    """A store that fails at its nth change of any kind, or at its listing."""

    left: int = 0

    def __post_init__(self) -> None:
        super().__init__()

    def _burn(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise RetriableError("STORAGE_BUSY", "broken off")

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        self._burn()
        yield from super().list(folder, after, within)

    def delete(self, *paths: str) -> None:
        for path in paths:
            self._burn()
            super().delete(path)


@pytest.mark.parametrize("step", range(26))
def test_an_interrupted_cleanup_fails_no_task_and_is_resumed(submissions: Submissions, step: int) -> None:
    submissions.forget(store=Broken(left=step))
    submissions.forget(NOW + DAY + 1)
    assert submissions.left == {"young", "other"}
    assert submissions.records == 12


def test_a_damaged_record_goes_like_the_others(submissions: Submissions) -> None:
    for order in Path(submissions.path, "_gddl", "submissions", "p").rglob("000001-submission.json"):
        at = order.stat().st_mtime
        order.write_bytes(b"\xff{")
        os.utime(order, (at, at))
    assert submissions.forget() == 2
    assert submissions.records == 12
