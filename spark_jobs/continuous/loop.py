"""The continuous job: hear of files, run their tables, tell; until it is asked to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.spec import JobSpec
from spark_jobs.continuous.desired_state import DesiredStateReader, Stop
from spark_jobs.continuous.executor_pools import ExecutorPools
from spark_jobs.continuous.schedule import BATCHES_A_TURN, Schedule
from spark_jobs.continuous.streams import FileStream, open_streams
from spark_jobs.job.table_job import not_begun
from spark_jobs.job.tables import Show, unreachable
from spark_jobs.table.outcome import TableOutcome, is_busy
from spark_jobs.table.runtime import Runtime

_LONGEST_WAIT = 1.0
_BUSY_WAIT = 0.1

OpenStreams = Callable[[JobSpec, Runtime, Callable[[], None]], FileStream]
OpenCrew = Callable[[JobSpec, Runtime, Callable[[], None]], ExecutorPools]


def run_continuously(job: JobSpec, runtime: Runtime, show: Show, stop: Stop) -> list[TableOutcome]:
    """Keep the job's tables, and those that are added to it, until asked to stop or its time is over.

    `show` gets the result of every turn once it is durable, of one that found nothing to do as skipped. The outcomes
    are each table's newest; that another run held a table is none.

    Raises:
        GddlError: the stream of files is broken, or Spark is gone and can't be started here; nothing is lost by it.
    """
    fault = unreachable(job.roots, runtime.storage)
    if fault is not None:
        outcomes = [not_begun(job, spec, fault) for spec in job.tables]
        for outcome in outcomes:
            show(outcome.result)
        return outcomes
    return Loop(job, runtime, show, stop).run()


def turns_of(job: JobSpec) -> JobSpec:
    """The job with what every turn of a table is asked: few batches, so that no backlog holds up a stop, or others."""
    limit = job.options.max_batches
    most = BATCHES_A_TURN if limit is None else min(limit, BATCHES_A_TURN)
    return replace(job, options=replace(job.options, max_batches=most))


@dataclass
class Loop:
    """One run of `run_continuously`.

    Attributes:
        now: seconds, monotonic.
        streams: opens the stream of files.
        crew_of: gives who runs tables.
    """

    job: JobSpec
    runtime: Runtime
    show: Show
    stop: Stop
    now: Callable[[], float] = time.monotonic
    streams: OpenStreams = open_streams
    crew_of: OpenCrew = ExecutorPools
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    schedule: Schedule = field(default_factory=Schedule)

    def run(self) -> list[TableOutcome]:
        self.job = turns_of(self.job)
        orders = DesiredStateReader(self.job, self.runtime.storage, self.stop, self.now)
        ends = self._ends()
        self.stream = self.streams(self.job, self.runtime, self.stop.wake)
        self.executor_pools = self.crew_of(self.job, self.runtime, self.stop.wake)
        try:
            self._follow()
            while not self.stop.is_asked:
                if orders.look():
                    self._changed(orders.job)
                self._hear()
                self.executor_pools.start(self.schedule.begin(self.now()))
                self._rest(ends)
                self._collect()
                if self.now() >= ends:
                    self.stop.ask("its time is over")
            self.executor_pools.drop()
            while self.executor_pools.is_busy:
                self._wait(_BUSY_WAIT)
                self._collect()
        finally:
            self.stream.close()
            self.executor_pools.close()
        return list(self.outcomes.values())

    def _hear(self) -> None:
        """
        Raises:
            GddlError: without its Spark, or its stream, the job can't go on.
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
        self.schedule.keep(self.job.tables, self.now())
        self.stream.follow(self.job.tables)
        self.stop.listen_again()
        self.outcomes = {name: found for name, found in self.outcomes.items() if self.schedule.keeps(name)}

    def _changed(self, job: JobSpec) -> None:
        """Other rows, or other meanings of sizes; what was begun goes on, and holds nobody up."""
        before, self.job = self.job, job
        if before.tiers != job.tiers:
            self.stream.close()
            self.stream = self.streams(job, self.runtime, self.stop.wake)
        self.schedule.undo(self.executor_pools.fit(job))
        self._follow()
        if not job.tables:
            self.stop.ask("no table is left")

    def _rest(self, ends: float) -> None:
        """Until something may have happened."""
        looks = [spec.look_seconds for spec in self.job.tables]
        due = min(self.schedule.next_due(), ends) - self.now()
        most = min([_LONGEST_WAIT, *(seconds / 10 for seconds in looks)])
        self._wait(max(0.0, min(due, most)))

    def _wait(self, seconds: float) -> None:
        """Not at all where `_collect` waits."""
        self.stop.wait(0.0 if self.executor_pools.waits else seconds)

    def _collect(self) -> None:
        for outcome in self.executor_pools.finished(_BUSY_WAIT):
            result = outcome.result
            self.stream.taken(result.table)
            self.schedule.done(result, self.now())
            if not is_busy(result):
                self.show(result)
                if self.schedule.keeps(result.table):
                    self.outcomes[result.table] = outcome
