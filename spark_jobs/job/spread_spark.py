"""Small tables over Spark tasks, on one machine and on clusters, the largest ones first.

Every result is written below `lake/_gddl/jobs/<run_id>/` when its table is done, where the driver finds it while the
Spark job runs. A task that runs a table of its job again (speculative, or after a task or executor was lost)
returns that result, or waits for the claim to end: two tasks never process one table. A table whose task dies is
retried once; if that task dies too, the table fails, and the other tables of the task continue.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from airflow_gddl.contract import codec
from airflow_gddl.contract.actions import IN_DRIVER, Run
from airflow_gddl.contract.codes import SPEC_INVALID, TABLE_BUSY, WORKER_DIED
from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, join, result_name
from airflow_gddl.contract.result import STARTING_SPARK
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import JobSpec, TableSpec, size_bytes
from airflow_gddl.stores import Storage
from airflow_gddl.stores.local import bare
from spark_jobs.batch.runtime import (
    NoSpark,
    Observer,
    Runtime,
    SparkSource,
    Step,
    cancelled,
    print_step,
    silent,
    spark_gone,
)
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, RunTotals, TableOutcome, TaskOutcome
from spark_jobs.job.job_faults import translated
from spark_jobs.job.run_results import is_recorded, write_record
from spark_jobs.job.stop import NEEDS_MEMORY, Watchdog, died_twice, failed, refused, too_late
from spark_jobs.job.table_job import attempt, not_begun, poll_table, totals_of
from spark_jobs.ledger.claim import TTL_SECONDS
from spark_jobs.spark.application import let_end_by_itself, place_of
from spark_jobs.spark.cluster_check import check_executors, is_this_python
from spark_jobs.spark.session_settings import is_on_a_cluster
from spark_jobs.spark.tasks import run_in_tasks

_STARTED = ".begun-"


@dataclass(frozen=True)
class _Answer:
    """What a task returns and stores of a table."""

    outcome: TaskOutcome


def to_bytes(outcome: TaskOutcome) -> bytes:
    return codec.to_json(_Answer(outcome)).encode()


def from_bytes(data: bytes) -> TaskOutcome:
    """
    Raises:
        FatalError: `SPEC_INVALID`: it is no outcome.
    """
    return codec.from_json(_Answer, data.decode(errors="replace")).outcome


@dataclass(frozen=True)
class TaskResultStore:
    """Results of a job's tables, written by its tasks."""

    storage: Storage
    folder: str

    @classmethod
    def of(cls, job: JobSpec, storage: Storage) -> TaskResultStore:
        return cls(storage, join(job.roots.lake, STATE, "jobs", job.run_id))

    def put(self, outcome: TaskOutcome) -> None:
        self.storage.write(self._path(outcome.table), to_bytes(outcome))

    def get(self, spec: TableSpec) -> TaskOutcome | None:
        """Null where there is no valid result of this table."""
        try:
            outcome = from_bytes(self.storage.read(self._path(spec.table)))
        except FileNotFoundError:
            return None
        except GddlError as error:
            if error.code != SPEC_INVALID:
                raise
            return None
        return outcome if outcome.table == spec.table else None

    def begin(self, spec: TableSpec, number: int) -> None:
        """Record that a task starts the table, with its process; `tries` counts these records."""
        self.storage.write(self._note(spec, number), f"{socket.gethostname()} {os.getpid()}".encode())

    def tries(self, spec: TableSpec) -> int:
        """Number of tasks that started the table and left no result."""
        return next(n for n in count() if not self.storage.exists(self._note(spec, n + 1)))

    def all(self, specs: Iterable[TableSpec]) -> list[TaskOutcome]:
        """Existing results of these tables; after a transient error of the store they are read later."""
        try:
            there = {item.path for item in self.storage.list(self.folder)}
            results = [self.get(spec) for spec in specs if self._path(spec.table) in there]
        except GddlError:
            return []
        return [result for result in results if result is not None]

    def clear(self, specs: Iterable[TableSpec]) -> None:
        """Delete what tasks wrote for these tables, none of which is running; others of a continuous job may be."""
        self.storage.delete(*chain.from_iterable(self._written(specs).values()))

    def remove_folder(self) -> None:
        """Remove what is left of it on a disk; no other thread or job may be about to write there."""
        if not is_s3(self.folder):
            with suppress(OSError):
                Path(bare(self.folder)).rmdir()

    def forget_single_starts(self, specs: Iterable[TableSpec]) -> None:
        """Delete the record of a table's only start: its task may have ended because of another table."""
        written = self._written(specs).values()
        self.storage.delete(*(paths[0] for paths in written if len(paths) == 1 and _STARTED in paths[0]))

    def _written(self, specs: Iterable[TableSpec]) -> dict[str, list[str]]:
        """Paths of what tasks wrote, by the names of the tables' results."""
        paths: dict[str, list[str]] = {result_name(spec.table): [] for spec in specs}
        for item in self.storage.list(self.folder):
            # A result, its notes `….begun-1`, and `.….tmp` of either.
            stem, end, _ = item.path.rpartition("/")[2].removeprefix(".").partition(".json")
            paths.get(stem + end, []).append(item.path)
        return paths

    def _note(self, spec: TableSpec, number: int) -> str:
        return f"{self._path(spec.table)}{_STARTED}{number}"

    def _path(self, table: str) -> str:
        return join(self.folder, result_name(table))


if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOG = logging.getLogger(__name__)
_POLL_SECONDS = 0.5
_LISTING_SHARE, _LONGEST_PAUSE = 20, 10.0
"""The driver waits 20 times as long as its last look at the results took, at most 10 s: 10,000 tables leave 20,000
objects."""
_ROUNDS = 20
"""Spark jobs in a row that give no table an outcome, after which the remaining tables fail."""
_TRIES = 2
"""Attempts of a table whose task dies."""
_WAVES = 8
"""Tasks for each slot: enough that a long one doesn't leave the others idle, few enough that starting them is cheap."""


@dataclass(frozen=True)
class SparkSpread:
    """See `Spread`; `spark` provides a session on demand."""

    spark: SparkSource
    storage: Storage
    steps: bool = False
    """Tasks print their steps on standard error, which on one machine is the job's."""
    stopped_by: Callable[[], str] = str
    """See `Runtime`. On one machine tasks then end their tables before the next step (`_StopNote`); on a cluster they
    end with their processes, and their claims expire."""
    observe: Observer = silent
    """Called when Spark starts."""

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TaskOutcome]:
        """Each table's outcome as soon as the driver sees it; `Declined` for tables that the engine can't process."""
        bare = replace(job, tables=())
        runtime = self._in_driver
        costs: dict[str, int] = {}
        # Spark starts in this thread: Ctrl-C ends its jobs only where it was started by the main one.
        pool = ThreadPoolExecutor(1, thread_name_prefix="poll")
        try:
            runs = [TableRun(job=bare, spec=spec, runtime=runtime) for spec in specs]
            for run, polled in zip(runs, pool.map(self._polled, runs), strict=True):
                if not isinstance(polled, int):
                    yield polled
                    continue
                costs[run.spec.table] = polled
                if len(costs) == 1 and not self.stopped_by():
                    if not self.spark.is_started:
                        self.observe(Step(table=run.spec.table, step=STARTING_SPARK))
                    with suppress(GddlError):  # which is raised again below
                        self.spark.for_table()  # its start takes as long as thousands of polls
        finally:
            pool.shutdown(cancel_futures=True)
        waiting = sorted((s for s in specs if s.table in costs), key=lambda s: -costs[s.table])
        if waiting:
            yield from self._spread(bare, waiting, costs)

    @property
    def _in_driver(self) -> Runtime:
        return Runtime(storage=self.storage, spark=NoSpark())

    def _polled(self, run: TableRun) -> TaskOutcome | int:
        """The outcome of a table that needs no task, since it is idle or only read; else its work (`poll_table`)."""
        action = run.job.options.action
        if self.stopped_by():
            return 0
        if action.does in IN_DRIVER:
            return attempt(run, totals_of(run.job))
        return poll_table(run) if isinstance(action, Run) else 0

    def _spread(self, job: JobSpec, specs: Sequence[TableSpec], costs: dict[str, int]) -> Iterator[TaskOutcome]:
        """Run Spark jobs until every table has its outcome: one, or more if tasks died."""
        results = TaskResultStore.of(job, self.storage)
        try:
            if signal := self.stopped_by():
                raise cancelled(signal)
            session = self.spark.for_table()
            if not is_this_python(os.environ):
                check_executors(session, _slots(session))
            results.clear(specs)  # of an earlier start of this job, which was killed
        except GddlError as error:
            yield from (not_begun(TableRun(job=job, spec=s, runtime=self._in_driver), error) for s in specs)
            return
        remaining = {spec.table: spec for spec in specs}
        fault, in_vain = None, 0
        while remaining and in_vain < _ROUNDS:
            before = len(remaining)
            fault = yield from self._round(job, session, results, remaining, costs)
            if fault is None:
                break
            if signal := self.stopped_by():
                fault = cancelled(signal)
                break
            in_vain = in_vain + 1 if len(remaining) == before else 0
            results.forget_single_starts(remaining.values())
        if fault is None:
            what = "no task of the job returned an outcome for the table"
            fault = RetriableError(WORKER_DIED, what, remedy="see the job's log, and run again")
        yield from (refused(job, spec, fault) for spec in remaining.values())
        try:
            results.clear(specs)
            if job.options.continuous is None:
                results.remove_folder()
        except GddlError as error:  # every result has been given
            _LOG.warning("results of tasks could not be removed: %s", error)

    def _round(
        self, job: JobSpec, session: SparkSession, results: TaskResultStore, unanswered: dict[str, TableSpec],
        costs: dict[str, int],
    ) -> Generator[TaskOutcome, None, GddlError | None]:  # fmt: skip
        """Run one Spark job over tables without an outcome; returns the error that ended it early, or None."""
        lost, note = self.spark.losses(), _stop_note(session, job)
        shares = _dealt(list(unanswered.values()), costs, _slots(session))
        with ThreadPoolExecutor(1, thread_name_prefix="spread") as pool:
            running = pool.submit(_run_tasks, session, job, shares, steps=self.steps)
            pause = _POLL_SECONDS
            while wait([running], pause).not_done:
                if note is not None and (signal := self.stopped_by()):
                    note.write_text(signal)
                started = time.monotonic()
                known = results.all(unanswered.values())
                pause = min(_LONGEST_PAUSE, max(_POLL_SECONDS, _LISTING_SHARE * (time.monotonic() - started)))
                yield from _taken(known, unanswered)
        fault = running.exception()
        if fault is None:
            yield from _taken([from_bytes(data) for table, data in running.result() if table in unanswered], unanswered)
            return None
        yield from _taken(results.all(unanswered.values()), unanswered)
        if self.spark.losses() > lost:
            yield from (refused(job, spec, spark_gone()) for spec in unanswered.values())
            unanswered.clear()
        return translated(cast("Exception", fault))


def _taken(outcomes: Sequence[TaskOutcome], remaining: dict[str, TableSpec]) -> Iterator[TaskOutcome]:
    """Outcomes that were not yielded yet."""
    for item in outcomes:
        if remaining.pop(item.table, None) is not None:
            yield item


def _slots(session: SparkSession) -> int:
    """Tasks that can run at once, as far as the session reports it; 4 where it doesn't (Spark Connect)."""
    # The requested number: executors may still be starting.
    requested = [int(session.conf.get("spark.cores.max", "0") or 0)]
    executors, cores = session.conf.get("spark.executor.instances", "0"), session.conf.get("spark.executor.cores", "1")
    requested.append(int(executors or 0) * int(cores or 1))
    try:
        return max(1, int(session.sparkContext.defaultParallelism), *requested)
    except Exception:  # noqa: BLE001 - Connect raises various errors for missing methods
        return max(4, *requested)


def _stop_note(session: SparkSession, job: JobSpec) -> Path | None:
    """File for the name of the signal that asked the job to end, for which Spark's tasks on this machine look.

    None on a cluster, whose tasks see no file of the driver.
    """
    from spark_jobs.spark.session import scratch_of  # noqa: PLC0415 - a job without work imports no Spark

    scratch = None if is_on_a_cluster(os.environ) else scratch_of(session)
    return None if scratch is None else scratch / f"stopped-{job.run_id}"


def _noted_signal(note: Path | None) -> str:
    """Empty: none did. A folder that is gone is that of a Spark that has ended."""
    try:
        return "" if note is None else note.read_text()
    except FileNotFoundError:
        return ""


def _dealt(specs: Sequence[TableSpec], costs: dict[str, int], slots: int) -> list[list[TableSpec]]:
    """Distribute tables over tasks of about equal cost, the largest in the first ones.

    Args:
        specs: the costly ones first.
    """
    bins: list[list[TableSpec]] = [[] for _ in range(min(len(specs), slots * _WAVES))]
    load = [0] * len(bins)
    for spec in specs:
        least = load.index(min(load))
        bins[least].append(spec)
        load[least] += costs[spec.table] + 1
    return bins


def _run_tasks(
    session: SparkSession, job: JobSpec, shares: Sequence[Sequence[TableSpec]], *, steps: bool
) -> list[tuple[str, bytes]]:
    """A task gets all shares, which take few bytes, and decodes its own.

    Returns:
        tables with their outcomes, see `to_bytes`.
    """
    note = _stop_note(session, job)
    if note is not None:
        let_end_by_itself(session)
    one = partial(
        once, job, place=place_of(session), stopped_by=partial(_noted_signal, note),
        observe=print_step if steps else silent,
    )  # fmt: skip

    def work(share: bytes) -> Iterator[bytes]:
        return map(to_bytes, map(one, codec.from_json(tuple[TableSpec, ...], zlib.decompress(share).decode())))

    answers = run_in_tasks(session, work, [zlib.compress(codec.to_json(share).encode()) for share in shares])
    return list(zip((spec.table for share in shares for spec in share), answers, strict=True))


def once(
    job: JobSpec, spec: TableSpec, *, place: str = "", stopped_by: Callable[[], str] = str, observe: Observer = silent
) -> TaskOutcome:
    """Run a table in a task, unless another task of this job has run it or is running it; then return its result.

    Args:
        place: see `LazySpark`; the others are as in `Runtime`.
    """
    storage = Storage()
    results, tier = TaskResultStore.of(job, storage), job.tiers[spec.size]
    runtime = Runtime(storage=storage, spark=NoSpark(place), observe=observe, stopped_by=stopped_by)
    run = TableRun(job=job, spec=spec, runtime=runtime)
    tries, deadline = results.tries(spec), None
    results.begin(spec, tries + 1)
    while True:
        known = results.get(spec)
        if known is not None:
            return known
        totals = totals_of(job)
        with _watched(run, totals, results):
            outcome: TaskOutcome = failed(job, spec, died_twice(spec)) if tries >= _TRIES else attempt(run, totals)
        mine: Any = isinstance(outcome, TableOutcome) and outcome.result.error
        if not mine or mine.code != TABLE_BUSY or repr(job.run_id) not in mine.message:
            # A task of this job that held the claim meanwhile has stored its result.
            known = results.get(spec)
            if known is None:
                _store(results, outcome)
            return known or outcome
        # A task of this job holds the table: it stores its result, or is dead and its claim expires.
        deadline = deadline or time.monotonic() + 2 * TTL_SECONDS + seconds(tier.task_timeout)
        if time.monotonic() > deadline:
            return outcome
        time.sleep(_POLL_SECONDS)


def _store(results: TaskResultStore, outcome: TaskOutcome) -> None:
    """The task returns the result anyway: a second try would find the files loaded, and report nothing of them."""
    try:
        results.put(outcome)
    except (GddlError, OSError) as error:
        _LOG.warning("a result could not be stored: %s", error)


def _watched(run: TableRun, totals: RunTotals, results: TaskResultStore) -> Watchdog:
    """Watchdog with the limits of the table's tier; exceeding them stores an outcome and ends this process.

    Args:
        totals: of the run so far: what its batches did is committed.
    """
    job, spec = run.job, run.spec
    tier = job.tiers[spec.size]

    def late() -> None:
        outcome = failed(job, spec, too_late(spec), run.result(totals))
        results.put(outcome)
        if is_recorded(outcome.result):
            write_record(run.runtime.storage, run.layout, outcome.result)

    return Watchdog(
        seconds=seconds(tier.task_timeout),
        memory=size_bytes(tier.task_memory),
        late=late,
        hungry=lambda: results.put(Declined(spec, NEEDS_MEMORY, totals)),
    )
