"""A process that runs small tables, one at a time, for a job in another process; it never starts Spark."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import TYPE_CHECKING

from airflow_gddl.contract.source_access import announce
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.engines.port import DeclinedError
from spark_jobs.job.table_job import attempt, poll_table, totals_of
from spark_jobs.observability.json_log import set_up_logging
from spark_jobs.spark.tasks import leave_pandas_out
from spark_jobs.table.runtime import Declined, Runtime, TableOutcome
from spark_jobs.table.table_run import TableRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Task:
    """Run these tables, or with `polls` find out which of them have new files, and their bytes."""

    specs: tuple[TableSpec, ...]
    polls: bool = False


READY = "ready"
"""Sent once, when the process is ready."""
Answer = list[TableOutcome | Declined | int]
"""One for each table of the task: an outcome, or what it has to do (`poll_table`) for one that polls."""


class NoSpark:
    """`SparkSource` of a worker, which has no Spark."""

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


def serve(orders: Connection, job: JobSpec) -> None:
    """Run tasks until the other end closes; `job`: without its tables."""
    announce(job.access, os.environ)
    leave_pandas_out()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the job, which ends its workers itself
    stop = _End()
    if job.options.continuous is None:
        signal.signal(signal.SIGTERM, stop)
    orders.send(READY)
    observe = set_up_logging(job.run_id, os.environ)(orders.send)
    runtime = Runtime(storage=Storage(), spark=NoSpark(), observe=observe, stopped_by=lambda: stop.signal)
    while True:
        try:
            task: Task = orders.recv()
        except (EOFError, OSError):
            return
        stop.works = True
        orders.send(answer(task, job, runtime))
        stop.works = False
        if stop.signal:
            return


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
