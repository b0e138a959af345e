"""A job on another machine: its JobSpec and results are stored in the lake, its run is on a platform.

The order of steps makes it safe to lose this process at any time: spec, attempt, submission, handle. The next process
finds the attempt, submits with its token and receives the same run.

Each attempt of a task is up to five small objects, put if absent and never changed: the submission before a platform
is asked, its handle after, `stop` when it was asked to stop, `timeout` when its task reached its time limit, `end` when
all of its results were taken. The number of the next attempt goes up only past an end, and it is part of the token that
the platform gets. Two workers that both own the task use the same number, and so the same run.
"""

from __future__ import annotations

import hashlib
import json
import logging
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property
from typing import Any, Literal

from airflow_gddl.contract import codes
from airflow_gddl.contract.actions import Keyed
from airflow_gddl.contract.codec import decode, plain, to_document, to_json
from airflow_gddl.contract.codes import (
    ATTEMPTS_DAMAGED,
    CONTRACT_VERSION,
    JOB_CANCELLED,
    REMOTE_RUN_CANCELLED,
    REMOTE_RUN_FAILED,
    REMOTE_RUN_LOST,
    RUN_TIMEOUT,
    SPEC_INVALID,
)
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import STATE, join, results_folder, spec_path
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.s3 import CODES
from airflow_gddl.contract.spec import JobSpec, TableSpec, TierSpec
from airflow_gddl.runners.child import Stopped, stoppable
from airflow_gddl.runners.interface import Handle, JobOutcome, Listener, Platform, RunRequest, RunStatus, WaitPolicy
from airflow_gddl.stores import Storage, StoredObject, read_document

Mark = Literal["stop", "timeout", "end"]
"""`stop`: the run is to be cancelled; `timeout`: its task has reached its time limit; `end`: its results were taken, so
that more work needs a new attempt."""
Part = Literal["submission", "handle", Mark]


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
        names = sorted(item.name for item in self._store.list(self._folder))
        parts = [name.removesuffix(".json").split("-") for name in names if name.endswith(".json")]
        numbers: dict[int, set[str]] = {}
        for number, part in (p for p in parts if len(p) == 2 and p[0].isdigit()):
            numbers.setdefault(int(number), set()).add(part)
        return [self._attempt(number, known) for number, known in sorted(numbers.items())]

    def begin(self, number: int, submission: Submission) -> Attempt:
        """Claim the attempt of that number; if another worker was first, return its attempt."""
        self._put(number, "submission", plain(submission))
        return self._attempt(number, {"submission"})

    def started(self, attempt: Attempt, handle: Handle) -> None:
        self._put(attempt.number, "handle", plain(handle))

    def mark(self, number: int, part: Mark) -> None:
        """Store what becomes of the attempt, before a run is cancelled: see `Mark`."""
        self._put(number, part, {})

    def submission(self, number: int) -> Submission:
        """The job of the attempt of that number."""
        return decode(Submission, self._read(number, "submission"))

    def _attempt(self, number: int, known: set[str]) -> Attempt:
        submission, key = self.submission(number), self.key
        digest = _digest(key.pipeline, key.run, key.task, *sorted(submission.tables), submission.run_id)
        return Attempt(
            number=number,
            submission=submission,
            token=f"gddl-{digest[:40]}-{number}",
            handle=decode(Handle, self._read(number, "handle")) if "handle" in known else None,
            stopped="stop" in known,
            timed_out="timeout" in known,
            ended="end" in known,
        )

    def _put(self, number: int, part: Part, content: Mapping[str, Any]) -> None:
        self._store.create(self._path(number, part), to_json(content).encode())

    def _read(self, number: int, part: Part) -> Any:
        path = self._path(number, part)
        try:
            return json.loads(self._store.read(path))
        except (FileNotFoundError, ValueError) as error:
            what = f"the record of a submission can't be read: {error}"
            raise FatalError(ATTEMPTS_DAMAGED, what, where=path, remedy=_REMEDY) from error

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
    for stored in store.list(folder):
        digest, slash, _ = stored.name.partition("/")
        if slash:
            tasks.setdefault(digest, []).append(stored)
    ages = {digest: max(item.modified for item in objects) for digest, objects in tasks.items()}
    old = sorted((digest for digest, age in ages.items() if age < before), key=lambda digest: ages[digest])
    return [sorted(item.path for item in tasks[digest]) for digest in old[:MOST]]


def _forget(store: Storage, lake: str, records: list[str]) -> None:
    """Remove a task's jobs, then its records, specs last: after a crash in between, the rest is still found."""
    submissions = [path for path in records if path.endswith("-submission.json")]
    for path in submissions:
        _forget_job(store, lake, path)
    store.delete(*(path for path in records if path not in submissions))
    store.delete(*submissions)


def _forget_job(store: Storage, lake: str, path: str) -> None:
    submission = read_document(store, path, Submission)
    if submission is not None:
        store.delete(*(item.path for item in store.list(results_folder(lake, submission.run_id))))
        store.delete(spec_path(lake, submission.run_id))


class ResultReader:
    """Results of one job; each is returned once, unless it was replaced.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    def __init__(self, store: Storage, lake: str, run_id: str) -> None:
        self._store, self._folder = store, results_folder(lake, run_id)
        self._seen: set[tuple[str, str]] = set()

    def new(self) -> Iterator[JobResult]:
        """Results written since the last poll; objects that are not a JobResult are skipped."""
        for item in sorted(self._store.list(self._folder), key=lambda item: item.name):
            if (item.name, item.etag) in self._seen or not item.name.endswith(".json"):
                continue
            self._seen.add((item.name, item.etag))
            result = read_document(self._store, item.path, JobResult)
            if result is not None:
                yield result


_OF_ORDERS = (CONTRACT_VERSION, SPEC_INVALID, *sorted(CODES))
_REFUSAL = re.compile(rf"\[({'|'.join(_OF_ORDERS)})\]")
"""Log line of a job that ends before its first table."""


def out_of_time(tier: str, limit: timedelta | None = None) -> ErrorInfo:
    """Of a table that was not done when its task reached its time limit.

    Args:
        limit: null: not named.
    """
    setting = f"run_timeout of the tier {tier}{f', {limit}' if limit else ''}"
    message = (
        "[RUN_TIMEOUT] the task reached its time limit before this table was done; nothing is lost, the next try "
        f"resumes where it stopped. Remedy: a load's limit is {setting}: raise it, or give the table another size"
    )
    return ErrorInfo(code=RUN_TIMEOUT, message=message)


def out_of_time_result(table: str, run_id: str, tier: str) -> JobResult:
    """The failure of a table whose run, or whose turn to have one, the time limit has ended."""
    return JobResult(table=table, status="failed", run_id=run_id, error=out_of_time(tier))


def unanswered(table: str, attempt: Attempt, run_status: RunStatus, handle: Handle) -> JobResult:
    """The failure of a table for which the run ended without a result."""
    if attempt.timed_out:
        return out_of_time_result(table, attempt.submission.run_id, attempt.submission.size)
    if run_status.state == "cancelled":
        code, what = REMOTE_RUN_CANCELLED, "the run was cancelled before this table was done"
    elif run_status.state == "lost":
        code, what = REMOTE_RUN_LOST, "the platform no longer knows the run"
    elif (refusal := _REFUSAL.search(run_status.message)) is not None:
        code, what = codes.of(refusal[1]), "the job ended before its first table; nothing was written"
    else:
        code, what = REMOTE_RUN_FAILED, f"the run {run_status.state} without a result for this table"
    said = f": {run_status.message}" if run_status.message else ""
    where = f". Its page: {handle.page}" if handle.page else ""
    info = ErrorInfo(code=code, message=f"{what}{said}{where}")
    return JobResult(table=table, status="failed", run_id=attempt.submission.run_id, error=info)


_GROWTH, _SPREAD = 1.5, 0.2


def cancel(platform: Platform, attempts: Attempts, run: WaitPolicy, why: Mark = "stop") -> None:
    """Stop a run permanently.

    Args:
        why: `stop`: the next try does not count its end as a failure of the tables; `timeout`: its end fails the tables
            without a result with `RUN_TIMEOUT`.

    Raises:
        GddlError: as `Platform` and `Attempts`.
    """
    attempts.mark(run.number, why)
    platform.cancel(run.handle)


def polled(platform: Platform, handle: Handle, *, restart: bool = True) -> RunStatus:
    """Status of a run; a run that failed because of the platform is restarted, and ends only if that is refused.

    Raises:
        GddlError: as `Platform`.
    """
    run_status = platform.poll(handle)
    if run_status.restartable and restart:
        try:
            platform.restart(handle)
        except FatalError:
            restart = False
    return replace(run_status, restartable=run_status.restartable and restart)


def pauses(first: float, chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Seconds between two polls, without end: from `first` to twelve times as many.

    Args:
        chance: returns random numbers from 0 to 1, so that many watchers do not poll at the same time.
    """
    pause = first
    while True:
        yield pause * (1 + _SPREAD * (2 * chance() - 1))
        pause = min(12 * first, pause * _GROWTH)


@dataclass(kw_only=True)
class RemoteRunner:
    """A `Runner` whose jobs are runs of a platform.

    Attributes:
        open: opens the platform; called when there is a job to run.
        attempts: attempts of the task.
        patient: wait for runs to end; otherwise the outcome's `waiting` names the active run, and a later call for the
            same tables resumes it.
        since: attempts after this number belong to this try of the task, their results too; null: those after the last
            one that ended.
        first_pause: seconds between the first two polls.
        sleep: takes seconds.
        now: seconds since the epoch.
        on_run: called with each run as soon as it is known, before it is waited for.
    """

    open: Callable[[], Platform]
    store: Storage
    attempts: Attempts
    patient: bool = True
    since: int | None = None
    first_pause: float = 5.0
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    on_run: Callable[[Handle], None] = lambda _handle: None
    _running: WaitPolicy | None = None

    @cached_property
    def platform(self) -> Platform:
        return self.open()

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `Runner.run`. Tables without a result fail with `REMOTE_RUN_FAILED`,
        `REMOTE_RUN_CANCELLED`, `REMOTE_RUN_LOST` or `RUN_TIMEOUT`, with the platform's message and the run's page.

        Of a continuous job, the outcome has each table's last turn. After a regular end, tables without a turn are
        omitted; after any other end, the exit status decides.

        Raises:
            GddlError: as `Platform` and `Attempts`; stored attempts are kept.
        """
        results: list[JobResult] = []
        page, died, waiting, stopped = "", False, None, None
        for part in _by_tier(spec):
            passage = _Passage(self, part, listener)
            waiting, stopped = self._go(passage)
            results += passage.results
            page, died = passage.page or page, died or passage.died
            if waiting is not None or stopped is not None:
                break
        failed = waiting is None and (died or any(result.status == "failed" for result in results))
        return JobOutcome(
            results=tuple(results),
            exit_status=int(failed) if stopped is None else 128 + stopped,
            cancelled_by=stopped,
            log=page or None,
            waiting=waiting,
        )

    def _go(self, passage: _Passage) -> tuple[WaitPolicy | None, int | None]:
        """Wait for the remaining run, and record the signal that stopped this process."""
        if not self.patient or threading.current_thread() is not threading.main_thread():
            return passage.go(), None
        try:
            with stoppable():
                return passage.go(), None
        except Stopped as stopped:
            passage.give_up(stopped.number)
            return None, stopped.number

    def settle(self) -> None:
        """Mark the results as taken: later requests need a new run.

        Once a day, old submissions are removed.
        """
        for attempt in self.attempts_of_try():
            if not attempt.ended:
                self.attempts.mark(attempt.number, "end")
        forget_old(self.store, self.attempts.lake, self.attempts.key.pipeline, self.now())

    def stop(self) -> None:
        """Cancel the run that this runner waits for, if there is one."""
        if self._running is not None:
            cancel(self.platform, self.attempts, self._running)

    def attempts_of_try(self) -> list[Attempt]:
        """Attempts of this try."""
        attempts = self.attempts.all()
        if self.since is None:
            self.since = max((attempt.number for attempt in attempts if attempt.ended), default=0)
            attempts = [self._stopped(attempt) if attempt.number > self.since else attempt for attempt in attempts]
        return [attempt for attempt in attempts if attempt.number > self.since]

    def _stopped(self, attempt: Attempt) -> Attempt:
        """A run whose time limit was that of an earlier try, lost since, fails no table of this one."""
        if not attempt.timed_out:
            return attempt
        self.attempts.mark(attempt.number, "stop")
        return replace(attempt, stopped=True)

    def submitted(self, attempt: Attempt, part: JobSpec) -> WaitPolicy:
        """The attempt's run; submitted unless its handle is known."""
        handle = attempt.handle
        if handle is None:
            submission = attempt.submission
            request = RunRequest(
                run_id=submission.run_id,
                spec=spec_path(part.roots.lake, submission.run_id),
                size=submission.size,
                tier=part.tiers.get(submission.size, TierSpec()),
                token=attempt.token,
            )
            handle = self.platform.submit(request)
            self.attempts.started(attempt, handle)
        self.on_run(handle)
        self._running = WaitPolicy(number=attempt.number, handle=handle)
        return self._running


@dataclass
class _Passage:
    """Runs the tables of one tier: first with existing submissions, then with a new run.

    Attributes:
        died: a run of a continuous job ended before its time limit and without a stop request.
        failed: results of the run so far; reported when it has ended.
    """

    runner: RemoteRunner
    spec: JobSpec
    listener: Listener
    results: list[JobResult] = field(default_factory=list)
    page: str = ""
    died: bool = False
    failed: dict[str, JobResult] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.unfinished: dict[str, TableSpec] = {table.table: table for table in self.spec.tables}

    def go(self) -> WaitPolicy | None:
        """Run until every table has a result; return the run to wait for if the runner is not patient."""
        followed = 0
        while True:
            attempts = self.runner.attempts_of_try()
            known = [attempt for attempt in attempts if attempt.number > followed]
            if not known and not self.unfinished:
                return None
            if not known and any(attempt.timed_out and not attempt.stopped for attempt in attempts):
                unfinished = list(self.unfinished.values())
                self._report(out_of_time_result(spec.table, self.spec.run_id, spec.size) for spec in unfinished)
                return None
            attempt = known[0] if known else self._begun(max(followed, self.runner.since or 0) + 1)
            waiting = self._follow(attempt)
            if waiting is not None:
                return waiting
            followed = attempt.number

    def give_up(self, number: int) -> None:
        """Report tables without a result as cancelled."""
        what = f"the run was stopped by {signal.Signals(number).name}; the next run resumes where it stopped"
        info = ErrorInfo(code=JOB_CANCELLED, message=what)
        for table in list(self.unfinished):
            self._report([JobResult(table=table, status="failed", run_id=self.spec.run_id, error=info)])

    def _begun(self, number: int) -> Attempt:
        tables = tuple(self.unfinished.values())
        # A unique name: two jobs of one task never share results.
        job = replace(self.spec, run_id=f"{self.spec.run_id}-{number}", tables=tables)
        path = spec_path(job.roots.lake, job.run_id)
        self.runner.store.create(path, to_document(job).encode())
        submission = Submission(run_id=job.run_id, size=tables[0].size, tables=tuple(self.unfinished))
        return self.runner.attempts.begin(number, submission)

    def _follow(self, attempt: Attempt) -> WaitPolicy | None:
        run = self.runner.submitted(attempt, self.spec)
        self.page = run.handle.page
        results = ResultReader(self.runner.store, self.spec.roots.lake, attempt.submission.run_id)
        self.failed = {}
        run_status = self._watch(run, attempt, results)
        if not run_status.has_ended:
            return run
        given = self.failed | {result.table: result for result in results.new()}
        if isinstance(self.spec.options.action, Keyed):
            # No longer needed once the stop request is removed.
            self.runner.store.delete(spec_path(self.spec.roots.lake, attempt.submission.run_id))
        # A stopped run fails no table: another run loads the remaining tables.
        self._report(result for result in given.values() if result.status != "failed" or not attempt.stopped)
        is_continuous = self.spec.options.continuous is not None
        if not attempt.stopped and not (is_continuous and run_status.state == "succeeded"):
            names = [table for table in attempt.submission.tables if table in self.unfinished]
            self._report(unanswered(table, attempt, run_status, run.handle) for table in names)
            self.died = is_continuous
        if is_continuous:
            self.unfinished.clear()  # it has ended: the next run or try starts a new job with all tables
        return None

    def _watch(self, run: WaitPolicy, attempt: Attempt, results: ResultReader) -> RunStatus:
        """Final status of the run, or its status when the caller waits instead."""
        platform = self.runner.platform
        to_end = attempt.stopped or attempt.timed_out
        if to_end:
            self._cancel(run, attempt)
        for pause in pauses(self.runner.first_pause):
            run_status = polled(platform, run.handle, restart=not to_end)
            if run_status.has_ended or not self.runner.patient:
                return run_status
            new = {result.table: result for result in results.new()}
            # A table that failed may yet succeed: where the platform starts the run again.
            self.failed = {table: result for table, result in (self.failed | new).items() if result.status == "failed"}
            self._report(result for result in new.values() if result.status != "failed")
            self._rest(pause)
        raise AssertionError("pauses have no end")

    def _cancel(self, run: WaitPolicy, attempt: Attempt) -> None:
        try:
            self.runner.platform.cancel(run.handle)
        except FatalError as error:
            if attempt.stopped:
                raise
            _LOG.warning("run %s could not be cancelled, and is waited for: %s", run.handle.run, error)

    def _rest(self, pause: float) -> None:
        try:
            self.runner.sleep(pause)
        except BaseException:
            # A process that stops waiting on request also stops the run, since no other process collects its results.
            self.runner.stop()
            raise

    def _report(self, results: Iterable[JobResult]) -> None:
        for result in results:
            if self.unfinished.pop(result.table, None) is not None:
                self.results.append(result)
                self.listener.on_result(result)


def _by_tier(spec: JobSpec) -> Iterator[JobSpec]:
    """Machines are sized for one tier, so each tier has its own run."""
    sizes: dict[str, list[TableSpec]] = {}
    for table in spec.tables:
        sizes.setdefault(table.size, []).append(table)
    for tables in sizes.values():
        yield replace(spec, tables=tuple(tables))
