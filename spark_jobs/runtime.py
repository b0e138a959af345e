"""What a job is handed from outside: stores, clock, Spark, and someone to tell."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_gddl.contract.errors import GddlError, RetriableError
from spark_jobs.file_stream_source import FileStreamSource
from spark_jobs.looking_back import LookingBack
from spark_jobs.session_settings import SessionSettings
from spark_jobs.storage import Storage

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_gddl.contract.spec import JobSpec, TableSpec
    from spark_jobs.table_job import Declined, TableOutcome

Clock = Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a batch that has just been made durable, or `done`."""

    table: str
    step: str
    batch: int = 0
    batches: int | None = None
    rows: int = 0


Observer = Callable[[Step], None]


_AGAIN_AFTER = 60.0
"""Seconds after which a start that failed for a reason that may pass is tried again: a job may go on for days."""


class SparkSource(Protocol):
    """Hands out Spark sessions; the first one starts Spark."""

    def for_table(self) -> SparkSession: ...


def unheard(_: SparkSession) -> None:
    """Tell nobody."""


@dataclass
class LazySpark:
    """Starts Spark when a table has work, and gives every table a session of its own for its transaction settings.

    A start that failed is not tried again for the next table; where the reason may pass, it is a minute later.

    Attributes:
        opened: told of the session once it is there.
        now: seconds, monotonic.
    """

    settings: SessionSettings = field(default_factory=SessionSettings)
    opened: Callable[[SparkSession], None] = unheard
    now: Callable[[], float] = time.monotonic
    _session: SparkSession | None = None
    _failed: GddlError | None = None
    _again: float = float("inf")
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def for_table(self) -> SparkSession:
        from spark_jobs.session import SQL_SETTINGS  # noqa: PLC0415 - a job without work imports no Spark

        session = self._opened().newSession()
        for key, value in SQL_SETTINGS.items():
            session.conf.set(key, value)
        return session

    def _opened(self) -> SparkSession:
        from spark_jobs.session import open_session  # noqa: PLC0415 - as above

        with self._starting:
            if self._failed is not None and self.now() < self._again:
                raise self._failed
            if self._session is None:
                try:
                    self._session = open_session(self.settings)
                except GddlError as error:
                    passing = isinstance(error, RetriableError)
                    self._failed, self._again = error, self.now() + _AGAIN_AFTER if passing else float("inf")
                    raise
                self._failed = None
                self.opened(self._session)
            return self._session

    def stop(self) -> None:
        """End Spark and remove what it kept on this machine's disk."""
        if self._session is None:
            return
        from spark_jobs.session import SCRATCH  # noqa: PLC0415 - as above

        scratch = Path(self._session.conf.get("spark.gddl.scratch", "") or "")
        self._session.stop()
        self._session = None
        if scratch.name.startswith(SCRATCH):
            shutil.rmtree(scratch, ignore_errors=True)


def utc_now() -> datetime:
    return datetime.now(UTC)


def silent(_: Step) -> None:
    """Tell nobody."""


class Spread(Protocol):
    """Works on many small tables at once, each in a task of its own."""

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TableOutcome | Declined]:
        """Each table's outcome as soon as it is durable; those that the engine can't take come as declined."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything a job uses that isn't in its JobSpec.

    Attributes:
        environ: where connections to source databases are found by their names.
        spread: over what tables of engine `delta_rs` are spread; null: they are worked on in this process.
        files: the stream that tells tables of engine `spark` of their new files; null: their folders are listed.
        looks: how far back the folders of a job that goes on were looked through, and when.
    """

    storage: Storage
    spark: SparkSource
    clock: Clock = utc_now
    observe: Observer = silent
    spread: Spread | None = None
    files: FileStreamSource | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    looks: LookingBack = field(default_factory=LookingBack)


def iso(moment: datetime) -> str:
    """ISO 8601 UTC with microseconds, the one form in which times are kept."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")
