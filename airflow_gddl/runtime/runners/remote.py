"""A job on another machine: its order through the lake, its results out of the lake, its run on a platform.

The order of steps is what makes it safe to lose this process at any instant: spec, attempt, submission, handle. Who
comes next finds the attempt, asks with its token and is given the same run.
"""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import order_path
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.s3_errors import CODES
from airflow_gddl.contract.spec import JobSpec, TableSpec, TierSpec
from airflow_gddl.runtime.runners.attempts import Attempt, Attempts, Submission, last_ended
from airflow_gddl.runtime.runners.base import JobOutcome, Listener, WaitPolicy
from airflow_gddl.runtime.runners.expiry import Forgetting
from airflow_gddl.runtime.runners.pace import PollInterval
from airflow_gddl.runtime.runners.platform import Handle, Platform, RunRequest, RunStatus
from airflow_gddl.runtime.runners.results import ResultReader
from airflow_gddl.runtime.runners.stopping import Stopped, stoppable
from airflow_gddl.stores import Storage

_OF_ORDERS = ("CONTRACT_VERSION", "SPEC_INVALID", "SPEC_UNREADABLE", *sorted(CODES))
_REFUSAL = re.compile(rf"\[({'|'.join(_OF_ORDERS)})\]")
"""What a job says that ends before its first table."""


@dataclass(kw_only=True)
class RemoteRunner:
    """A `Runner` whose jobs are runs of a platform.

    Attributes:
        open: the platform; asked when there is something to run.
        attempts: of the task that this runner works for.
        patient: wait for runs to end; else an outcome whose `waiting` is set tells that one goes on, and a later call
            for the same tables takes it up.
        since: attempts after this number belong to this try of the task, their results too; null: those after the last
            one that ended.
        sleep: takes seconds.
        now: seconds since the epoch.
    """

    open: Callable[[], Platform]
    store: Storage
    attempts: Attempts
    patient: bool = True
    since: int | None = None
    pace: PollInterval = field(default_factory=PollInterval)
    sleep: Callable[[float], None] = time.sleep
    now: Callable[[], float] = time.time
    _running: WaitPolicy | None = None

    @cached_property
    def platform(self) -> Platform:
        return self.open()

    def run(self, spec: JobSpec, listener: Listener) -> JobOutcome:
        """See `Runner.run`. Tables that a run left without a result fail with `REMOTE_RUN_FAILED`,
        `REMOTE_RUN_CANCELLED` or `REMOTE_RUN_LOST`, with the platform's words and the run's page.

        Of a continuous job, the outcome has each table's last turn. Tables without one are none where it ended as it
        should; where it did not, the exit status tells, whatever the tables' turns were.

        Raises:
            GddlError: as `Platform` and `Attempts`; nothing is forgotten by it.
        """
        results: list[JobResult] = []
        page, died = "", False
        for part in _by_tier(spec):
            passage = _Passage(self, part, listener)
            waiting, stopped = self._go(passage)
            results += passage.results
            page, died = passage.page or page, died or passage.died
            if waiting is not None or stopped is not None:
                status = 0 if stopped is None else 128 + stopped
                return JobOutcome(
                    results=tuple(results), exit_status=status, cancelled_by=stopped, log=page or None, waiting=waiting
                )
        failed = died or any(result.status == "failed" for result in results)
        return JobOutcome(results=tuple(results), exit_status=int(failed), log=page or None)

    def _go(self, passage: _Passage) -> tuple[WaitPolicy | None, int | None]:
        """What is left to wait for, and the signal that told this process to stop."""
        if not self.patient or threading.current_thread() is not threading.main_thread():
            return passage.go(), None
        try:
            with stoppable():
                return passage.go(), None
        except Stopped as stopped:
            passage.give_up(stopped.number)
            return None, stopped.number

    def settle(self) -> None:
        """The results were taken for good: what is asked from now on needs a new run.

        Once a day what was submitted long ago is forgotten.
        """
        for attempt in self.own():
            if not attempt.ended:
                self.attempts.end(attempt)
        attempts = self.attempts
        forgetting = Forgetting(store=self.store, lake=attempts.lake, pipeline=attempts.key.pipeline, now=self.now())
        forgetting.once_a_day()

    def stop(self) -> None:
        """Cancel the run that this runner waits for, if there is one."""
        if self._running is not None:
            cancel(self.platform, self.attempts, self._running)

    def run_id(self, number: int) -> str:
        """Of the job that this attempt runs.

        Raises:
            GddlError: as `Attempts`.
        """
        return next(attempt.submission.run_id for attempt in self.attempts.all() if attempt.number == number)

    def own(self) -> list[Attempt]:
        """Attempts of this try."""
        attempts = self.attempts.all()
        if self.since is None:
            self.since = last_ended(attempts)
        return [attempt for attempt in attempts if attempt.number > self.since]

    def submitted(self, attempt: Attempt, part: JobSpec) -> WaitPolicy:
        """The attempt's run; started now unless that is known to have happened."""
        handle = attempt.handle
        if handle is None:
            submission = attempt.submission
            order = RunRequest(
                run_id=submission.run_id,
                spec=order_path(part.roots.lake, submission.run_id),
                size=submission.size,
                tier=part.tiers.get(submission.size, TierSpec()),
                token=attempt.token,
            )
            handle = self.platform.submit(order)
            self.attempts.started(attempt, handle)
        self._running = WaitPolicy(number=attempt.number, handle=handle)
        return self._running


def cancel(platform: Platform, attempts: Attempts, run: WaitPolicy) -> None:
    """Stop a run for good: the next try does not take its end for a failure of the tables.

    Raises:
        GddlError: as `Platform` and `Attempts`.
    """
    attempts.stop(run.number)
    platform.cancel(run.handle)


def polled(platform: Platform, handle: Handle, *, restart: bool = True) -> RunStatus:
    """How a run stands; one that the platform broke is started again, and has ended only where that is refused.

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


@dataclass
class _Passage:
    """The tables of one tier: through what was submitted for them before, then through a run of their own.

    Attributes:
        died: a run of a continuous job ended though neither its time was over nor it was told to.
    """

    runner: RemoteRunner
    spec: JobSpec
    listener: Listener
    results: list[JobResult] = field(default_factory=list)
    page: str = ""
    died: bool = False

    def __post_init__(self) -> None:
        self.left: dict[str, TableSpec] = {table.table: table for table in self.spec.tables}

    def go(self) -> WaitPolicy | None:
        """Until every table has a result; a run to wait for, where the runner does not wait itself."""
        followed = 0
        while True:
            known = [attempt for attempt in self.runner.own() if attempt.number > followed]
            if not known and not self.left:
                return None
            attempt = known[0] if known else self._begun(max(followed, self.runner.since or 0) + 1)
            waiting = self._follow(attempt)
            if waiting is not None:
                return waiting
            followed = attempt.number

    def give_up(self, number: int) -> None:
        """The run was cancelled: what it did not answer for is told as such."""
        what = f"the run was stopped by {signal.Signals(number).name}; the next run resumes where it stopped"
        info = ErrorInfo(code="JOB_CANCELLED", message=what)
        for table in list(self.left):
            self._report([JobResult(table=table, status="failed", run_id=self.spec.run_id, error=info)])

    def _begun(self, number: int) -> Attempt:
        tables = tuple(self.left.values())
        # A name of its own: two jobs of one task never share answers.
        job = replace(self.spec, run_id=f"{self.spec.run_id}-{number}", tables=tables)
        path = order_path(job.roots.lake, job.run_id)
        self.runner.store.create(path, to_json(job).encode())
        submission = Submission(run_id=job.run_id, size=tables[0].size, tables=tuple(self.left))
        return self.runner.attempts.begin(number, submission)

    def _follow(self, attempt: Attempt) -> WaitPolicy | None:
        run = self.runner.submitted(attempt, self.spec)
        self.page = run.handle.page
        answers = ResultReader(self.runner.store, self.spec.roots.lake, attempt.submission.run_id)
        run_status = self._watch(run, attempt, answers)
        if not run_status.has_ended:
            return run
        given = {result.table: result for result in answers.new()}
        if self.spec.options.key:
            # It has done its duty, and names what is to be forgotten.
            self.runner.store.delete(order_path(self.spec.roots.lake, attempt.submission.run_id))
        # A run that was asked to stop failed nobody: what it left over, another run takes.
        self._report(result for result in given.values() if result.status != "failed" or not attempt.stopped)
        is_continuous = self.spec.options.continuous is not None
        if not attempt.stopped and not (is_continuous and run_status.state == "succeeded"):
            names = [table for table in attempt.submission.tables if table in self.left]
            self._report(_unanswered(table, attempt, run_status, run.handle) for table in names)
            self.died = is_continuous
        if is_continuous:
            self.left.clear()  # it has ended: the next run of its DAG, or the next try, begins another one with all
        return None

    def _watch(self, run: WaitPolicy, attempt: Attempt, answers: ResultReader) -> RunStatus:
        """How the run stands at its end, or when it is left to others to wait."""
        platform = self.runner.platform
        if attempt.stopped:
            platform.cancel(run.handle)
        for pause in self.runner.pace.pauses():
            run_status = polled(platform, run.handle, restart=not attempt.stopped)
            if run_status.has_ended or not self.runner.patient:
                return run_status
            self._report(result for result in answers.new() if result.status != "failed")
            self._rest(pause)
        raise AssertionError("pauses have no end")

    def _rest(self, pause: float) -> None:
        try:
            self.runner.sleep(pause)
        except BaseException:
            # Whoever is asked to stop waiting stops the run: nobody is left to hear of it.
            self.runner.stop()
            raise

    def _report(self, results: Iterable[JobResult]) -> None:
        for result in results:
            if self.left.pop(result.table, None) is not None:
                self.results.append(result)
                self.listener.on_result(result)


def _by_tier(spec: JobSpec) -> Iterator[JobSpec]:
    """A platform's machines are made for one tier, so that each has its own run."""
    sizes: dict[str, list[TableSpec]] = {}
    for table in spec.tables:
        sizes.setdefault(table.size, []).append(table)
    for tables in sizes.values():
        yield replace(spec, tables=tuple(tables))


def _unanswered(table: str, attempt: Attempt, run_status: RunStatus, handle: Handle) -> JobResult:
    if run_status.state == "cancelled":
        code, what = "REMOTE_RUN_CANCELLED", "the run was cancelled before this table was done"
    elif run_status.state == "lost":
        code, what = "REMOTE_RUN_LOST", "the platform does not know the run any more"
    elif (refusal := _REFUSAL.search(run_status.message)) is not None:
        code, what = refusal[1], "the job refused its order; nothing was written"
    else:
        code, what = "REMOTE_RUN_FAILED", f"the run {run_status.state} without a result for this table"
    said = f": {run_status.message}" if run_status.message else ""
    where = f". Its page: {handle.page}" if handle.page else ""
    info = ErrorInfo(code=code, message=f"{what}{said}{where}")
    return JobResult(table=table, status="failed", run_id=attempt.submission.run_id, error=info)
