"""Submissions of a task, stored in the lake: the run of a lost worker is found again, and never started twice.

Each attempt of a task is up to five small objects, put if absent and never changed: its order before the platform is
asked, its handle after, `stop` when it was asked to stop, `timeout` when its task reached its time limit, `end` when
all of its results were taken. The number of the next attempt goes up only past an end, and it is part of the token that
the platform gets. Two workers that both own the task use the same number, and so the same run.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from airflow_gddl.contract.codec import decode, plain, to_json
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import STATE, answers_folder, join, order_path
from airflow_gddl.runners.interface import Handle
from airflow_gddl.stores import Storage, StoredObject, read_document

Part = Literal["order", "handle", "stop", "timeout", "end"]


@dataclass(frozen=True, kw_only=True)
class TaskKey:
    """Owner of the attempts: a task of an Airflow run, or a command. All tries of a task share one key."""

    pipeline: str
    run: str
    task: str

    @property
    def digest(self) -> str:
        return _digest(self.pipeline, self.run, self.task)[:24]


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Job of an attempt.

    Attributes:
        run_id: of the JobSpec.
        size: tier of its tables.
    """

    run_id: str
    size: str
    tables: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """One submission and its progress.

    Attributes:
        handle: null when it is not known whether the platform was reached.
        stopped: whether it was asked to stop.
        timed_out: whether its task reached its time limit.
        ended: whether all of its results were taken.
    """

    number: int
    submission: Submission
    token: str
    handle: Handle | None = None
    stopped: bool = False
    timed_out: bool = False
    ended: bool = False


class Attempts:
    """Attempts of one task, oldest first.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`: the lake does not answer.
        FatalError: `ATTEMPTS_DAMAGED`.
    """

    def __init__(self, store: Storage, lake: str, key: TaskKey) -> None:
        self._store, self.lake, self.key = store, lake, key
        self._folder = join(submissions_folder(lake, key.pipeline), key.digest)

    def all(self) -> list[Attempt]:
        names = sorted(found.name for found in self._store.list(self._folder))
        parts = [name.removesuffix(".json").split("-") for name in names if name.endswith(".json")]
        numbers: dict[int, set[str]] = {}
        for number, part in (p for p in parts if len(p) == 2 and p[0].isdigit()):
            numbers.setdefault(int(number), set()).add(part)
        return [self._attempt(number, known) for number, known in sorted(numbers.items())]

    def begin(self, number: int, submission: Submission) -> Attempt:
        """Claim the attempt of that number; if another worker was first, return its attempt."""
        self._put(number, "order", plain(submission))
        return self._attempt(number, {"order"})

    def started(self, attempt: Attempt, handle: Handle) -> None:
        self._put(attempt.number, "handle", plain(handle))

    def stop(self, number: int) -> None:
        """Store that the run is to be cancelled, before cancelling it."""
        self._put(number, "stop", {})

    def time_out(self, number: int) -> None:
        """Store that its task reached its time limit, before cancelling the run."""
        self._put(number, "timeout", {})

    def end(self, attempt: Attempt) -> None:
        """Mark the results as taken; more work needs a new attempt."""
        self._put(attempt.number, "end", {})

    def submission(self, number: int) -> Submission:
        """The job of the attempt of that number."""
        return decode(Submission, self._read(number, "order"))

    def _attempt(self, number: int, known: set[str]) -> Attempt:
        submission = self.submission(number)
        return Attempt(
            number=number,
            submission=submission,
            token=self._token(number, submission),
            handle=decode(Handle, self._read(number, "handle")) if "handle" in known else None,
            stopped="stop" in known,
            timed_out="timeout" in known,
            ended="end" in known,
        )

    def _token(self, number: int, submission: Submission) -> str:
        key = self.key
        tables = sorted(submission.tables)
        return f"gddl-{_digest(key.pipeline, key.run, key.task, *tables, submission.run_id)[:40]}-{number}"

    def _put(self, number: int, part: Part, content: Mapping[str, Any]) -> None:
        self._store.create(self._path(number, part), to_json(content).encode())

    def _read(self, number: int, part: Part) -> Any:
        path = self._path(number, part)
        try:
            return json.loads(self._store.read(path))
        except (FileNotFoundError, ValueError) as error:
            what = f"the record of a submission can't be read: {error}"
            raise FatalError("ATTEMPTS_DAMAGED", what, where=path, remedy=_REMEDY) from error

    def _path(self, number: int, part: Part) -> str:
        return join(self._folder, f"{number:06d}-{part}.json")


_REMEDY = "check that none of its runs is still active, then remove the folder"


def submissions_folder(lake: str, pipeline: str) -> str:
    """Folder of a pipeline's attempts, with one folder for each task."""
    return join(lake, STATE, "submissions", pipeline.replace("/", "_"))


def _digest(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


DAY = 86400.0
KEPT_SECONDS = 30 * DAY
"""Longer than any run may take and than a task is retried."""
MOST = 200
"""Maximum number of tasks removed by one call; the next one continues."""
_MARK = "forgotten.json"
_LOG = logging.getLogger(__name__)


def forget_old(store: Storage, lake: str, pipeline: str, now: float) -> int:
    """Remove submissions of a pipeline older than `KEPT_SECONDS`, once a day; return the number of tasks.

    Errors of the store are logged, and removal is retried the next day.

    Args:
        now: seconds since the epoch.
    """
    folder = submissions_folder(lake, pipeline)
    mark = join(folder, _MARK)
    try:
        if now - _last(store, mark) < DAY:
            return 0
        # Written first, so that only one of several tasks that end together lists.
        store.write(mark, str(int(now)).encode())
        old = _older(store, folder, now - KEPT_SECONDS)
        for paths in old:
            _forget(store, lake, paths)
        return len(old)
    except GddlError as error:
        _LOG.warning("old submissions of %s could not be removed: %s", pipeline, error)
        return 0


def _last(store: Storage, mark: str) -> float:
    try:
        return float(store.read(mark))
    except (FileNotFoundError, ValueError):
        return 0.0


def _older(store: Storage, folder: str, before: float) -> list[list[str]]:
    """Paths of the objects of each task that has no younger one."""
    tasks: dict[str, list[StoredObject]] = {}
    for found in store.list(folder):
        digest, slash, _ = found.name.partition("/")
        if slash:
            tasks.setdefault(digest, []).append(found)
    ages = {digest: max(item.modified for item in found) for digest, found in tasks.items()}
    old = sorted((digest for digest, age in ages.items() if age < before), key=lambda digest: ages[digest])
    return [sorted(item.path for item in tasks[digest]) for digest in old[:MOST]]


def _forget(store: Storage, lake: str, records: list[str]) -> None:
    """Remove a task's jobs, then its records, specs last: after a crash in between, the rest is still found."""
    orders = [path for path in records if path.endswith("-order.json")]
    for order in orders:
        _forget_job(store, lake, order)
    store.delete(*(path for path in records if path not in orders))
    store.delete(*orders)


def _forget_job(store: Storage, lake: str, order: str) -> None:
    submission = read_document(store, order, Submission)
    if submission is not None:
        store.delete(*(found.path for found in store.list(answers_folder(lake, submission.run_id))))
        store.delete(order_path(lake, submission.run_id))
