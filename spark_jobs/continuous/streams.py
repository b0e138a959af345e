"""File discovery of a continuous job: the place to add another source, such as a platform's own.

A stream only gives hints. The ledger decides in each table's run, so a stream that omits or repeats files,
or starts again, causes no loss and no duplicates.
"""

from __future__ import annotations

import logging
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.sources import reads_of
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, Runtime
from spark_jobs.discovery import (
    GLANCE_BACK,
    LandingLocation,
    Settling,
    glance,
    next_glance,
    settle_of,
)
from spark_jobs.rooms.dialects.protocol import dialect_of
from spark_jobs.rooms.sources import reader_of

_LOG = logging.getLogger(__name__)
_AT_ONCE = 8


@dataclass
class _Folder:
    """Polling state of a table's landing folder.

    Attributes:
        next: time of the next poll.
        seen: path to etag of the files of the last poll, without those that may still be written.
        newest: relative path of the change file shortly before which polls start; None: they list everything.
    """

    spec: TableSpec
    root: str
    next: float
    seen: dict[str, str] = field(default_factory=dict)
    newest: str | None = None


class ListedFiles:
    """See `Streams`. Each folder is listed after its table's `trigger`, from shortly before its newest file on.

    Args:
        now: seconds, monotonic: a clock that is set back delays no poll.
        environ: of the job, for `GDDL_SETTLE`.
    """

    def __init__(
        self,
        roots: Roots,
        storage: Storage,
        clock: Clock,
        now: Callable[[], float] = time.monotonic,
        *,
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._roots, self._storage, self._clock, self._now, self._environ = roots, storage, clock, now, environ
        self._folders: dict[str, _Folder] = {}
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="glance")

    def follow(self, specs: Sequence[TableSpec]) -> None:
        now, before = self._now(), self._folders
        self._folders = {}
        for spec in specs:
            folder = before.get(spec.table)
            if folder is None or folder.spec != spec:
                folder = _Folder(spec, Layout.of(self._roots, spec).landing, now)
            self._folders[spec.table] = folder

    def news(self) -> Collection[str]:
        now = self._now()
        due = [folder for folder in self._folders.values() if folder.next <= now]
        for folder in due:
            folder.next = now + folder.spec.look_seconds
        polled = self._threads.map(self._poll, due) if len(due) > 1 else map(self._poll, due)
        return [folder.spec.table for folder, is_new in zip(due, list(polled), strict=True) if is_new]

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _poll(self, folder: _Folder) -> bool:
        """Whether a file was added or changed since the last poll; true also where the folder can't be listed.

        A file that may still be written is left to a later poll: the table's run would leave it, too.
        """
        now = self._clock()
        try:
            settling = Settling(after=settle_of(folder.spec, folder.root, self._environ))
            place = LandingLocation(storage=self._storage, landing=folder.root, dialect=dialect_of(folder.spec))
            files = list(glance(place, folder.newest, now))
            new = [file for file in files if folder.seen.get(file.path) != file.etag]
            young = {file.path for file in settling.young(new, now)}
            if not young or settling.after < GLANCE_BACK:  # else later polls would leave young files out
                settled = [file for file in files if file.path not in young]
                folder.newest = next_glance(place, settled, folder.newest, now)
        except (GddlError, ValueError) as error:  # the table's run raises it again, and reports it
            _LOG.info("%s could not be listed: %s", folder.root, error)
            return True
        folder.seen = {file.path: file.etag for file in files if file.path not in young}
        return len(new) > len(young)


LOG_SECONDS = 10.0
"""Between two runs that read the log of a source: each starts an engine."""


class CapturedLogs(ListedFiles):
    """For tables of sources whose logs jobs read. Nothing tells what a log holds: one table of each source is due every
    ten seconds, by turns, and reads it for all; the others are found by the files that it writes.
    """

    def follow(self, specs: Sequence[TableSpec]) -> None:
        super().follow(specs)
        self._sources: dict[str, deque[str]] = defaultdict(deque)
        for spec in specs:
            self._sources[spec.source].append(spec.table)
        self._next_read = self._now()

    def news(self) -> Collection[str]:
        found = [*super().news()]
        if self._now() >= self._next_read:
            self._next_read = self._now() + LOG_SECONDS
            for tables in self._sources.values():
                found.append(tables[0])
                tables.rotate(-1)  # a table that fails holds up its own turn alone
        return found


def _kind_of(spec: TableSpec) -> type[Any]:
    """Class of the stream that tells of the table."""
    if reads_of(spec) == "log":
        return CapturedLogs
    with suppress(GddlError):  # as above
        return reader_of(spec).stream or ListedFiles
    return ListedFiles


class Streams:
    """Tells which tables have files that it has not told of yet: by listings, for tables that are read from a
    source's log by the time, or by what their source brings (`SourceReader.stream`).

    Each is opened with the first of its tables.

    Args:
        wake: called, from any thread, when there is news to fetch.
    """

    def __init__(self, job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> None:
        self._roots, self._runtime, self._wake = job.roots, runtime, wake
        self._streams: dict[type[Any], Any] = {}

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """Replace the followed tables."""
        by_kind: dict[type[Any], list[TableSpec]] = {kind: [] for kind in self._streams}
        for spec in specs:
            by_kind.setdefault(_kind_of(spec), []).append(spec)
        for kind, mine in by_kind.items():
            if kind not in self._streams:
                self._streams[kind] = self._opened(kind)
            self._streams[kind].follow(mine)

    def _opened(self, kind: type[Any]) -> Any:
        runtime = self._runtime
        if issubclass(kind, ListedFiles):
            return kind(self._roots, runtime.storage, runtime.clock, environ=runtime.environ)
        return kind(self._wake, runtime.environ)

    def news(self) -> Collection[str]:
        """Tables with new files since the last call."""
        return [table for stream in self._streams.values() for table in stream.news()]

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
