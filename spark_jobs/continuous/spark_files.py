"""New files by Structured Streaming: its file source in the format `binaryFile` gives a stream of files.

Only their paths are asked for, so that no file is opened; should a plan ever ask for contents, the least length that is
allowed makes it fail at once. The checkpoint lies in a folder of this process and is forgotten with it: what was taken
is in the ledgers, and the first look of every table of a job that starts does not wait for the stream.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import join
from airflow_gddl.contract.spec import Roots, TableSpec
from spark_jobs.continuous.schedule import ANYWAY_SECONDS
from spark_jobs.discovery.file_stream import SPARK_FILES
from spark_jobs.job.faults import translated
from spark_jobs.table.runtime import SparkSource, spark_gone

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SETTINGS = {
    "spark.sql.sources.binaryFile.maxLength": "1",
    # All paths of a batch in one task: nothing is read, so that sizes say nothing of the work.
    "spark.sql.files.maxPartitionBytes": str(2**60),
    "spark.sql.files.openCostInBytes": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}
# Late files are told of up to a day behind the newest; older ones are found by the look that no file brings about.
_SOURCE = SPARK_FILES.having({"maxFilesPerTrigger": "10000", "maxFileAge": "1d"})
_MOST_ENDS, _SPAN = 5, 600.0
"""A stream that ended so often within so many seconds is started no more."""
_LOG = logging.getLogger(__name__)


class SparkFiles:
    """See `FileStream`. One query for all its tables, started again where it ends, with another Spark if need be.

    A folder that can't be listed ends the query; the next one goes without it.

    Args:
        wake: called, from Spark's thread, when there are news.
        now: seconds, monotonic.
    """

    def __init__(
        self, roots: Roots, spark: SparkSource, wake: Callable[[], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._landing, self._spark, self._wake, self._now = roots.landing.rstrip("/"), spark, wake, now
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
        """A query follows a pattern of paths, so that another set of tables is another query."""
        wanted = tuple(sorted(specs, key=lambda spec: spec.table))
        if [_watched(spec) for spec in wanted] == [_watched(spec) for spec in self._specs]:
            self._specs = wanted
            return
        self._specs = wanted
        self._start_anew()

    def news(self) -> Collection[str]:
        """
        Raises:
            RetriableError: `STREAM_BROKEN`, `SPARK_GONE`.
        """
        query = self._query
        if query is not None and not _is_active(query):
            self._mend(query)
        elif self._left_out and self._now() >= self._again:
            self._look_again()
        with self._changed:
            found, self._news = self._news, set()
        return found

    def taken(self, table: str) -> None:
        with self._changed:
            # News that came after its run began are still to be told, and keep it open.
            if table in self._open and table not in self._news:
                self._open.discard(table)
                self._changed.notify_all()

    def close(self) -> None:
        self._stop()

    def _mend(self, query: StreamingQuery) -> None:
        """Start again what has ended; where it ends again and again, whoever keeps the job is to start that again."""
        why, now = _why(query), self._now()
        if len(self._ends) == _MOST_ENDS and now - self._ends[0] < _SPAN:
            what = f"the stream of files ended {_MOST_ENDS + 1} times within {_SPAN:.0f} s: {why}"
            raise RetriableError("STREAM_BROKEN", what, where=self._landing, remedy="start the job again")
        self._ends.append(now)
        _LOG.warning("the stream of files ended and is started again: %s", why)
        self._start_anew()

    def _start_anew(self) -> None:
        """
        Raises:
            GddlError: it can't be started, and no folder is to blame.
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
        """The stream of all folders, or of those that can be listed."""
        from spark_jobs.continuous.spark_folders import unlisted  # noqa: PLC0415 - it imports Spark, which has started

        session = self._spark.for_table()
        try:
            self._start(session, self._specs)
        except Exception:
            self._stop()
            self._left_out = unlisted(session, _SOURCE, {spec.table: self._pattern([spec]) for spec in self._specs})
            if not self._left_out:
                raise
            for table, why in self._left_out.items():
                _LOG.warning("the stream of files continues without %s, whose folder can't be listed: %s", table, why)
            self._again = self._now() + ANYWAY_SECONDS
            self._start(session, [spec for spec in self._specs if spec.table not in self._left_out])

    def _look_again(self) -> None:
        """Take folders that can be listed again into the stream; meanwhile their tables' own turns list, and tell."""
        from spark_jobs.continuous.spark_folders import unlisted  # noqa: PLC0415 - imported when needed

        self._again = self._now() + ANYWAY_SECONDS
        specs = [spec for spec in self._specs if spec.table in self._left_out]
        try:
            bad = unlisted(self._spark.for_table(), _SOURCE, {spec.table: self._pattern([spec]) for spec in specs})
        except GddlError:
            raise
        except Exception as error:  # noqa: BLE001 - Spark died under the question; the stream will tell
            _LOG.info("folders that were left out could not be looked at: %s", error)
            return
        if len(bad) < len(specs):
            self._start_anew()

    def _pattern(self, specs: Sequence[TableSpec]) -> str:
        return join(self._landing, "{" + ",".join(_folder_of(spec) for spec in specs) + "}")

    def _start(self, session: SparkSession, specs: Sequence[TableSpec]) -> None:
        if not specs:
            return
        for name, value in SETTINGS.items():
            session.conf.set(name, value)
        self._folder = tempfile.mkdtemp(prefix="gddl-stream-")
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
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _batch(self, files: DataFrame, _number: int) -> None:
        """Hand the files' tables over, and come back when they were run: the stream is not to run ahead of the tables.

        After one trigger it comes back all the same, so that a slow table keeps no news from the others.
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
        """Whose files they are; all, should Spark name a file in another way than it was asked for."""
        names = {spec.table for spec in self._specs}
        place = self._landing.rpartition("://")[2]
        found, strange = set(), False
        for row in rows:
            parts = row["path"].partition(f"{place}/")[2].split("/")
            table = ".".join(parts[:2])
            found.add(table)
            strange = strange or table not in names
        return names if strange else found


def _folder_of(spec: TableSpec) -> str:
    return join(spec.schema_name, spec.name)


def _watched(spec: TableSpec) -> tuple[str, float]:
    return spec.table, spec.look_seconds


def _is_active(query: StreamingQuery) -> bool:
    try:
        return bool(query.isActive)
    except Exception:  # noqa: BLE001 - whatever py4j raises of a JVM that is gone
        return False


def _why(query: StreamingQuery) -> str:
    try:
        error = query.exception()
    except Exception:  # noqa: BLE001 - as above
        return "Spark is gone"
    return str(error).strip().partition("\n")[0] if error is not None else "it was stopped"
