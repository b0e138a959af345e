"""The continuous job: discovers files, runs their tables, reports results, until it is asked to stop.

Threads run several tables at once, each by the same batch code as in other jobs.
"""

from __future__ import annotations

import logging
import os
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_gddl.contract import codec
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import DESIRED, stop_name
from airflow_gddl.contract.source_access import announce
from airflow_gddl.contract.spec import DesiredState, JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Runtime
from spark_jobs.batch.totals import Declined, TableOutcome, TaskOutcome, is_busy
from spark_jobs.continuous.schedule import BATCHES_A_TURN, Schedule
from spark_jobs.continuous.streams import Streams
from spark_jobs.job.job_faults import translated
from spark_jobs.job.job_tables import Show, by_tasks, threads_of, unreachable
from spark_jobs.job.run_results import RegistrationQueue
from spark_jobs.job.stop import Stop
from spark_jobs.job.table_job import not_started, on_spark, run_guarded

_SPREAD_AT_ONCE = 8
_Run = Callable[[], TaskOutcome]


class TableThreads:
    """Runs tables in threads: those in one task each, and the others, which share a Spark as those of any job do.

    Only the caller's thread changes what is here; the others hand over outcomes.

    Args:
        wake: called, from any thread, when a table is done.
    """

    def __init__(self, job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> None:
        self._job, self._runtime, self._wake, self._running = job, runtime, wake, 0
        self._waiting = deque[tuple[TableSpec, _Run]](), deque[tuple[TableSpec, _Run]]()
        self._done: queue.SimpleQueue[tuple[set[str], TaskOutcome]] = queue.SimpleQueue()
        self._open()

    def fit(self, job: JobSpec) -> list[str]:
        """Switch to this job; returns tables that have to be started again.

        Where it has other threads, tables at work finish in parallel with the new ones.
        """
        before, self._job = self._job, job
        if _shape(before) == _shape(job):
            return []
        self._open()
        return self.drop()

    @property
    def is_busy(self) -> bool:
        return bool(self._running or any(self._waiting))

    def start(self, specs: Sequence[TableSpec]) -> None:
        """Start these tables; none of them is running."""
        light, heavy = by_tasks(self._job, specs)
        self._waiting[0].extend((spec, partial(self._run_light, self._job, spec)) for spec in light)
        self._waiting[1].extend((spec, partial(run_guarded, self._job, spec, self._runtime)) for spec in heavy)
        self._begin()

    def finished(self) -> list[TableOutcome]:
        """Outcomes of finished tables; those that one task declines are passed on and not returned."""
        outcomes = []
        while not self._done.empty():
            own, outcome = self._done.get()
            own.remove(outcome.table)
            self._running -= 1
            if isinstance(outcome, Declined):
                self._waiting[1].append((outcome.spec, partial(on_spark, self._job, outcome, self._runtime)))
            else:
                outcomes.append(outcome)
        self._begin()
        return outcomes

    def drop(self) -> list[str]:
        """Drop tables that have not started; returns them."""
        tables = [spec.table for waiting in self._waiting for spec, _ in waiting]
        for waiting in self._waiting:
            waiting.clear()
        return tables

    def _open(self) -> None:
        light, heavy = (threads_of(self._job, specs) for specs in by_tasks(self._job, self._job.tables))
        self._most = light if self._runtime.spread is None else _SPREAD_AT_ONCE, heavy
        self._own: tuple[set[str], set[str]] = set(), set()

    def _begin(self) -> None:
        for waiting, own, most in zip(self._waiting, self._own, self._most, strict=True):
            while waiting and len(own) < most:
                spec, run = waiting.popleft()
                own.add(spec.table)
                self._running += 1
                self._begin_one(own, spec, run)

    def _begin_one(self, own: set[str], spec: TableSpec, run: _Run) -> None:
        threading.Thread(target=self._one, args=(own, spec, run), name="table").start()

    def _one(self, own: set[str], spec: TableSpec, run: _Run) -> None:
        try:
            outcome = run()
        except Exception as error:  # noqa: BLE001 - a table without an outcome would never be run again
            outcome = not_started(self._job, spec, translated(error))
        self._done.put((own, outcome))
        self._wake()

    def _run_light(self, job: JobSpec, spec: TableSpec) -> TaskOutcome:
        if (spread := self._runtime.spread) is None:
            return run_guarded(job, spec, self._runtime)
        (outcome,) = list(spread.run(replace(job, tables=()), [spec]))  # runs the generator's clean-up
        return outcome


def _shape(job: JobSpec) -> tuple[object, ...]:
    """Settings that threads depend on: tiers, credentials, sizes in use, and the number of tables at once."""
    light, heavy = by_tasks(job, job.tables)
    return job.tiers, job.access, frozenset(spec.size for spec in light), threads_of(job, light), threads_of(job, heavy)


POLL_SECONDS = 5.0
_LOG = logging.getLogger(__name__)


@dataclass
class DesiredStateReader:
    """The job's current spec. A folder that can't be read changes nothing: the last state stays valid.

    Attributes:
        now: seconds, monotonic.
    """

    job: JobSpec
    storage: Storage
    stop: Stop
    now: Callable[[], float]
    _read: str | None = None
    _next: float = field(default=float("-inf"))

    def poll(self) -> bool:
        """Whether the job's tables or tiers have changed; read every few seconds, with requests to stop."""
        continuous = self.job.options.continuous
        if continuous is None or not continuous.folder or self.now() < self._next:
            return False
        self._next = self.now() + POLL_SECONDS
        try:
            files = {item.name: item for item in self.storage.list(continuous.folder)}
            if stop_name(self.job.run_id) in files:
                self.stop.ask("the word to stop")
            if DESIRED not in files or files[DESIRED].etag == self._read:
                return False
            wanted = codec.from_json(DesiredState, self.storage.read(files[DESIRED].path).decode())
        except (GddlError, FileNotFoundError, UnicodeDecodeError) as error:
            _LOG.warning("the desired state can't be read, the previous one stays valid: %s", error)
            return False
        self._read = files[DESIRED].etag
        before, self.job = (
            self.job,
            replace(self.job, tables=wanted.tables, tiers=wanted.tiers, catalogs=wanted.catalogs, access=wanted.access),
        )
        return before != self.job


_LONGEST_WAIT = 1.0
_BUSY_WAIT = 0.1
_LAST_SECONDS = 120.0
"""For tables at work when the job fails; it is started again only after its end."""

OpenStreams = Callable[[JobSpec, Runtime, Callable[[], None]], Streams]
OpenThreads = Callable[[JobSpec, Runtime, Callable[[], None]], TableThreads]


def run_continuously(job: JobSpec, runtime: Runtime, show: Show, stop: Stop) -> list[TableOutcome]:
    """Keep the job's tables up to date, and tables added to it, until it is asked to stop or its time is over.

    `show` gets the result of every turn once it is durable; an idle turn is `skipped`. The returned outcomes
    are the newest of each table; a turn on a busy table has none.

    Raises:
        GddlError: Spark was lost and can't be started here; no data is lost.
    """
    faults = unreachable(job, runtime.storage)
    if faults and len(faults) == len(job.tables):
        outcomes = [not_started(job, spec, faults[spec.table]) for spec in job.tables]
        for outcome in outcomes:
            show(outcome.result)
        return outcomes
    return Loop(job, runtime, show, stop).run()


@dataclass
class Loop:
    """One run of `run_continuously`.

    Attributes:
        now: seconds, monotonic.
        streams: opens what tells which tables have news.
        open_threads: gives what runs tables.
    """

    job: JobSpec
    runtime: Runtime
    show: Show
    stop: Stop
    now: Callable[[], float] = time.monotonic
    streams: OpenStreams = Streams
    open_threads: OpenThreads = TableThreads
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    _specs: dict[str, TableSpec] = field(default_factory=dict)
    _registered: queue.SimpleQueue[TableOutcome] = field(default_factory=queue.SimpleQueue)

    def run(self) -> list[TableOutcome]:
        limit, continuous = self.job.options.max_batches, self.job.options.continuous
        # A turn has few batches, so that a backlog does not delay a stop or other tables.
        most = BATCHES_A_TURN if limit is None else min(limit, BATCHES_A_TURN)
        self.job = replace(self.job, options=replace(self.job.options, max_batches=most))
        desired = DesiredStateReader(self.job, self.runtime.storage, self.stop, self.now)
        lasts = None if continuous is None else continuous.seconds
        ends = float("inf") if lasts is None else self.now() + lasts
        self.stream = self.streams(self.job, self.runtime, self.stop.wake)
        self.threads = self.open_threads(self.job, self.runtime, self.stop.wake)
        self.registrations = RegistrationQueue(self.runtime, self.job.roots.lake)
        try:
            self._follow()
            while not self.stop.is_asked:
                if desired.poll():
                    self._changed(desired.job)
                if (fault := self.runtime.spark.end) is not None:  # without its Spark the job can't continue
                    raise fault
                self.schedule.news(self.stream.news())
                self.threads.start(self.schedule.begin(self.now()))
                self._wait_for_event(ends)
                self._collect()
                if self.now() >= ends:
                    self.stop.ask("its time is over")
            self._finish()
        except GddlError:
            self._finish(_LAST_SECONDS)
            raise
        finally:
            self.stream.close()
            self.threads.drop()
            self.registrations.close()
            self._publish()
        return list(self.outcomes.values())

    def _finish(self, within: float = float("inf")) -> None:
        """Wait at most so many seconds for results of the tables at work: their batches are committed in any case."""
        until = self.now() + within
        self.threads.drop()
        while self.threads.is_busy and self.now() < until:
            self.stop.wait(_BUSY_WAIT)
            self._collect()

    def _follow(self) -> None:
        self._specs |= {spec.table: spec for spec in self.job.tables}
        self.schedule.keep(self.job.tables, self.now())
        self.stream.follow(self.job.tables)
        self.outcomes = {name: outcome for name, outcome in self.outcomes.items() if self.schedule.keeps(name)}

    def _changed(self, job: JobSpec) -> None:
        """Switch to changed rows or tiers; running tables continue and delay no others."""
        before, self.job = self.job, job
        announce(job.access, os.environ)
        if (before.tiers, before.access) != (job.tiers, job.access):
            self.stream.close()
            self.stream = self.streams(job, self.runtime, self.stop.wake)
        self.schedule.undo(self.threads.fit(job))
        self._follow()
        if not job.tables:
            self.stop.ask("no table is left")

    def _wait_for_event(self, ends: float) -> None:
        """Wait for the next event."""
        poll_seconds = [spec.look_seconds for spec in self.job.tables]
        due = min(self.schedule.next_due(), ends) - self.now()
        most = min([_LONGEST_WAIT, *(seconds / 10 for seconds in poll_seconds)])
        self.stop.wait(max(0.0, min(due, most)))

    def _collect(self) -> None:
        for outcome in self.threads.finished():
            result = outcome.result
            self.schedule.done(result, self.now())
            spec = self._specs.get(result.table)
            if not is_busy(result) and spec is not None:
                self.registrations.submit(self.job, spec, outcome, self._registered.put)
        self._publish()

    def _publish(self) -> None:
        """Results whose tables have been registered."""
        while not self._registered.empty():
            outcome = self._registered.get()
            self.show(outcome.result)
            if self.schedule.keeps(outcome.table):
                self.outcomes[outcome.table] = outcome
