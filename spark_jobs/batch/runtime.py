"""What a run needs of its process: Spark, clock, store, and who hears of its steps."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from airflow_gddl.contract.codes import JOB_CANCELLED, NEEDS_SPARK, SPARK_GONE
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.packages import LEAVES_SPARK_OUT
from airflow_gddl.contract.result import PROGRESS, WITHOUT_SPARK
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.batch.totals import TaskOutcome
from spark_jobs.discovery import (
    FileStreamSource,
)
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.spark.session_settings import SessionSettings, is_on_a_cluster
from spark_jobs.tables.places import DeclinedError, TaskBounds, usual_bounds

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_jobs.tables.file_parts import PartBounds


Clock = Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a batch that has just ended, what it writes being durable; `done`; or `starting Spark`, which may take
    a minute."""

    table: str
    step: str
    batch: int = 0
    rows: int = 0


Observer = Callable[[Step], None]

_LOG = logging.getLogger(__name__)
_AGAIN_AFTER = 60.0
"""Seconds after which a start that failed for a reason that may pass is tried again: a job may run for days."""


def silent(_: object) -> None:
    """Report nothing."""


def print_step(step: Step) -> None:
    """A line on standard error, for the program that started the job.

    One write a line: a pipe that several processes share keeps it whole.
    """
    sys.stderr.write(f"{PROGRESS}{json.dumps(asdict(step))}\n")
    sys.stderr.flush()


@dataclass
class LazySpark:
    """Starts Spark when a table has work, and gives each table its own session for its transaction settings.

    A failed start is not repeated for the next table; a retriable one is repeated a minute later. If
    the Java process was started here for this machine alone and has ended, another is started; elsewhere its driver was
    the job, and whoever started that has to start another.

    Attributes:
        opened: called with the session once it is there.
        now: seconds, monotonic.
        end: why this process will have no Spark again; None: it may have one.
        place: `JobResult.place` of tables that are worked on with it; empty before it is started.
    """

    settings: SessionSettings = field(default_factory=SessionSettings)
    opened: Callable[[SparkSession], None] = silent
    now: Callable[[], float] = time.monotonic
    _session: SparkSession | None = None
    _scratch: Path | None = None
    _failed: GddlError | None = None
    _again: float = float("inf")
    end: GddlError | None = None
    place: str = ""
    _lost: int = 0
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def for_table(self, work: int | None = None, /) -> SparkSession:
        """A session; the first one starts Spark.

        Args:
            work: what its table has to do (`PendingWork.cost`); None: not known.
        """
        from spark_jobs.spark.session import SQL_SETTINGS, configure  # noqa: PLC0415 - a job without work imports no Spark

        session = self._opened(work).newSession()
        configure(session, SQL_SETTINGS)
        return session

    @property
    def is_started(self) -> bool:
        """Whether `for_table` answers at once."""
        return self._session is not None

    @property
    def was_started_here(self) -> bool:
        """Whether this process has started the Java process of its Spark, or of its driver."""
        return self._scratch is not None

    def losses(self) -> int:
        """How often a started Spark was lost, including a currently lost one."""
        with self._starting:
            return self._lost + (1 if self._is_gone else 0)

    def _opened(self, work: int | None) -> SparkSession:
        from spark_jobs.spark.application import place_of  # noqa: PLC0415 - imported when needed
        from spark_jobs.spark.session import open_session, scratch_of  # noqa: PLC0415 - as above

        with self._starting:
            if self._is_gone:
                self._forget()
            if self._failed is not None and self.now() < self._again:
                raise self._failed
            if self._session is None:
                try:
                    self._session = open_session(self.settings.suited(work))
                except GddlError as error:
                    # After a successful start, a failed one is more likely transient.
                    passing = isinstance(error, RetriableError) or self._lost > 0
                    self._failed, self._again = error, self.now() + _AGAIN_AFTER if passing else float("inf")
                    raise
                self._failed, self._scratch = None, scratch_of(self._session)
                self.place = place_of(self._session)
                self.opened(self._session)
            return self._session

    @property
    def _is_gone(self) -> bool:
        if self._session is None:
            return False
        from spark_jobs.spark.session import is_gone  # noqa: PLC0415 - imported when needed

        return is_gone(self._session)

    def _forget(self) -> None:
        """Handle a lost Spark: start the next one, or never again."""
        self._lost += 1
        _LOG.warning("Spark's Java process was lost (%d so far in this job)", self._lost)
        if self._scratch is None or is_on_a_cluster(os.environ):
            self.end = self._failed = spark_gone()
            self._again = float("inf")
        self.stop()

    def cancel(self) -> None:
        """End the Spark jobs that run now, whose callers get an error; see `cancel_jobs`. From any thread."""
        session = self._session
        if session is not None:
            from spark_jobs.spark.application import cancel_jobs  # noqa: PLC0415 - imported when needed

            with suppress(Exception):  # it ends, or is a remote one, whose operations are stopped by its own method
                cancel_jobs(session)

    def stop(self) -> None:
        """End Spark and remove what it kept on this machine's disk."""
        if self._session is None:
            return
        from spark_jobs.spark.session import bury, is_gone  # noqa: PLC0415 - imported when needed

        session, self._session = self._session, None
        gone = is_gone(session)
        if self.was_started_here and (gone or not is_on_a_cluster(os.environ)):
            bury(session)
        elif not gone:
            session.stop()
        if self._scratch is not None:
            scratch_folders.remove(self._scratch)


@dataclass(frozen=True)
class NoSpark:
    """In place of `LazySpark` in a task, whose driver has Spark."""

    place: str = ""

    def for_table(self, _work: int | None = None, /) -> SparkSession:
        raise DeclinedError("it needs Spark")

    @property
    def is_started(self) -> bool:
        return True

    def losses(self) -> int:
        return 0

    @property
    def end(self) -> None:
        return None


@dataclass(frozen=True)
class SparkLeftOut(NoSpark):
    """In place of `LazySpark` in a job that uses no Spark: each table is worked on in one task, in this process."""

    place: str = WITHOUT_SPARK

    def for_table(self, _work: int | None = None, /) -> SparkSession:
        remedy = f"run the job without {LEAVES_SPARK_OUT}, where there is a Java"
        raise FatalError(NEEDS_SPARK, f"{LEAVES_SPARK_OUT} is set", remedy=remedy)


SparkSource: TypeAlias = LazySpark | NoSpark
"""Hands out Spark sessions, or says why there are none."""


def spark_gone() -> RetriableError:
    what = "the Java process in which Spark runs has ended, or has stopped its Spark"
    remedy = "run again; if it lacked memory, give the tier less or the machine more"
    return RetriableError(SPARK_GONE, what, remedy=remedy)


def cancelled(signal: str) -> RetriableError:
    what = f"the run was stopped by {signal} before this table was done"
    return RetriableError(JOB_CANCELLED, what, remedy="run again; it resumes where it stopped")


def utc_now() -> datetime:
    return datetime.now(UTC)


class Spread(Protocol):
    """Works on many small tables at once, each in a task of its own."""

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TaskOutcome]:
        """Each table's outcome as soon as it is durable; `Declined` for tables that one task can't take."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything a job uses that isn't in its JobSpec.

    Attributes:
        environ: with connections to source databases by name.
        spread: works on tables in one task each; None: the driver does.
        files: the stream that gives tables over many tasks their new files; None: their folders are listed.
        parts: how one task divides the files of a first load; None: as usual.
        bounds_of: by the name of a table over many tasks, what is worked on in the driver.
        follow: called with a table's name between its batches, so that what points to its versions follows.
        limits: of what the job reads from sources itself.
        stopped_by: name of the signal that asked the job to end; empty: none did. Tables end before their next step.
    """

    storage: Storage
    spark: SparkSource
    clock: Clock = utc_now
    observe: Observer = silent
    spread: Spread | None = None
    files: FileStreamSource | None = None
    parts: PartBounds | None = None
    bounds_of: Callable[[str], TaskBounds] = usual_bounds
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    follow: Callable[[str], None] = silent
    limits: SourceLimits = field(default_factory=SourceLimits)
    stopped_by: Callable[[], str] = str


def iso(moment: datetime) -> str:
    """ISO 8601 UTC with microseconds, the one form in which times are kept."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
