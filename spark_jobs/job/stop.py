"""Signals that ask a job to end."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

import psutil

_AGAIN_SECONDS = 1.0


class Stop:
    """Whether the job was asked to end. Of a continuous one running tables finish, and no others start."""

    def __init__(self) -> None:
        self.why = ""
        # Not an Event: the thread that a signal interrupts may hold its lock, which would deadlock.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._numbers: tuple[signal.Signals, ...] = ()

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
        self._numbers = numbers or self._numbers

        def asked(number: int, _frame: FrameType | None) -> None:
            if self.is_asked:
                signal.signal(number, signal.SIG_DFL)
                os.kill(os.getpid(), number)
            self.ask(signal.Signals(number).name)

        for number in self._numbers:
            signal.signal(number, asked)

    def listen_again(self) -> None:
        """Install the handlers again: Spark's start replaces that of SIGINT. No effect without `listen`."""
        self.listen()

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
