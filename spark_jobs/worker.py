"""A process that works on small tables, one at a time, for a job in another process; it never starts Spark."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.engines.base import DeclinedError
from spark_jobs.runtime import Runtime, Step
from spark_jobs.storage import Storage
from spark_jobs.table_job import Declined, TableOutcome, attempt, look_at, totals_of
from spark_jobs.table_run import TableRun

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Look:
    """Tell which of these tables have work, and how much."""

    specs: tuple[TableSpec, ...]


@dataclass(frozen=True)
class Work:
    """Run this table."""

    specs: tuple[TableSpec, ...]


READY = "ready"
"""Said once, when the process is up."""
Task = Look | Work
Answer = list[TableOutcome | Declined | int]
"""One for each table of the task: an outcome, or of a table that was only looked at the bytes of its work."""


class NoSpark:
    """What a worker has in Spark's place."""

    def for_table(self) -> SparkSession:
        raise DeclinedError("it needs Spark")


def serve(orders: Connection, job: JobSpec, memory: int) -> None:
    """Work off tasks until the other end closes.

    Args:
        job: without its tables.
        memory: bytes that a table may take beyond what the process takes by itself.
    """
    limit_memory(memory)
    orders.send(READY)
    runtime = Runtime(storage=Storage(), spark=NoSpark(), observe=_teller(orders))
    while True:
        try:
            task: Task = orders.recv()
        except (EOFError, OSError):
            return
        orders.send(answer(task, job, runtime))


def answer(task: Task, job: JobSpec, runtime: Runtime) -> Answer:
    runs = [TableRun(job=job, spec=spec, runtime=runtime) for spec in task.specs]
    if isinstance(task, Look):
        return [look_at(run) for run in runs]
    return [attempt(run, totals_of(job)) for run in runs]


def _teller(orders: Connection) -> Callable[[Step], None]:
    def tell(step: Step) -> None:
        orders.send(step)

    return tell


def limit_memory(size: int) -> None:
    """An allocation beyond it fails, which declines the table, before the machine is short of memory."""
    os.environ["ARROW_DEFAULT_MEMORY_POOL"] = "system"  # the other pools reserve far more than they use
    import pyarrow as pa  # noqa: PLC0415 - reads the variable when it is imported

    import spark_jobs.engines.delta_rs.engine  # noqa: F401, PLC0415 - what it takes is the process's own

    pa.set_memory_pool(pa.system_memory_pool())
    used = _status_kib("VmData") * 1024
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = used + size
    resource.setrlimit(resource.RLIMIT_DATA, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))


def _status_kib(field: str) -> int:
    """A figure of this process by the kernel; 0 where there is no /proc."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(f"{field}:")), 0)
