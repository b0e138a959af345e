"""What ends a job or a table: signals, and limits of time and memory of one table in a Spark task.

A watchdog thread ends the Python worker that exceeds its limits, since it can't be interrupted in native code. The
table's outcome is stored first: Spark's next attempt of the task finds it and continues with the task's other tables.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Self

import psutil

from airflow_gddl.contract.codes import TABLE_TIMEOUT, WORKER_DIED
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, TableSpec
from spark_jobs.batch.totals import TableOutcome

_AGAIN_SECONDS = 1.0


class Stop:
    """Whether the job was asked to end. Of a continuous one running tables finish, and no others start."""

    def __init__(self) -> None:
        self.why = ""
        # Not an Event: the thread that a signal interrupts may hold its lock, which would deadlock.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()

    @property
    def is_asked(self) -> bool:
        return bool(self.why)

    def ask(self, why: str) -> None:
        self.why = self.why or why
        self.wake()

    def wake(self) -> None:
        """End a `wait`, from any thread and from within signals."""
        if self._wake.empty():
            self._wake.put(None)

    def wait(self, seconds: float) -> None:
        """Wait until `wake` is called, or was called since the last wait, at most so many seconds."""
        with contextlib.suppress(queue.Empty):
            self._wake.get(timeout=seconds)
            while True:
                self._wake.get_nowait()

    def listen(self, *numbers: signal.Signals) -> None:
        """Handle the first of these signals as a request to stop; a second one ends the process.

        Only in a program's main thread.
        """

        def on_signal(number: int, _frame: FrameType | None) -> None:
            if self.is_asked:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.ask(signal.Signals(number).name)

        for number in numbers:
            signal.signal(number, on_signal)

    def then(self, work: Callable[[], None]) -> None:
        """Once the job is asked to end, call `work` in a thread of its own, again each second until the process ends.

        Not within the handler: it may have interrupted a call that holds locks of what `work` uses.
        """

        def watch() -> None:
            while not self.is_asked:
                self.wait(3600)
            while True:
                work()
                self.wait(_AGAIN_SECONDS)

        threading.Thread(target=watch, name="stop", daemon=True).start()


_POLL_SECONDS = 0.5


def end_with(parent: int) -> None:
    """End this process and its children once `parent` has ended.

    Ends at once: an interrupted run loses and repeats nothing, a hanging one would hold its tables.

    Args:
        parent: the process that started this one, directly or through a wrapper.
    """
    direct = os.getppid() == parent
    threading.Thread(target=_watch, args=(parent, direct), name="parent-watch", daemon=True).start()


def _watch(parent: int, direct: bool) -> None:
    # The id of an ended process may be reused; not that of a direct parent.
    while os.getppid() == parent if direct else _exists(parent):
        time.sleep(_POLL_SECONDS)
    if os.getpgrp() == os.getpid():
        # The process group, which the local runner creates, includes Spark's JVM.
        os.killpg(os.getpid(), signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _exists(process: int) -> bool:
    """A zombie counts as ended."""
    try:
        return psutil.Process(process).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


_LOG = logging.getLogger(__name__)
NEEDS_MEMORY = "it needs more memory than task_memory"


def too_late(spec: TableSpec) -> RetriableError:
    what = f"{spec.table} took longer than its tier's task_timeout and was stopped"
    return RetriableError(TABLE_TIMEOUT, what, remedy="run again, it resumes; or raise task_timeout")


def died_twice(spec: TableSpec) -> RetriableError:
    what = f"two processes that worked on {spec.table} died (out of memory?)"
    return RetriableError(WORKER_DIED, what, remedy="see the job's log; a tier with tasks: many may take the table")


def failed(job: JobSpec, spec: TableSpec, error: RetriableError, done: JobResult | None = None) -> TableOutcome:
    """`refused`, logged."""
    _LOG.error("%s failed: %s", spec.table, error)
    return refused(job, spec, error, done)


def refused(job: JobSpec, spec: TableSpec, error: GddlError, done: JobResult | None = None) -> TableOutcome:
    """The failure of a table without an outcome, which need not be that of its own process.

    Args:
        done: what its run had done by then; None: that is not known.
    """
    known = done or JobResult(table=spec.table, status="failed", tasks="one", run_id=job.run_id)
    return TableOutcome.of_failed(known, error)


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
                        try:
                            exceeded()
                        finally:
                            self.end()
                return
