"""File discovery of a continuous job: the place to add another source, such as a platform's own.

A stream only gives hints. The ledger decides in each table's run, so a stream that omits or repeats files,
or starts again, causes no loss and no duplicates.

Structured Streaming finds new files by its file source in format `binaryFile`. Only paths are selected, so no file is
opened; if a plan selected contents, the minimal allowed length would make it fail at once. The checkpoint is in a
folder of this process and removed with it: ingested files are in the ledgers, and the first poll of each table does not
wait for the stream.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import LandingFolder, Layout, join
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.sources.capture import capture_of
from airflow_gddl.contract.sources.kafka import settings_of, topic_of
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.batch.runtime import Clock, Runtime, SparkSource, spark_gone
from spark_jobs.continuous.schedule import ANYWAY_SECONDS
from spark_jobs.dialects.kafka_log import KafkaLog
from spark_jobs.dialects.protocol import dialect_of
from spark_jobs.discovery import (
    GLANCE_BACK,
    SPARK_FILES,
    FileStreamSource,
    LandingLocation,
    Settling,
    glance,
    next_glance,
    settle_of,
)
from spark_jobs.job.job_faults import translated

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS = {
    "spark.sql.sources.binaryFile.maxLength": "1",
    # All paths of a batch in one task: nothing is read, so sizes don't matter.
    "spark.sql.files.maxPartitionBytes": str(2**60),
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}

# Late files are reported up to a day behind the newest; periodic polls find older ones.
_SOURCE = SPARK_FILES.having({"maxFilesPerTrigger": "10000", "maxFileAge": "1d"})
_MOST_ENDS, _SPAN = 5, 600.0
"""A stream that ended so often within so many seconds is not restarted."""
_LOG = logging.getLogger(__name__)
_MISSING_FOLDER = "PATH_NOT_FOUND"
"""Condition of Spark's error for a folder that does not exist."""


class SparkFiles:
    """See `FileStream`. One query for all its tables, restarted when it ends, with a new Spark if necessary.

    A folder that can't be listed ends the query; the next query leaves it out.

    Args:
        landing: root of its tables' folders.
        wake: called, from Spark's thread, when there are new files.
        now: seconds, monotonic.
    """

    def __init__(
        self, landing: str, spark: SparkSource, wake: Callable[[], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._landing, self._spark, self._wake, self._now = landing.rstrip("/"), spark, wake, now
        self._specs: tuple[TableSpec, ...] = ()
        self._query: StreamingQuery | None = None
        self._folder: str | None = None
        self._changed = threading.Condition()
        self._news: set[str] = set()
        self._open: set[str] = set()
        self._closed = False
        self._every = 0.0
        self._left_out: dict[str, str] = {}
        self._again = 0.0
        self._ends: deque[float] = deque(maxlen=_MOST_ENDS)

    def follow(self, specs: Sequence[TableSpec]) -> None:
        """A query has a fixed path pattern, so another set of tables needs another query."""
        wanted = tuple(sorted(specs, key=lambda spec: spec.table))
        if [_watched(spec) for spec in wanted] == [_watched(spec) for spec in self._specs]:
            self._specs = wanted
            return
        self._specs = wanted
        self._restart()

    def news(self) -> Collection[str]:
        """
        Raises:
            RetriableError: `STREAM_BROKEN`, `SPARK_GONE`.
        """
        query = self._query
        if query is not None and not _is_active(query):
            self._recover(query)
        elif self._left_out and self._now() >= self._again:
            self._retry_left_out()
        with self._changed:
            tables, self._news = self._news, set()
        return tables

    def taken(self, table: str) -> None:
        with self._changed:
            # Files that arrived after its run started are not reported yet, and keep it open.
            if table in self._open and table not in self._news:
                self._open.discard(table)
                self._changed.notify_all()

    def close(self) -> None:
        self._stop()

    def _recover(self, query: StreamingQuery) -> None:
        """Restart an ended query; if it ends repeatedly, the job has to be restarted."""
        why, now = _why(query), self._now()
        if len(self._ends) == _MOST_ENDS and now - self._ends[0] < _SPAN:
            what = f"the file stream ended {_MOST_ENDS + 1} times within {_SPAN:.0f} s: {why}"
            raise RetriableError("STREAM_BROKEN", what, where=self._landing, remedy="restart the job")
        self._ends.append(now)
        _LOG.warning("the file stream ended and is restarted: %s", why)
        self._restart()

    def _restart(self) -> None:
        """
        Raises:
            GddlError: it can't be started, for a reason other than a folder.
        """
        self._stop()
        self._left_out, lost = {}, self._spark.losses()
        if not self._specs:
            return
        try:
            self._start_what_can_be()
        except GddlError:
            raise
        except Exception as error:
            raise (translated(error) if self._spark.losses() == lost else spark_gone()) from error

    def _start_what_can_be(self) -> None:
        """Start the stream of all folders, or of those that can be listed."""
        session = self._spark.for_table()
        try:
            self._start(session, self._specs)
        except Exception:
            self._stop()
            self._left_out = unlisted(session, _SOURCE, {spec.table: self._pattern([spec]) for spec in self._specs})
            if not self._left_out:
                raise
            for table, why in self._left_out.items():
                _LOG.warning("the file stream continues without %s, whose folder can't be listed: %s", table, why)
            self._again = self._now() + ANYWAY_SECONDS
            self._start(session, [spec for spec in self._specs if spec.table not in self._left_out])

    def _retry_left_out(self) -> None:
        """Add folders that can be listed again to the stream; until then their tables' turns list them."""
        self._again = self._now() + ANYWAY_SECONDS
        specs = [spec for spec in self._specs if spec.table in self._left_out]
        try:
            bad = unlisted(self._spark.for_table(), _SOURCE, {spec.table: self._pattern([spec]) for spec in specs})
        except GddlError:
            raise
        except Exception as error:  # noqa: BLE001 - Spark was lost meanwhile; the stream reports it
            _LOG.info("excluded folders could not be checked: %s", error)
            return
        if len(bad) < len(specs):
            self._restart()

    def _pattern(self, specs: Sequence[TableSpec]) -> str:
        return join(self._landing, "{" + ",".join(_folder_of(spec) for spec in specs) + "}")

    def _start(self, session: SparkSession, specs: Sequence[TableSpec]) -> None:
        if not specs:
            return
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        self._folder = str(scratch_folders.make("stream"))
        self._closed = False
        self._every = min(spec.look_seconds for spec in specs)
        writer = _SOURCE.files(session, self._pattern(specs)).select("path").writeStream.foreachBatch(self._batch)
        writer = writer.option("checkpointLocation", f"file://{self._folder}").queryName("gddl-files")
        self._query = writer.trigger(processingTime=f"{self._every:g} seconds").start()

    def _stop(self) -> None:
        with self._changed:
            self._closed = True
            self._open.clear()
            self._changed.notify_all()
        if self._query is not None:
            with suppress(Exception):  # it has ended, or ends with its Spark
                self._query.stop()
            self._query = None
        if self._folder is not None:
            scratch_folders.remove(Path(self._folder))
            self._folder = None

    def _batch(self, files: DataFrame, _number: int) -> None:
        """Report the files' tables, and return once they have run, so that the stream does not run ahead of them.

        It returns after one trigger interval in any case, so that a slow table does not delay the others.
        """
        tables = self._tables(files.toLocalIterator())
        with self._changed:
            if self._closed or not tables:
                return
            self._news |= tables
            self._open |= tables
        self._wake()
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._open & tables, self._every)

    def _tables(self, rows: Iterable[Any]) -> set[str]:
        """The tables of these files; all tables if Spark names a file in an unexpected way."""
        names = {spec.name_in_source: spec.table for spec in self._specs}
        place = self._landing.rpartition("://")[2]
        tables, strange = set(), False
        for row in rows:
            parts = row["path"].partition(f"{place}/")[2].split("/")
            table = names.get(".".join(parts[:2]))
            strange = strange or table is None
            tables |= {table} if table is not None else set()
        return set(names.values()) if strange else tables


def _folder_of(spec: TableSpec) -> str:
    return join(*spec.name_in_source.split(".", 1))


def _watched(spec: TableSpec) -> tuple[str, float]:
    return spec.table, spec.look_seconds


def _is_active(query: StreamingQuery) -> bool:
    try:
        return bool(query.isActive)
    except Exception:  # noqa: BLE001 - py4j raises various errors for a lost JVM
        return False


def _why(query: StreamingQuery) -> str:
    try:
        error = query.exception()
    except Exception:  # noqa: BLE001 - as above
        return "Spark has ended"
    return str(error).strip().partition("\n")[0] if error is not None else "it was stopped"


def unlisted(session: SparkSession, source: FileStreamSource, patterns: Mapping[str, str]) -> dict[str, str]:
    """Names of folders that can't be listed, and why. A missing folder is accepted: it may be created later."""
    from py4j.protocol import Py4JJavaError  # noqa: PLC0415 - comes with pyspark
    from pyspark.errors import PySparkException  # noqa: PLC0415 - heavy

    faults = {}
    for name, pattern in patterns.items():
        reader = session.read.format(source.format).option("recursiveFileLookup", "true")
        try:
            reader.schema(source.schema or "path string").load(pattern)  # lists, and opens no file
        except PySparkException as error:
            if error.getCondition() != _MISSING_FOLDER:
                faults[name] = _first_line(error)
        except Py4JJavaError as error:
            faults[name] = _first_line(error)
    return faults


def _first_line(error: Exception) -> str:
    lines = [line.strip(": ") for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Exception" in line), lines[0] if lines else type(error).__name__)[:300]


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
        return [*super().news(), *self._readers()]

    def _readers(self) -> Iterable[str]:
        if self._now() < self._next_read:
            return
        self._next_read = self._now() + LOG_SECONDS
        for tables in self._sources.values():
            yield tables[0]
            tables.rotate(-1)  # a table that fails holds up its own turn alone


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
    """Which topics of Kafka have new messages, asked of the brokers in threads; see `FileStream`.

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

    def taken(self, table: str) -> None:
        """Nothing to do: a reported table is retried by the schedule until it succeeds."""

    def close(self) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for cluster in self._clusters.values():
            cluster.log.close()


_LISTED, _TOPICS, _LOGS = "", "topics", "logs"
"""Names of the streams of listed tables, of those read from Kafka or from logs; others: landing roots."""


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
    """Structured Streaming for tables over many tasks, listings for the others and where Spark is only remote; for
    tables that are read from Kafka, its brokers; for those read from a source's log, the time.

    Args:
        wake: called, from any thread, when there are new files to fetch.
    """
    is_remote = "SPARK_REMOTE" in runtime.environ  # Spark Connect runs `foreachBatch` in another process than the job

    def opened(root: str) -> FileStream:
        if root == _TOPICS:
            return TopicStream(wake, runtime.environ)
        if root in (_LISTED, _LOGS):
            listed = ListedFiles if root == _LISTED else CapturedLogs
            return listed(job.roots, runtime.storage, runtime.clock, environ=runtime.environ)
        return SparkFiles(root, runtime.spark, wake)

    def name_of(spec: TableSpec) -> str:
        if topic_of(spec):
            return _TOPICS
        if capture_of(spec):
            return _LOGS
        tier = None if is_remote else job.tiers.get(spec.size)
        # Spark's own clients have the credentials of the job, not those of sources.
        is_streamed = tier is not None and not tier.for_row(spec).in_one_task and not of_tables(job.access, [spec])
        return LandingFolder.of(job.roots, spec).root if is_streamed else _LISTED

    return Streams(opened, name_of)
