"""Requests to a running job: new rows, and to stop. See `airflow_gddl.contract.desired_state`."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from types import FrameType

from airflow_gddl.contract import codec
from airflow_gddl.contract.desired_state import ORDER, DesiredState, stop_name
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage

POLL_SECONDS = 5.0
_LOG = logging.getLogger(__name__)


class Stop:
    """Whether the job was asked to end: running tables finish, no others start."""

    def __init__(self) -> None:
        self.why = ""
        # Not an Event: the thread that a signal interrupts may hold its lock, which would deadlock.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._listens = False

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

    def listen(self) -> None:
        """Handle the first SIGTERM or SIGINT as a request to stop; a second one ends the process.

        Only in a program's main thread.
        """
        self._listens = True

        def asked(number: int, _frame: FrameType | None) -> None:
            if self.is_asked:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.ask(signal.Signals(number).name)

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, asked)

    def listen_again(self) -> None:
        """Install the handlers again: Spark's start replaces that of SIGINT. No effect without `listen`."""
        if self._listens:
            self.listen()


@dataclass
class DesiredStateReader:
    """The job's current spec. A folder that can't be read changes nothing: the last state stays valid.

    Attributes:
        now: seconds, monotonic.
    """

    job: JobSpec
    storage: Storage
    stop: Stop
    now: Callable[[], float]
    _read: str | None = None
    _next: float = field(default=float("-inf"))

    def poll(self) -> bool:
        """Whether the job's tables or tiers have changed; read every few seconds, with requests to stop."""
        folder = self.job.options.continuous.folder if self.job.options.continuous is not None else ""
        if not folder or self.now() < self._next:
            return False
        self._next = self.now() + POLL_SECONDS
        try:
            found = {item.name: item for item in self.storage.list(folder)}
            if stop_name(self.job.run_id) in found:
                self.stop.ask("the word to stop")
            if ORDER not in found or found[ORDER].etag == self._read:
                return False
            order = codec.from_json(DesiredState, self.storage.read(found[ORDER].path).decode())
        except (GddlError, FileNotFoundError, UnicodeDecodeError) as error:
            _LOG.warning("the desired state can't be read, the previous one stays valid: %s", error)
            return False
        self._read = found[ORDER].etag
        before, self.job = (
            self.job,
            replace(self.job, tables=order.tables, tiers=order.tiers, catalogs=order.catalogs, access=order.access),
        )
        return before != self.job
