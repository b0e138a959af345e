"""The continuous job: discovers files, runs their tables, reports results, until it is asked to stop."""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_gddl.contract import codec
from airflow_gddl.contract.desired_state import DESIRED, DesiredState, stop_name
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.source_access import announce
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.continuous.executor import ExecutorPools
from spark_jobs.continuous.schedule import BATCHES_A_TURN, Schedule
from spark_jobs.continuous.streams import FileStream, open_streams
from spark_jobs.job.job_tables import Show, unreachable
from spark_jobs.job.run_results import RegistrationQueue
from spark_jobs.job.stop import Stop
from spark_jobs.job.table_job import not_started
from spark_jobs.table.runtime import Runtime, TableOutcome, is_busy

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
        folder = self.job.options.continuous.folder if self.job.options.continuous is not None else ""
        if not folder or self.now() < self._next:
            return False
        self._next = self.now() + POLL_SECONDS
        try:
            found = {item.name: item for item in self.storage.list(folder)}
            if stop_name(self.job.run_id) in found:
                self.stop.ask("the word to stop")
            if DESIRED not in found or found[DESIRED].etag == self._read:
                return False
            wanted = codec.from_json(DesiredState, self.storage.read(found[DESIRED].path).decode())
        except (GddlError, FileNotFoundError, UnicodeDecodeError) as error:
            _LOG.warning("the desired state can't be read, the previous one stays valid: %s", error)
            return False
        self._read = found[DESIRED].etag
        before, self.job = (
            self.job,
            replace(self.job, tables=wanted.tables, tiers=wanted.tiers, catalogs=wanted.catalogs, access=wanted.access),
        )
        return before != self.job


_LONGEST_WAIT = 1.0
_BUSY_WAIT = 0.1
_LAST_SECONDS = 120.0
"""For tables at work when the job fails; it is started again only after its end."""

OpenStreams = Callable[[JobSpec, Runtime, Callable[[], None]], FileStream]
OpenExecutors = Callable[[JobSpec, Runtime, Callable[[], None]], ExecutorPools]


def run_continuously(job: JobSpec, runtime: Runtime, show: Show, stop: Stop) -> list[TableOutcome]:
    """Keep the job's tables up to date, and tables added to it, until it is asked to stop or its time is over.

    `show` gets the result of every turn once it is durable; an idle turn is `skipped`. The returned outcomes
    are the newest of each table; a turn on a busy table has none.

    Raises:
        GddlError: the file stream failed for good, or Spark was lost and can't be started here; no data is lost.
    """
    faults = unreachable(job, runtime.storage)
    if faults and len(faults) == len(job.tables):
        outcomes = [not_started(job, spec, faults[spec.table]) for spec in job.tables]
        for outcome in outcomes:
            show(outcome.result)
        return outcomes
    return Loop(job, runtime, show, stop).run()


def turns_of(job: JobSpec) -> JobSpec:
    """The job with options of a turn: few batches, so that a backlog does not delay a stop or other tables."""
    limit = job.options.max_batches
    most = BATCHES_A_TURN if limit is None else min(limit, BATCHES_A_TURN)
    return replace(job, options=replace(job.options, max_batches=most))


@dataclass
class Loop:
    """One run of `run_continuously`.

    Attributes:
        now: seconds, monotonic.
        streams: opens the stream of files.
        open_executors: returns the executors.
    """

    job: JobSpec
    runtime: Runtime
    show: Show
    stop: Stop
    now: Callable[[], float] = time.monotonic
    streams: OpenStreams = open_streams
    open_executors: OpenExecutors = ExecutorPools
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)
    _specs: dict[str, TableSpec] = field(default_factory=dict)
    _registered: queue.SimpleQueue[TableOutcome] = field(default_factory=queue.SimpleQueue)

    def run(self) -> list[TableOutcome]:
        self.job = turns_of(self.job)
        desired = DesiredStateReader(self.job, self.runtime.storage, self.stop, self.now)
        ends = self._ends()
        self.stream = self.streams(self.job, self.runtime, self.stop.wake)
        self.executor_pools = self.open_executors(self.job, self.runtime, self.stop.wake)
        self.registrations = RegistrationQueue(self.runtime, self.job.roots.lake)
        try:
            self._follow()
            while not self.stop.is_asked:
                if desired.poll():
                    self._changed(desired.job)
                self._receive_news()
                self.executor_pools.start(self.schedule.begin(self.now()))
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
            self.executor_pools.close()
            self.registrations.close()
            self._publish()
        return list(self.outcomes.values())

    def _finish(self, within: float = float("inf")) -> None:
        """Wait at most so many seconds for results of the tables at work: their batches are committed in any case."""
        until = self.now() + within
        self.executor_pools.drop()
        while self.executor_pools.is_busy and self.now() < until:
            self._wait(_BUSY_WAIT)
            self._collect()

    def _receive_news(self) -> None:
        """
        Raises:
            GddlError: without its Spark, or its stream, the job can't continue.
        """
        if (fault := self.runtime.spark.end) is not None:
            raise fault
        self.schedule.news(self.stream.news())
        self.stop.listen_again()  # a stream that ended may have started another Spark

    def _ends(self) -> float:
        continuous = self.job.options.continuous
        seconds = continuous.seconds if continuous is not None else None
        return float("inf") if seconds is None else self.now() + seconds

    def _follow(self) -> None:
        self._specs |= {spec.table: spec for spec in self.job.tables}
        self.schedule.keep(self.job.tables, self.now())
        self.stream.follow(self.job.tables)
        self.stop.listen_again()
        self.outcomes = {name: found for name, found in self.outcomes.items() if self.schedule.keeps(name)}

    def _changed(self, job: JobSpec) -> None:
        """Switch to changed rows or tiers; running tables continue and delay no others."""
        before, self.job = self.job, job
        announce(job.access, os.environ)
        if (before.tiers, before.access) != (job.tiers, job.access):
            self.stream.close()
            self.stream = self.streams(job, self.runtime, self.stop.wake)
        self.schedule.undo(self.executor_pools.fit(job))
        self._follow()
        if not job.tables:
            self.stop.ask("no table is left")

    def _wait_for_event(self, ends: float) -> None:
        """Wait for the next event."""
        poll_seconds = [spec.look_seconds for spec in self.job.tables]
        due = min(self.schedule.next_due(), ends) - self.now()
        most = min([_LONGEST_WAIT, *(seconds / 10 for seconds in poll_seconds)])
        self._wait(max(0.0, min(due, most)))

    def _wait(self, seconds: float) -> None:
        """0 where `_collect` waits."""
        self.stop.wait(0.0 if self.executor_pools.waits else seconds)

    def _collect(self) -> None:
        for outcome in self.executor_pools.finished(_BUSY_WAIT):
            result = outcome.result
            self.stream.taken(result.table)
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
            if self.schedule.keeps(outcome.result.table):
                self.outcomes[outcome.result.table] = outcome
