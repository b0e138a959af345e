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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field

from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.sources.capture import capture_of
from airflow_gddl.contract.sources.kafka import settings_of, topic_of
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, Runtime
from spark_jobs.continuous.schedule import ANYWAY_SECONDS
from spark_jobs.discovery import (
    GLANCE_BACK,
    LandingLocation,
    Settling,
    glance,
    next_glance,
    settle_of,
)
from spark_jobs.rooms.dialects.kafka_log import KafkaLog
from spark_jobs.rooms.dialects.protocol import dialect_of

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


_ClusterSettings = tuple[tuple[str, str], ...]


@dataclass
class _Cluster:
    """Brokers of one address and user, and what their topics held when they were last asked.

    Attributes:
        next: time of the next question.
        again: time from which partitions are asked for anew, since a topic may get more.
    """

    log: KafkaLog
    specs: tuple[TableSpec, ...] = ()
    next: float = 0.0
    again: float = 0.0
    partitions: dict[str, int] = field(default_factory=dict)
    ends: dict[str, tuple[int, ...]] = field(default_factory=dict)
    answer: Future[Collection[str]] | None = None

    def changed(self, now: float) -> list[str]:
        """Tables whose topics have grown since the last question; all where the brokers don't answer."""
        topics: defaultdict[str, list[str]] = defaultdict(list)
        for spec in self.specs:
            topics[topic_of(spec)].append(spec.table)
        try:
            if now >= self.again:
                self.partitions, self.again = {}, now + ANYWAY_SECONDS
            for topic in topics.keys() - {name for name, partitions in self.partitions.items() if partitions}:
                self.partitions[topic] = self.log.partitions(topic)
            newest = self.log.ends({topic: self.partitions[topic] for topic in topics})
        except GddlError as error:  # a table's run raises it again, and reports it
            _LOG.info("topics could not be polled: %s", error)
            return [spec.table for spec in self.specs]
        changed = [t for topic, ends in newest.items() if ends and ends != self.ends.get(topic) for t in topics[topic]]
        self.ends = newest
        return changed


class TopicStream:
    """Which topics of Kafka have new messages, asked of the brokers in threads; see `Streams`.

    Each cluster is asked after the shortest `trigger` of its tables; no answer holds up the job.

    Args:
        environ: of the job, for connections.
        wake: called, from a thread, when there are new messages.
        now: seconds, monotonic.
    """

    def __init__(
        self,
        wake: Callable[[], None],
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._wake, self._environ, self._now = wake, environ, now
        self._clusters: dict[_ClusterSettings, _Cluster] = {}
        self._wrong: tuple[str, ...] = ()
        self._threads = ThreadPoolExecutor(4, thread_name_prefix="topics")

    def follow(self, specs: Sequence[TableSpec]) -> None:
        by_cluster: dict[_ClusterSettings, list[TableSpec]] = {key: [] for key in self._clusters}
        wrong = []
        for spec in specs:
            try:
                by_cluster.setdefault(tuple(sorted(settings_of(spec, self._environ).items())), []).append(spec)
            except GddlError:  # as above
                wrong.append(spec.table)
        for key, mine in by_cluster.items():
            if key not in self._clusters:
                self._clusters[key] = _Cluster(KafkaLog(dict(key)))
            self._clusters[key].specs = tuple(mine)
        self._wrong = tuple(wrong)

    def news(self) -> Collection[str]:
        tables, self._wrong = list(self._wrong), ()
        for cluster in self._clusters.values():
            if cluster.answer is not None and cluster.answer.done():
                tables += cluster.answer.result()
                cluster.answer = None
            if cluster.answer is None and cluster.specs and cluster.next <= self._now():
                cluster.next = self._now() + min(spec.look_seconds for spec in cluster.specs)
                cluster.answer = self._threads.submit(self._ask, cluster)
        return tables

    def _ask(self, cluster: _Cluster) -> Collection[str]:
        tables = cluster.changed(self._now())
        if tables:
            self._wake()
        return tables

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters.values():
            cluster.log.close()


class Streams:
    """Tells which tables have files that it has not told of yet: by listings; for tables that are read from Kafka, by
    its brokers; for those read from a source's log, by the time.

    Each is opened with the first of its tables.

    Args:
        wake: called, from any thread, when there is news to fetch.
    """

    def __init__(self, job: JobSpec, runtime: Runtime, wake: Callable[[], None]) -> None:
        self._roots, self._runtime, self._wake = job.roots, runtime, wake
        self._streams: dict[type[ListedFiles | TopicStream], ListedFiles | TopicStream] = {}

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """Replace the followed tables."""
        by_kind: dict[type[ListedFiles | TopicStream], list[TableSpec]] = {kind: [] for kind in self._streams}
        for spec in specs:
            kind = TopicStream if topic_of(spec) else CapturedLogs if capture_of(spec) else ListedFiles
            by_kind.setdefault(kind, []).append(spec)
        for kind, mine in by_kind.items():
            if kind not in self._streams:
                self._streams[kind] = self._opened(kind)
            self._streams[kind].follow(mine)

    def _opened(self, kind: type[ListedFiles | TopicStream]) -> ListedFiles | TopicStream:
        runtime = self._runtime
        if issubclass(kind, TopicStream):
            return kind(self._wake, runtime.environ)
        return kind(self._roots, runtime.storage, runtime.clock, environ=runtime.environ)

    def news(self) -> Collection[str]:
        """Tables with new files since the last call."""
        return [table for stream in self._streams.values() for table in stream.news()]

    def close(self) -> None:
        for stream in self._streams.values():
            stream.close()
