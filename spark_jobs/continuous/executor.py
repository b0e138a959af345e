"""Executors of a continuous job: several tables at once, each by the same batch code as in other jobs."""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.job.job_faults import translated
from spark_jobs.job.job_tables import SpreadByTier, by_engine, by_spread, threads_of
from spark_jobs.job.spread_local import LocalSpread, processes_of
from spark_jobs.job.table_job import not_started, on_spark, run_guarded
from spark_jobs.job.worker import Task
from spark_jobs.table.runtime import Declined, Runtime, Spread, TableOutcome

Found = TableOutcome | Declined
_ROUNDS = 8


class Executor(Protocol):
    """Runs tables and returns their outcomes."""

    @property
    def is_busy(self) -> bool: ...

    @property
    def waits(self) -> bool:
        """Whether `finished` waits for running tables; else `wake` is called when one is done."""
        ...

    def start(self, specs: Sequence[TableSpec]) -> None:
        """Start these tables; none of them is running."""
        ...

    def finished(self, within: float) -> list[Found]:
        """Outcomes of finished tables; waits at most so many seconds, and only if it `waits`."""
        ...

    def drop(self) -> list[str]:
        """Drop tables that have not started; returns them."""
        ...

    def close(self) -> None:
        """Stop running tables."""
        ...


class SparkExecutor(Executor, Protocol):
    """An executor that also accepts tables of other executors."""

    def hand_over(self, spec: TableSpec, run: Callable[[], Found]) -> None:
        """Run this for one table."""
        ...


class Processes:
    """Small tables over processes of this machine, which are kept between turns."""

    def __init__(self, spread: LocalSpread, job: JobSpec, specs: Sequence[TableSpec]) -> None:
        self._pool = spread.open(job, specs)

    @property
    def is_busy(self) -> bool:
        return self._pool.is_busy

    @property
    def waits(self) -> bool:
        return self._pool.is_busy

    def start(self, specs: Sequence[TableSpec]) -> None:
        self._pool.left.extend(Task((spec,)) for spec in specs)

    def finished(self, within: float) -> list[Found]:
        if not self.is_busy:
            return []
        return [found for _, answer in self._pool.answers(within) for found in answer if not isinstance(found, int)]

    def drop(self) -> list[str]:
        left = [spec.table for task in self._pool.left for spec in task.specs]
        self._pool.left.clear()
        return left

    def close(self) -> None:
        self._pool.close()


class Threads:
    """Tables over threads of this process.

    Args:
        run: gives the outcome of a table.
        wake: called when one is done.
    """

    def __init__(self, job: JobSpec, run: Callable[[TableSpec], Found], at_once: int, wake: Callable[[], None]) -> None:
        self._job, self._run, self._wake = job, run, wake
        self._done: queue.SimpleQueue[Found] = queue.SimpleQueue()
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="table")
        self._open: dict[Future[None], str] = {}
        self.waits = False

    @property
    def is_busy(self) -> bool:
        return bool(self._open)

    def start(self, specs: Sequence[TableSpec]) -> None:
        for spec in specs:
            self.hand_over(spec, partial(self._run, spec))

    def hand_over(self, spec: TableSpec, run: Callable[[], Found]) -> None:
        """See `SparkExecutor`."""
        self._open[self._pool.submit(self._one, spec, run)] = spec.table

    def finished(self, within: float) -> list[Found]:  # noqa: ARG002 - see the protocol: it wakes whoever waits
        # Finished ones first: their outcomes are available without waiting.
        self._open = {future: table for future, table in self._open.items() if not future.done()}
        found = []
        while not self._done.empty():
            found.append(self._done.get())
        return found

    def drop(self) -> list[str]:
        left = [table for future, table in self._open.items() if future.cancel()]
        self._open = {future: table for future, table in self._open.items() if not future.cancelled()}
        return left

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _one(self, spec: TableSpec, run: Callable[[], Found]) -> None:
        try:
            found = run()
        except Exception as error:  # noqa: BLE001 - a table without an outcome would never be run again
            found = not_started(self._job, spec, translated(error))
        self._done.put(found)
        self._wake()


def light_executor(job: JobSpec, runtime: Runtime, specs: Sequence[TableSpec], wake: Callable[[], None]) -> Executor:
    """For tables of engine `delta_rs`: Spark tasks; processes where all their tiers say so.

    Args:
        specs: those there are now; others of their tiers may come.
    """
    spread = runtime.spread
    if isinstance(spread, SpreadByTier):
        in_tasks, _ = by_spread(job, specs)
        spread = spread.tasks if in_tasks else spread.processes
    if isinstance(spread, LocalSpread):
        return Processes(spread, job, specs)
    if spread is None:
        return heavy_executor(job, runtime, wake)
    return Threads(job, partial(_spread_one, spread, job), _ROUNDS, wake)


def _spread_one(spread: Spread, job: JobSpec, spec: TableSpec) -> Found:
    (found,) = list(spread.run(job, [spec]))  # runs the generator's clean-up
    return found


def heavy_executor(job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> Threads:
    """For tables of engine `spark`, which share a Spark as those of any job do."""
    _, heavy = by_engine(job, job.tables)
    return Threads(job, lambda spec: run_guarded(job, spec, runtime), threads_of(job, heavy), wake)


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
