"""A child process in its own process group, read line by line and always terminated."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import IO, Literal, NoReturn

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(BaseException):
    """Raised on a stop signal with that `number`. A BaseException, so that error handlers do not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


def stoppable() -> AbstractContextManager[None]:
    """Context in which the signals raise `Stopped`. Main thread only."""
    return handling(_stop)


def unstoppable() -> AbstractContextManager[None]:
    """Context in which the signals are ignored. Main thread only."""
    return handling(signal.SIG_IGN)


@contextmanager
def handling(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Context in which the handler gets the signals. Main thread only."""
    before = {number: signal.signal(number, handler) for number in SIGNALS}
    try:
        yield
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def _stop(number: int, _frame: FrameType | None) -> NoReturn:
    raise Stopped(number)


Stream = Literal["stdout", "stderr"]
_POLL_SECONDS = 0.2


def nothing() -> None:
    """A `tick` that does nothing."""


@dataclass(frozen=True)
class Line:
    """A line of the child's output, without its newline."""

    stream: Stream
    text: str


class Child:
    """One run of a command.

    SIGINT, SIGTERM and SIGHUP that reach this process during the run are passed to the child, which then has
    `grace_seconds` to end; after that, or at a second signal, its whole process group is killed. Whatever the child
    leaves running is killed too once it has ended, so that no Spark outlives the command.
    """

    def __init__(
        self,
        command: Sequence[str],
        environ: Mapping[str, str],
        grace_seconds: float,
        tick: Callable[[], None] = nothing,
    ) -> None:
        """
        Args:
            tick: called in the caller's thread while the child runs, several times a second.
        """
        self._command = list(command)
        self._tick = tick
        self._environ = dict(environ)
        self._grace = grace_seconds
        self._lines: queue.Queue[Line | None] = queue.Queue()
        self._process: subprocess.Popen[str] | None = None
        self._deadline: float | None = None
        self.cancelled_by: signal.Signals | None = None
        """The first signal that was passed on; null when none came."""
        self.exit_status = 1
        """Of the child once `lines` is exhausted; 128 plus the signal's number when a signal ended the child."""

    def lines(self) -> Iterator[Line]:
        """Start the command and yield every line of both streams, in the caller's thread, until it ends.

        Leaving the iteration early ends the child as SIGTERM would.

        Raises:
            OSError: the command can't be started.
        """
        # Python delivers signals to the main thread alone; elsewhere they are not ours to take.
        is_main = threading.current_thread() is threading.main_thread()
        with handling(self._forward) if is_main else contextlib.nullcontext():
            process = self._start()
            complete = False
            try:
                yield from self._drain(process, self._start_readers(process))
                complete = True
            finally:
                self._end(process, complete)

    def _start(self) -> subprocess.Popen[str]:
        process = subprocess.Popen(  # noqa: S603 - the command comes from this program, never from a shell
            self._command,
            env=self._environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="backslashreplace",
            process_group=0,
        )
        self._process = process
        if self.cancelled_by is not None:
            process.send_signal(self.cancelled_by)
        return process

    def _start_readers(self, process: subprocess.Popen[str]) -> int:
        streams: tuple[tuple[Stream, IO[str] | None], ...] = (("stdout", process.stdout), ("stderr", process.stderr))
        for name, stream in streams:
            threading.Thread(target=self._read, args=(name, stream), daemon=True).start()
        return len(streams)

    def _read(self, name: Stream, stream: IO[str]) -> None:
        with stream:
            for text in stream:
                self._lines.put(Line(name, text.rstrip("\r\n")))
        self._lines.put(None)

    def _drain(self, process: subprocess.Popen[str], open_streams: int) -> Iterator[Line]:
        while open_streams:
            self._watch(process)
            self._tick()
            try:
                line = self._lines.get(timeout=_POLL_SECONDS)
            except queue.Empty:
                continue
            if line is None:
                open_streams -= 1
            else:
                yield line

    def _watch(self, process: subprocess.Popen[str]) -> None:
        """Time limit for a cancelled child that keeps running, or an ended one whose children hold the pipes."""
        if self._deadline is None and process.poll() is not None:
            self._deadline = time.monotonic() + self._grace
        if self._deadline is not None and time.monotonic() > self._deadline:
            self._kill_group(process)

    def _end(self, process: subprocess.Popen[str], complete: bool) -> None:
        if not complete:
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(self._grace)
        self._kill_group(process)
        code = process.wait()
        self.exit_status = code if code >= 0 else 128 - code

    @staticmethod
    def _kill_group(process: subprocess.Popen[str]) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)

    def _forward(self, number: int, _frame: FrameType | None) -> None:
        again = self.cancelled_by is not None
        self.cancelled_by = self.cancelled_by or signal.Signals(number)
        if self._process is None:
            return
        if again:
            self._kill_group(self._process)
            return
        self._deadline = time.monotonic() + self._grace
        # Signal only the child: Spark's JVM in the group must stay alive until the job has finished its batch.
        self._process.send_signal(number)
