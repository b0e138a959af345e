"""What a run needs of its process, and what it counts."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import (
    ExpectationCount,
    Freshness,
    JobResult,
    MainCounts,
    Mode,
    ResultColumn,
    RunWarning,
    summed,
)
from airflow_gddl.contract.spec import EngineName, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.delta.table_definition import replica_columns
from spark_jobs.discovery import DeepListings, FileStreamSource
from spark_jobs.plan.columns import select_columns
from spark_jobs.plan.discover import NotListed
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.spark.session_settings import SessionSettings, is_on_a_cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_gddl.contract.spec import JobSpec, TableSpec
    from spark_jobs.engines.port import Engine


Clock = Callable[[], datetime]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A step of a batch that has just been made durable; `done`; or `starting Spark`, which may take a minute."""

    table: str
    step: str
    batch: int = 0
    rows: int = 0


Observer = Callable[[Step], None]

PROGRESS = "GDDL-PROGRESS "
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


class SparkSource(Protocol):
    """Hands out Spark sessions; the first one starts Spark."""

    def for_table(self, work: int | None = None, /) -> SparkSession:
        """A session; `work`: what its table has to do (`PendingWork.cost`); None: not known."""
        ...

    @property
    def is_started(self) -> bool:
        """Whether `for_table` answers at once."""
        ...

    def losses(self) -> int:
        """How often a started Spark was lost, including a currently lost one."""
        ...

    @property
    def end(self) -> GddlError | None:
        """Why there will be no Spark again in this process; null while there may."""
        ...


@dataclass
class LazySpark:
    """Starts Spark when a table has work, and gives each table its own session for its transaction settings.

    A failed start is not repeated for the next table; a retriable one is repeated a minute later. If
    the Java process was started here for this machine alone and has ended, another is started; elsewhere its driver was
    the job, and whoever started that has to start another.

    Attributes:
        opened: called with the session once it is there.
        now: seconds, monotonic.
    """

    settings: SessionSettings = field(default_factory=SessionSettings)
    opened: Callable[[SparkSession], None] = silent
    now: Callable[[], float] = time.monotonic
    _session: SparkSession | None = None
    _scratch: Path | None = None
    _failed: GddlError | None = None
    _again: float = float("inf")
    _end: GddlError | None = None
    _lost: int = 0
    _starting: threading.Lock = field(default_factory=threading.Lock)

    def for_table(self, work: int | None = None, /) -> SparkSession:
        from spark_jobs.spark.session import SQL_SETTINGS, configure  # noqa: PLC0415 - a job without work imports no Spark

        session = self._opened(work).newSession()
        configure(session, SQL_SETTINGS)
        return session

    @property
    def is_started(self) -> bool:
        return self._session is not None

    def losses(self) -> int:
        with self._starting:
            return self._lost + (1 if self._is_gone else 0)

    @property
    def end(self) -> GddlError | None:
        return self._end

    def _opened(self, work: int | None) -> SparkSession:
        from spark_jobs.spark.session import open_session, scratch_of  # noqa: PLC0415 - imported when needed

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
            self._end = self._failed = spark_gone()
            self._again = float("inf")
        self.stop()

    def cancel(self) -> None:
        """End the Spark jobs that run now; their callers get an error. From any thread."""
        session = self._session
        if session is not None:
            with suppress(Exception):  # it ends, or is a remote one, whose operations are stopped by its own method
                session.sparkContext.cancelAllJobs()

    def stop(self) -> None:
        """End Spark and remove what it kept on this machine's disk."""
        if self._session is None:
            return
        from spark_jobs.spark.session import bury, is_gone  # noqa: PLC0415 - imported when needed

        session, self._session = self._session, None
        if not is_gone(session):
            session.stop()
        elif self._scratch is not None:
            bury(session)
        if self._scratch is not None:
            scratch_folders.remove(self._scratch)


def spark_gone() -> RetriableError:
    what = "the Java process in which Spark runs has ended, or has stopped its Spark"
    remedy = "run again; if it lacked memory, give the tier less or the machine more"
    return RetriableError("SPARK_GONE", what, remedy=remedy)


def cancelled(signal: str) -> RetriableError:
    what = f"the run was stopped by {signal} before this table was done"
    return RetriableError("JOB_CANCELLED", what, remedy="run again; it resumes where it stopped")


def utc_now() -> datetime:
    return datetime.now(UTC)


class Spread(Protocol):
    """Works on many small tables at once, each in a task of its own."""

    def run(self, job: JobSpec, specs: Sequence[TableSpec]) -> Iterator[TableOutcome | Declined]:
        """Each table's outcome as soon as it is durable; `Declined` for tables that the engine can't process."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything a job uses that isn't in its JobSpec.

    Attributes:
        environ: with connections to source databases by name.
        spread: spreads tables of engine `delta_rs`; null: they run in this process.
        files: the stream that gives tables of engine `spark` their new files; null: their folders are listed.
        engine: of every table, regardless of its tier, such as a `MemoryEngine`; null: the tier's.
        deep_listings: recent deep listings of a continuous job.
        follow: called with a table's name between its batches, so that what points to its versions follows.
        stopped_by: name of the signal that asked the job to end; empty: none did. Tables end before their next step.
    """

    storage: Storage
    spark: SparkSource
    clock: Clock = utc_now
    observe: Observer = silent
    spread: Spread | None = None
    files: FileStreamSource | None = None
    engine: Engine | None = None
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    deep_listings: DeepListings = field(default_factory=DeepListings)
    follow: Callable[[str], None] = silent
    stopped_by: Callable[[], str] = str


def iso(moment: datetime) -> str:
    """ISO 8601 UTC with microseconds, the one form in which times are kept."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


_SAMPLE = 5
MOST_COLUMNS = 500
"""Columns that a result lists."""


_UNLIKE = frozenset({"started_at", "schema_changes", "warnings", "max_commit_ts", "not_listed", "columns"})
"""Fields of `RunTotals` that a result has in another form; it has the others as they are."""


@dataclass
class RunTotals:
    """Counts so far; updated during the run, so that a failed run reports its completed batches.

    Attributes:
        started_at: when the run started, ISO 8601 UTC; empty: as it ends.
    """

    started_at: str = ""
    mode: Mode = "incremental"
    engine: EngineName = "spark"
    batches: int = 0
    files: int = 0
    rows_read: int = 0
    bytes_read: int = 0
    changes_written: int = 0
    redelivered: int = 0
    quarantined: int = 0
    rescued: int = 0
    filtered: int = 0
    truncates: int = 0
    late_ignored: int = 0
    main: MainCounts = field(default_factory=MainCounts)
    schema_changes: list[str] = field(default_factory=list)
    warnings: dict[str, RunWarning] = field(default_factory=dict)
    max_commit_ts: str | None = None
    version: int | None = None
    not_listed: NotListed | None = None
    revisit: bool = False
    columns: tuple[ResultColumn, ...] = ()
    expectations: tuple[ExpectationCount, ...] = ()

    def tally(self, spec: TableSpec, tallies: Mapping[str, tuple[int, int]]) -> None:
        """Count rows by expectation: those that were checked, and those that failed."""
        found = [
            ExpectationCount(name=name, on=spec.expect[name].on, checked=checked, failed=failed)
            for name, (checked, failed) in tallies.items()
        ]
        self.expectations = summed(self.expectations, found)

    def warn(self, warnings: Iterable[RunWarning]) -> None:
        """Add warnings; those of one code become one, counts added."""
        for warning in warnings:
            known = self.warnings.get(warning.code)
            if known is None:
                self.warnings[warning.code] = warning
            else:
                sample = tuple(dict.fromkeys((*known.sample, *warning.sample)))[:_SAMPLE]
                self.warnings[warning.code] = replace(known, count=known.count + warning.count, sample=sample)

    def count(self, main: MainCounts) -> None:
        self.main = MainCounts(
            inserted=self.main.inserted + main.inserted,
            updated=self.main.updated + main.updated,
            deleted=self.main.deleted + main.deleted,
            rows=self.main.rows,
        )

    def result(self, table: str, run_id: str, ended: datetime) -> JobResult:
        """As a succeeded result, or a skipped one where there was nothing to do."""
        started_at = self.started_at or ended.isoformat(timespec="microseconds")
        return JobResult(
            table=table,
            status="succeeded" if self.batches else "skipped",
            **{f.name: getattr(self, f.name) for f in fields(self) if f.name not in _UNLIKE},
            schema_changes=tuple(self.schema_changes),
            warnings=tuple(self.warnings.values()),
            freshness=_freshness(self.max_commit_ts, ended),
            seconds=round((ended - datetime.fromisoformat(started_at)).total_seconds(), 3),
            run_id=run_id,
            started_at=started_at,
            not_listed_days=0 if self.not_listed is None else self.not_listed.days,
            listed_in_full_at=None if self.not_listed is None else self.not_listed.since,
            columns=self.columns[:MOST_COLUMNS],
            columns_left_out=max(0, len(self.columns) - MOST_COLUMNS),
        )


def _freshness(commit_ts: str | None, now: datetime) -> Freshness:
    if commit_ts is None:
        return Freshness()
    lag = (now - datetime.fromisoformat(commit_ts)).total_seconds()
    return Freshness(commit_ts=commit_ts, lag_seconds=round(lag, 3))


@dataclass(frozen=True)
class TableOutcome:
    """A result, and whether its failure is retriable."""

    result: JobResult
    retriable: bool = False


@dataclass(frozen=True)
class Declined:
    """A table that its tier's engine can't take; `totals` counts what was done before."""

    spec: TableSpec
    reason: str
    totals: RunTotals = field(default_factory=RunTotals)


def is_busy(result: JobResult) -> bool:
    """Whether another run, e.g. maintenance, holds the table: retried, not failed."""
    return result.error is not None and result.error.code == "TABLE_BUSY"


def columns_of(schema: BatchSchema) -> tuple[ResultColumn, ...]:
    """The replica's columns after a batch, in table order.

    A column that the batch's files lack has its own name as its source, and is masked as the metadata says.
    """
    table = schema.table_schema
    delivered = {column.name for column in table.data}
    sources: dict[str, tuple[str, ...]] = dict.fromkeys(delivered, ())
    masked = set()
    for group in schema.groups:
        for action in group.plan.actions:
            if action.source is not None:
                known = sources.get(action.target.name, ())
                files = _in_files(action.source, table.spec)
                sources[action.target.name] = tuple(dict.fromkeys((*known, *files)))
                masked |= {action.target.name} if action.source in group.masks else set()
    absent = [name for name in delivered if not sources[name]]
    sources |= {name: (name,) for name in absent}
    masked |= set(select_columns(absent, table.spec, stored=True).masks)
    return tuple(
        ResultColumn(
            name=column.name, type=str(column.type), sources=sources.get(column.name, ()), masked=column.name in masked
        )
        for column in replica_columns(table)
    )


def _in_files(column: str, spec: TableSpec) -> tuple[str, ...]:
    """The columns of files that a delivered column is, or is computed from."""
    text = spec.derive.get(column)
    names = (column,) if text is None else spec.expressions[text].columns
    before = {after.lower(): name for name, after in spec.rename.items()}
    return tuple(before.get(name.lower(), name) for name in names)
