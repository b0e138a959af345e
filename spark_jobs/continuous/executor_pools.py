"""Executors of a continuous job, one for small tables and one for the others; replaced when the job's tiers change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.continuous.executor import Executor, SparkExecutor, heavy_executor, light_executor
from spark_jobs.job.spread_local import processes_of
from spark_jobs.job.table_job import on_spark
from spark_jobs.job.tables import by_engine, threads_of
from spark_jobs.table.outcome import Declined, TableOutcome
from spark_jobs.table.runtime import Runtime

OpenLight = Callable[[JobSpec, Runtime, Callable[[], None]], Executor]
OpenHeavy = Callable[[JobSpec, Runtime, Callable[[], None]], SparkExecutor]


def open_light(job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> Executor:
    light, _ = by_engine(job, job.tables)
    return light_executor(replace(job, tables=()), runtime, light, wake)


@dataclass
class ExecutorPools:
    """The executors of the job's current spec. Replaced ones finish their running tables in parallel with the new ones.

    Attributes:
        job: the current spec.
        wake: called, from any thread, when a table is done.
    """

    job: JobSpec
    runtime: Runtime
    wake: Callable[[], None]
    light: OpenLight = open_light
    heavy: OpenHeavy = heavy_executor
    _before: list[Executor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._open()

    def fit(self, job: JobSpec) -> list[str]:
        """Switch to this job; returns the tables that replaced executors had not started."""
        before, self.job = self.job, job
        if _shape(before) == _shape(job):
            return []
        left = self.drop()
        self._before = self._all
        self._open()
        self._dismiss()
        return left

    @property
    def is_busy(self) -> bool:
        return any(executor.is_busy for executor in self._all)

    @property
    def waits(self) -> bool:
        """See `Executor.waits`."""
        return any(executor.waits for executor in self._all)

    def start(self, specs: Sequence[TableSpec]) -> None:
        """See `Executor.start`."""
        light, heavy = by_engine(self.job, specs)
        self._light.start(light)
        self._heavy.start(heavy)

    def finished(self, within: float) -> list[TableOutcome]:
        """See `Executor.finished`; tables that the engine declines are passed on and not returned."""
        found = [one for executor in self._all for one in executor.finished(within)]
        self._dismiss()
        for one in found:
            if isinstance(one, Declined):
                self._heavy.hand_over(one.spec, partial(on_spark, self.job, one, self.runtime))
        return [one for one in found if not isinstance(one, Declined)]

    def drop(self) -> list[str]:
        """See `Executor.drop`."""
        return [table for executor in self._all for table in executor.drop()]

    def close(self) -> None:
        for executor in self._all:
            executor.close()

    @property
    def _all(self) -> list[Executor]:
        return [self._light, self._heavy, *self._before]

    def _open(self) -> None:
        self._light = self.light(self.job, self.runtime, self.wake)
        self._heavy = self.heavy(self.job, self.runtime, self.wake)

    def _dismiss(self) -> None:
        """Close replaced executors that are done."""
        for executor in [executor for executor in self._before if not executor.is_busy]:
            executor.close()
            self._before.remove(executor)


def _shape(job: JobSpec) -> tuple[object, ...]:
    """Settings that executors depend on: tiers, credentials, sizes in use, and the number of tables at once."""
    light, heavy = by_engine(job, job.tables)
    sizes = frozenset(spec.size for spec in light)
    return job.tiers, job.access, sizes, processes_of(job, light), threads_of(job, heavy)
