"""The job that goes on: hear of files, run their tables, tell; until it is told to stop."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.continuous.agenda import BATCHES_A_TURN, Agenda, is_busy
from spark_jobs.continuous.hands import Found, Hands, heavy_hands, light_hands
from spark_jobs.continuous.orders import Orders, Stop
from spark_jobs.continuous.streams import FileStream, open_streams
from spark_jobs.job import Show, unreachable
from spark_jobs.runtime import Runtime
from spark_jobs.table_job import Declined, TableOutcome, not_begun, on_spark

_LONGEST_WAIT = 1.0
_BUSY_WAIT = 0.1

OpenStreams = Callable[[JobSpec, Runtime, Callable[[], None]], FileStream]


def run_continuously(job: JobSpec, runtime: Runtime, show: Show, stop: Stop) -> list[TableOutcome]:
    """Keep the job's tables, and those that are added to it, until told to stop or its time is over.

    `show` gets the result of every turn once it is durable, of one that found nothing to do as skipped. The outcomes
    are each table's newest; that another run held a table is none.

    Raises:
        GddlError: the stream of files is broken; nothing is lost by it.
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
    """

    job: JobSpec
    runtime: Runtime
    show: Show
    stop: Stop
    now: Callable[[], float] = time.monotonic
    streams: OpenStreams = open_streams
    outcomes: dict[str, TableOutcome] = field(default_factory=dict)
    agenda: Agenda = field(default_factory=Agenda)

    def run(self) -> list[TableOutcome]:
        self.job = turns_of(self.job)
        orders = Orders(self.job, self.runtime.storage, self.stop, self.now)
        ends = self._ends()
        stream = self.streams(self.job, self.runtime, self.stop.wake)
        self._open_hands()
        try:
            self._follow(stream)
            while not self.stop.is_asked:
                if orders.look():
                    stream = self._changed(orders.job, stream)
                self.agenda.news(stream.news())
                self._begin()
                self._rest(ends)
                self._collect(stream)
                if self.now() >= ends:
                    self.stop.ask("its time is over")
            self._light.drop()
            self._heavy.drop()
            self._finish(stream)
        finally:
            stream.close()
            self._light.close()
            self._heavy.close()
        return list(self.outcomes.values())

    def _ends(self) -> float:
        continuous = self.job.options.continuous
        seconds = continuous.seconds if continuous is not None else None
        return float("inf") if seconds is None else self.now() + seconds

    def _open_hands(self) -> None:
        bare = replace(self.job, tables=())
        self._light: Hands = light_hands(bare, self.runtime, self.job.tables, self.stop.wake)
        self._heavy = heavy_hands(self.job, self.runtime, self.stop.wake)

    def _follow(self, stream: FileStream) -> None:
        self.agenda.keep(self.job.tables, self.now())
        stream.follow(self.job.tables)
        self.stop.listen_again()
        self.outcomes = {name: found for name, found in self.outcomes.items() if name in self.agenda.entries}

    def _changed(self, job: JobSpec, stream: FileStream) -> FileStream:
        """Other rows, or other meanings of sizes: these the hands have to be told, and have to be free for."""
        before, self.job = self.job, job
        if before.tiers != job.tiers:
            self._finish(stream)
            stream.close()
            self._light.close()
            self._heavy.close()
            stream = self.streams(job, self.runtime, self.stop.wake)
            self._open_hands()
        self._follow(stream)
        if not job.tables:
            self.stop.ask("no table is left")
        return stream

    def _begin(self) -> None:
        due = self.agenda.begin(self.now())
        light = [spec for spec in due if self._is_light(spec)]
        self._light.start(light)
        self._heavy.start([spec for spec in due if spec not in light])

    def _is_light(self, spec: TableSpec) -> bool:
        tier = self.job.tiers.get(spec.size)
        return tier is not None and tier.engine == "delta_rs"

    def _rest(self, ends: float) -> None:
        """Until something may have happened; processes are waited for where they tell."""
        looks = [spec.look_seconds for spec in self.job.tables]
        due = min(self.agenda.next_due(), ends) - self.now()
        most = min([_LONGEST_WAIT, *(seconds / 10 for seconds in looks)])
        pause = max(0.0, min(due, _BUSY_WAIT if self._light.is_busy else most))
        if not self._light.is_busy:
            self.stop.wait(pause)

    def _collect(self, stream: FileStream) -> None:
        found: list[Found] = [*self._light.finished(_BUSY_WAIT), *self._heavy.finished(0.0)]
        for one in found:
            if isinstance(one, Declined):
                self._heavy.hand_over(one.spec, partial(on_spark, self.job, one, self.runtime))
            else:
                self._take(one, stream)

    def _take(self, outcome: TableOutcome, stream: FileStream) -> None:
        result: JobResult = outcome.result
        stream.taken(result.table)
        self.agenda.done(result, self.now())
        if not is_busy(result):
            self.outcomes[result.table] = outcome
            self.show(result)

    def _finish(self, stream: FileStream) -> None:
        """Until nothing is at work."""
        while self._light.is_busy or self._heavy.is_busy:
            if not self._light.is_busy:
                self.stop.wait(_BUSY_WAIT)
            self._collect(stream)
