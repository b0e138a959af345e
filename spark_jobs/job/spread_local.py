"""Small tables over processes of this machine, without Spark: one table per process at a time, largest first."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType
from typing import TYPE_CHECKING, NoReturn

from airflow_gddl.contract.actions import Run
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.python_command import exit_process
from airflow_gddl.contract.result import PROCESSES
from airflow_gddl.contract.source_access import announce
from airflow_gddl.contract.spec import JobSpec, TableSpec, size_bytes
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Observer, Runtime, Step, cancelled, silent
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, TableOutcome, TaskOutcome
from spark_jobs.job.job_logging import set_up_logging
from spark_jobs.job.stop import NEEDS_MEMORY, died_twice, failed, refused, resident_bytes, too_late
from spark_jobs.job.table_job import attempt, poll_table, totals_of
from spark_jobs.spark.tasks import give_back_memory, keep_freed_memory, leave_pandas_out
from spark_jobs.tables.places import DeclinedError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Task:
    """Run these tables, or with `polls` find out which of them have new files, and their bytes."""

    specs: tuple[TableSpec, ...]
    polls: bool = False


READY = "ready"
"""Sent once, when the process is ready."""
Answer = list[TaskOutcome | int]
"""One for each table of the task: an outcome, or what it has to do (`poll_table`) for one that polls."""


@dataclass(frozen=True)
class NoSpark:
    """`SparkSource` of a worker, which has no Spark."""

    place: str = ""

    def for_table(self, _work: int | None = None, /) -> SparkSession:
        raise DeclinedError("it needs Spark")

    @property
    def is_started(self) -> bool:
        return True

    def losses(self) -> int:
        return 0

    @property
    def end(self) -> None:
        return None


def serve(connection: Connection, job: JobSpec) -> None:
    """Run tasks until the other end closes; `job`: without its tables."""
    announce(job.access, os.environ)
    leave_pandas_out()
    keep_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends its workers itself
    stop = _End()
    if job.options.continuous is None:
        signal.signal(signal.SIGTERM, stop)
    connection.send(READY)
    observe = set_up_logging(job.run_id, os.environ)(connection.send)
    runtime = Runtime(storage=Storage(), spark=NoSpark(PROCESSES), observe=observe, stopped_by=lambda: stop.signal)
    while True:
        try:
            task: Task = connection.recv()
        except (EOFError, OSError):
            return
        stop.works = True
        answered = answer(task, job, runtime)
        give_back_memory()  # before the job learns that this worker is idle, and measures it for the next table
        connection.send(answered)
        stop.works = False
        if stop.signal:
            return


def run_process(target: Callable[[Connection, JobSpec], None], connection: Connection, job: JobSpec) -> NoReturn:
    """Run `serve`, or what takes its place, and end this process."""
    target(connection, job)
    exit_process(0)


@dataclass
class _End:
    """Handles SIGTERM: a table ends before its next step and is answered for, an idle process ends at once."""

    works: bool = False
    signal: str = ""

    def __call__(self, number: int, _frame: FrameType | None) -> None:
        self.signal = signal.Signals(number).name
        if not self.works:
            raise SystemExit(128 + number)


def answer(task: Task, job: JobSpec, runtime: Runtime) -> Answer:
    runs = [TableRun(job=job, spec=spec, runtime=runtime) for spec in task.specs]
    if task.polls:
        return [poll_table(run) for run in runs]
    return [attempt(run, totals_of(job)) for run in runs]


_TABLES_PER_CHECK = 100
_WATCH_SECONDS = 0.2
_START_SECONDS = 120.0
"""Maximum start time of a process."""
_DIED: Answer = []
"""Sentinel: the worker has ended."""
_TABLES_PER_WORKER = 2_000
"""A worker is replaced after so many tables, to free memory that libraries keep."""


@dataclass(frozen=True)
class LocalSpread:
    """See `Spread`.

    Attributes:
        observe: called with the steps of all tables, in the caller's thread.
        target: what a worker process runs; tests break it.
        stopped_by: see `Runtime`.
    """

    observe: Observer = silent
    target: Callable[[Connection, JobSpec], None] = serve
    stopped_by: Callable[[], str] = str

    def open(self, job: JobSpec, specs: Sequence[TableSpec]) -> Pool:
        """Processes for these tables and any others of their tiers; the caller closes the pool."""
        return Pool(replace(job, tables=()), frozenset(spec.size for spec in specs), processes_of(job, specs), self)

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TaskOutcome]:
        """Each table's outcome as soon as it is done; `Declined` for tables that the engine can't process."""
        if not specs:
            return
        pool = self.open(job, specs)
        try:
            costs: dict[str, int] = dict.fromkeys((s.table for s in specs), 0)
            if isinstance(job.options.action, Run) and len(specs) > 1:
                yield from _idle_tables(pool, specs, costs)
            waiting = sorted((s for s in specs if s.table in costs), key=lambda s: -costs[s.table])
            for _, answer in pool.run_tasks([Task((spec,)) for spec in waiting]):
                yield from (outcome for outcome in answer if not isinstance(outcome, int))
        finally:
            pool.close()


@dataclass(frozen=True)
class NoProcesses:
    """See `Spread`; for jobs on a cluster, whose machines a job's own processes would leave idle."""

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TaskOutcome]:
        """A failure (`PROCESSES_ON_CLUSTER`) for each table."""
        remedy = "write tasks: one in gddl.yaml, a Spark task for each table; or run the job by runner local"
        for spec in specs:
            what = f"tier {spec.size} of {spec.table} has tasks: processes, and this job runs on a cluster"
            yield refused(job, spec, FatalError("PROCESSES_ON_CLUSTER", what, remedy=remedy))


def _idle_tables(pool: Pool, specs: Sequence[TableSpec], costs: dict[str, int]) -> Iterator[TableOutcome]:
    """Outcomes of idle tables; the costs of the others are added to `costs`."""
    size = max(1, min(_TABLES_PER_CHECK, len(specs) // (4 * pool.most)))
    chunks = [Task(tuple(specs[i : i + size]), polls=True) for i in range(0, len(specs), size)]
    for task, answer in pool.run_tasks(chunks):
        for spec, result in zip(task.specs, answer, strict=False):  # empty if its worker died: run all its tables
            if isinstance(result, int):
                costs[spec.table] = result
            elif isinstance(result, TableOutcome):
                del costs[spec.table]
                yield result


def processes_of(job: JobSpec, specs: Sequence[TableSpec]) -> int:
    """Number of processes."""
    return max(1, min(len(specs), max((job.tiers[s.size].cores for s in specs), default=1)))


@dataclass
class _Worker:
    """A process and its task.

    Attributes:
        deadline: by the monotonic clock; null while it has no task.
        own_bytes: memory of the idle process; null until it is ready.
        is_stopped: asked to end.
    """

    process: BaseProcess
    connection: Connection
    task: Task | None = None
    deadline: float | None = None
    own_bytes: int | None = None
    tables: int = 0
    is_stopped: bool = False


@dataclass
class Pool:
    """Worker processes, started on demand.

    Attributes:
        job: without its tables.
        sizes: tiers of its tables.
        most: processes at once.
        waiting: tasks that wait for a process.
    """

    job: JobSpec
    sizes: frozenset[str]
    most: int
    spread: LocalSpread
    staff: list[_Worker] = field(default_factory=list)
    waiting: deque[Task] = field(default_factory=deque)
    _again: set[int] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        return bool(self.waiting) or any(worker.task for worker in self.staff)

    def memory(self, specs: Iterable[TableSpec]) -> int:
        """Bytes that each of these tables may take; without tables, the maximum of the job's tiers."""
        sizes = {spec.size for spec in specs} or self.sizes
        return max(size_bytes(self.job.tiers[size].task_memory) for size in sizes)

    def run_tasks(self, tasks: Iterable[Task]) -> Iterator[tuple[Task, Answer]]:
        """Run tasks in order; yields answers as they arrive. A task whose worker dies is retried once."""
        self.waiting.extend(tasks)
        while self.is_busy:
            yield from self.answers(_WATCH_SECONDS)

    def answers(self, within: float) -> Iterator[tuple[Task, Answer]]:
        """Answers that arrive within so many seconds; returns at the first ones."""
        yield from self._stopped()
        self._assign()
        for worker in self._ready(within):
            task, answer = worker.task, self._receive(worker)
            if task is None or answer is None:
                continue
            if answer is _DIED and id(task) not in self._again:
                self._again.add(id(task))
                self.waiting.appendleft(task)
                continue
            self._again.discard(id(task))
            yield task, self._given_up(task, worker) if answer is _DIED else answer

    def _stopped(self) -> Iterator[tuple[Task, Answer]]:
        """Once the job was asked to end: answers of tasks that wait, while workers are asked to end their tables."""
        if not (signal := self.spread.stopped_by()):
            return
        for worker in [w for w in self.staff if w.task is not None and not w.is_stopped]:
            worker.is_stopped = True
            worker.process.terminate()
        while self.waiting:
            task = self.waiting.popleft()
            specs = () if task.polls else task.specs
            yield task, [refused(self.job, spec, cancelled(signal)) for spec in specs]

    def _assign(self) -> None:
        for worker in [w for w in self.staff if w.task is None]:
            spent = worker.tables >= _TABLES_PER_WORKER or self._is_hungry(worker, 0.5)
            if spent or not worker.process.is_alive():
                self._end(worker)
        while self.waiting:
            idle = next((w for w in self.staff if w.task is None), None)
            if idle is None and len(self.staff) >= self.most:
                return
            worker = idle or self._start()
            task = self.waiting.popleft()
            worker.task, worker.tables = task, worker.tables + len(task.specs)
            worker.deadline = self._deadline(task) + (_START_SECONDS if worker.own_bytes is None else 0)
            worker.connection.send(task)

    def _deadline(self, task: Task | None) -> float:
        limits = [seconds(self.job.tiers[s.size].task_timeout) for s in task.specs] if task else []
        return time.monotonic() + max(limits, default=0.0)

    def _start(self) -> _Worker:
        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        process = context.Process(target=run_process, args=(self.spread.target, theirs, self.job), daemon=True)
        process.start()
        theirs.close()
        worker = _Worker(process, mine)
        self.staff.append(worker)
        return worker

    def _ready(self, within: float) -> list[_Worker]:
        """Workers that sent a message, died, or exceeded their time or memory."""
        busy = [w for w in self.staff if w.task is not None]
        now = time.monotonic()
        first = min((w.deadline for w in busy if w.deadline is not None), default=now)
        said = wait([w.connection for w in busy], max(0.0, min(first - now, within)))
        late = [w for w in busy if w.deadline is not None and w.deadline <= time.monotonic()]
        return [w for w in busy if w.connection in said or w in late or self._is_hungry(w)]

    def _is_hungry(self, worker: _Worker, share: float = 1.0) -> bool:
        """Whether it holds more than the memory of a table."""
        if worker.own_bytes is None:
            return False
        allowed = self.memory(worker.task.specs if worker.task else ())
        return resident_bytes(worker.process.pid or 0) - worker.own_bytes > share * allowed

    def _receive(self, worker: _Worker) -> Answer | None:
        """The answer to its task, `_DIED`, or null for a step; out of time or memory it is killed."""
        if worker.connection.poll():
            try:
                message = worker.connection.recv()
            except (EOFError, OSError):
                self._end(worker)
                return _DIED
            if message == READY:
                worker.own_bytes = resident_bytes(worker.process.pid or 0)
                worker.deadline = self._deadline(worker.task)
                return None
            if isinstance(message, Step):
                self.spread.observe(message)
                return None
            worker.task = worker.deadline = None
            answer: Answer = message
            return answer
        specs = () if worker.task is None or worker.task.polls else worker.task.specs
        hungry = self._is_hungry(worker)
        self._end(worker)
        if hungry:
            return [Declined(s, NEEDS_MEMORY, totals_of(self.job)) for s in specs]
        return [failed(self.job, s, too_late(s)) for s in specs]

    def _given_up(self, task: Task, worker: _Worker) -> Answer:
        """The failure of a table whose workers died twice."""
        if task.polls:
            return []
        status = worker.process.exitcode
        return [failed(self.job, spec, died_twice(spec, status)) for spec in task.specs]

    def _end(self, worker: _Worker) -> None:
        self.staff.remove(worker)
        worker.connection.close()
        if worker.task is not None:
            worker.process.kill()
        worker.process.join()

    def close(self) -> None:
        """Stop all workers; busy ones are killed."""
        for worker in list(self.staff):
            self._end(worker)
