"""File discovery of a continuous job: the place to add another source, such as a platform's own.

A stream only gives hints. The ledger decides in each table's run, so a stream that omits or repeats files,
or starts again, causes no loss and no duplicates.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Protocol

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import LandingFolder, Layout
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.continuous.spark_files import SparkFiles
from spark_jobs.dialects.protocol import dialect_of
from spark_jobs.discovery import GLANCE_BACK, LandingLocation, Settling, glance, next_glance, settle_of
from spark_jobs.table.runtime import Clock, Runtime

_AT_ONCE = 8
_LOG = logging.getLogger(__name__)


@dataclass
class _Folder:
    """Polling state of a table's landing folder.

    Attributes:
        next: time of the next poll.
        seen: path to etag of the files of the last poll, without those that may still be written.
        newest: relative path of the change file shortly before which polls start; null: they list everything.
    """

    spec: TableSpec
    root: str
    next: float
    seen: dict[str, str] = field(default_factory=dict)
    newest: str | None = None


class ListedFiles:
    """See `FileStream`. Each folder is listed after its table's `trigger`, from shortly before its newest file on.

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

    def taken(self, table: str) -> None:
        """Nothing to do: a reported table is retried by the schedule until it succeeds."""

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
            found = list(glance(place, folder.newest, now))
            new = [file for file in found if folder.seen.get(file.path) != file.etag]
            young = {file.path for file in settling.young(new, now)}
            if not young or settling.after < GLANCE_BACK:  # else later polls would leave young files out
                settled = [file for file in found if file.path not in young]
                folder.newest = next_glance(place, settled, folder.newest, now)
        except (GddlError, ValueError) as error:  # the table's run raises it again, and reports it
            _LOG.info("%s could not be listed: %s", folder.root, error)
            return True
        folder.seen = {file.path: file.etag for file in found if file.path not in young}
        return len(new) > len(young)


_LISTED = ""
"""Name of the stream of listed tables; the others are named by their landing roots."""


class FileStream(Protocol):
    """Reports which tables have files that it has not reported.

    Raises (every method):
        GddlError: it failed for good; the job ends and has to be restarted.
    """

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """Replace the followed tables."""
        ...

    def news(self) -> Collection[str]:
        """Tables with new files since the last call."""
        ...

    def taken(self, table: str) -> None:
        """A run of the table that started after its files were reported is over."""
        ...

    def close(self) -> None: ...


class Streams:
    """Several streams as one, each opened with the first of its tables.

    Args:
        open_: gives the stream of a name.
        name_of: gives the name of the stream that follows a table.
    """

    def __init__(self, open_: Callable[[str], FileStream], name_of: Callable[[TableSpec], str]) -> None:
        self._open, self._name_of = open_, name_of
        self._streams: dict[str, FileStream] = {}

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_name: dict[str, list[TableSpec]] = {name: [] for name in self._streams}
        for spec in specs:
            by_name.setdefault(self._name_of(spec), []).append(spec)
        for name, mine in by_name.items():
            if name not in self._streams:
                self._streams[name] = self._open(name)
            self._streams[name].follow(mine)

    def news(self) -> Collection[str]:
        return [table for stream in self._streams.values() for table in stream.news()]

    def taken(self, table: str) -> None:
        for stream in self._streams.values():
            stream.taken(table)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()


def open_streams(job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> FileStream:
    """Structured Streaming for tables of engine `spark`, listings for the others and where Spark is only remote.

    Args:
        wake: called, from any thread, when there are new files to fetch.
    """
    if "SPARK_REMOTE" in runtime.environ:  # Spark Connect runs `foreachBatch` in another process than the job
        return ListedFiles(job.roots, runtime.storage, runtime.clock, environ=runtime.environ)

    def opened(root: str) -> FileStream:
        if root == _LISTED:
            return ListedFiles(job.roots, runtime.storage, runtime.clock, environ=runtime.environ)
        return SparkFiles(root, runtime.spark, wake)

    def name_of(spec: TableSpec) -> str:
        tier = job.tiers.get(spec.size)
        # Spark's own clients have the credentials of the job, not those of sources.
        is_streamed = tier is not None and tier.engine == "spark" and not of_tables(job.access, [spec])
        return LandingFolder.of(job.roots, spec).root if is_streamed else _LISTED

    return Streams(opened, name_of)
