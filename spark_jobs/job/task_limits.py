"""Time and memory limits of one table in a Spark task: a watchdog thread ends the Python worker that exceeds them.

The worker can't be interrupted in native code, so it is ended. The table's outcome is stored first: Spark's next
attempt of the task finds it and continues with the task's other tables.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import psutil

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import JobResult, error_info
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.table.runtime import TableOutcome

_LOG = logging.getLogger(__name__)
NEEDS_MEMORY = "it needs more memory than delta_rs_memory"


def too_late(spec: TableSpec) -> RetriableError:
    what = f"{spec.table} took longer than its tier's delta_rs_timeout and was stopped"
    return RetriableError("TABLE_TIMEOUT", what, remedy="run again, it resumes; or raise delta_rs_timeout")


def died_twice(spec: TableSpec, status: int | None = None) -> RetriableError:
    """
    Args:
        status: of the process that died last; None where it is not known.
    """
    last = "" if status is None else f", the last with status {status}"
    what = f"two processes that worked on {spec.table} died{last} (out of memory?)"
    return RetriableError("WORKER_DIED", what, remedy="see the job's log; a tier with engine spark may take the table")


def failed(job: JobSpec, spec: TableSpec, error: RetriableError, done: JobResult | None = None) -> TableOutcome:
    """`refused`, logged."""
    _LOG.error("%s failed: %s", spec.table, error)
    return refused(job, spec, error, done)


def refused(job: JobSpec, spec: TableSpec, error: GddlError, done: JobResult | None = None) -> TableOutcome:
    """The failure of a table without an outcome, which need not be that of its own process.

    Args:
        done: what its run had done by then; None: that is not known.
    """
    known = done or JobResult(table=spec.table, status="failed", engine="delta_rs", run_id=job.run_id)
    return TableOutcome(
        replace(known, status="failed", error=error_info(error)), retriable=isinstance(error, RetriableError)
    )


_WATCH_SECONDS = 0.2
_ENDED = 75


def resident_bytes(pid: int) -> int:
    """Memory of a process of this machine; 0 where there is no such process, or it is another user's."""
    try:
        return int(psutil.Process(pid).memory_info().rss)
    except psutil.Error:
        return 0


def end_process() -> None:
    """End this process at once, regardless of other threads."""
    os._exit(_ENDED)


@dataclass
class Watchdog:
    """Watches the process while a table runs (`with Watchdog(...)`).

    Attributes:
        seconds: longest time of the table.
        memory: bytes that the process may take beyond what it had at the start.
        late, hungry: called when a limit is exceeded, before the process ends.
        end: ends the process; tests replace it.
    """

    seconds: float
    memory: int
    late: Callable[[], None]
    hungry: Callable[[], None]
    end: Callable[[], None] = end_process
    _done: threading.Event = field(default_factory=threading.Event)
    _ending: threading.Lock = field(default_factory=threading.Lock)
    """Guards the decision whether the table ended or exceeded a limit first."""

    def __enter__(self) -> Self:
        start = resident_bytes(os.getpid())
        threading.Thread(target=self._watch, args=(start, time.monotonic() + self.seconds), daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._ending:
            self._done.set()

    def _watch(self, start: int, deadline: float) -> None:
        while not self._done.wait(_WATCH_SECONDS):
            exceeded = self.late if time.monotonic() > deadline else None
            if resident_bytes(os.getpid()) - start > self.memory:
                exceeded = self.hungry
            if exceeded is not None:
                with self._ending:
                    if not self._done.is_set():
                        self._end_with(exceeded)
                return

    def _end_with(self, exceeded: Callable[[], None]) -> None:
        try:
            exceeded()
        finally:
            self.end()
