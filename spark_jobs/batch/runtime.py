"""What a run needs of its process, and what it counts; and one table in one run: how its parts are opened."""

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
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from airflow_gddl.contract.connections import key_id
from airflow_gddl.contract.errors import OF_FILES, GddlError, RetriableError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import (
    STARTING_SPARK,
    CommitMethod,
    ExpectationCount,
    Freshness,
    JobResult,
    MainCounts,
    Mode,
    ResultColumn,
    RunWarning,
    TableTasks,
    summed,
)
from airflow_gddl.contract.spec import JobSpec, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores import scratch as scratch_folders
from spark_jobs.dialects.protocol import Dialect, dialect_of
from spark_jobs.discovery import (
    DeepListings,
    FileStreamSource,
    LandingLocation,
    NotifiedFile,
    Settling,
    Wait,
    discover,
    discover_notified,
    discover_unread,
    settle_of,
)
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.ledger.load_progress import LoadProgress, read_progress
from spark_jobs.plan.discover import CERTAIN, BatchLimits, Discovery, NotListed
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.sharding import require_same_kind
from spark_jobs.plan.table_schema import select_columns
from spark_jobs.rules.batch_schema import BatchSchema
from spark_jobs.spark.session_settings import SessionSettings, is_on_a_cluster
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.engine import Engine, TableContext
from spark_jobs.tables.table_definition import replica_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_gddl.contract.spec import JobSpec, TableSpec
    from spark_jobs.tables.engine import Engine


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
        """Each table's outcome as soon as it is durable; `Declined` for tables that one task can't take."""
        ...


@dataclass(frozen=True, kw_only=True)
class Runtime:
    """Everything a job uses that isn't in its JobSpec.

    Attributes:
        environ: with connections to source databases by name.
        spread: spreads tables in one task each; null: they run in this process.
        files: the stream that gives tables over many tasks their new files; null: their folders are listed.
        engine: of every table, regardless of its tier; null: the tier's.
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


_UNLIKE = frozenset(
    {"started_at", "schema_changes", "warnings", "max_commit_ts", "complete_until", "not_listed", "columns"}
)
"""Fields of `RunTotals` that a result has in another form; it has the others as they are."""


@dataclass
class RunTotals:
    """Counts so far; updated during the run, so that a failed run reports its completed batches.

    Attributes:
        started_at: when the run started, ISO 8601 UTC; empty: as it ends.
        complete_until: see `Freshness`.
    """

    started_at: str = ""
    mode: Mode = "incremental"
    tasks: TableTasks = "many"
    commit: CommitMethod = "direct"
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
    complete_until: str | None = None
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
            freshness=replace(_freshness(self.max_commit_ts, ended), complete_until=self.complete_until),
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
    """A table that one task can't take; `totals` counts what was done before."""

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


def make_engine(runtime: Runtime, work: int | None = None, *, in_one_task: bool) -> Engine:
    """The runtime's engine of all tables, if it has one; `work` as `SparkSource.for_table`."""
    if runtime.engine is not None:
        return runtime.engine
    return _delta_rs(runtime) if in_one_task else _spark(runtime, work)


def _delta_rs(runtime: Runtime) -> Engine:
    from spark_jobs.tables.delta_tables import Tables  # noqa: PLC0415 - see above
    from spark_jobs.tables.one_task import DeltaRsEngine  # noqa: PLC0415 - see above

    return DeltaRsEngine(Tables(runtime.storage, runtime.clock))


def _spark(runtime: Runtime, work: int | None) -> Engine:
    from spark_jobs.tables.many_tasks import SparkEngine  # noqa: PLC0415 - see above
    from spark_jobs.tables.merged_tables import SparkTables  # noqa: PLC0415 - see above

    return SparkEngine(SparkTables(runtime.spark.for_table(work), DeltaCommits(runtime.storage)))


_COMMITTED = ("committed", "done")


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """One table in one run.

    Attributes:
        layout_override: another layout for its tables and state: of the shadow tables of a rebuild, or of a shard.
        declined: why one task declined the table, which many tasks then take; empty: none did.
        notified: files reported by a stream; null: the landing folder is listed.
        shard: source that this run loads, of a table with several; empty: the table has one, or all are meant.
        others: states of the table's other shards.
    """

    job: JobSpec
    spec: TableSpec
    runtime: Runtime
    layout_override: Layout | None = None
    declined: str = ""
    notified: tuple[NotifiedFile, ...] | None = None
    shard: str = ""
    others: tuple[TableState, ...] = ()

    def __post_init__(self) -> None:
        """Under `hmac` the row gets the key's id, so that stored values of another key can be distinguished."""
        if "hmac" in self.spec.mask.values():
            object.__setattr__(self, "spec", replace(self.spec, mask_key_id=key_id(os.environ)))

    @property
    def title(self) -> str:
        """In messages: the table, or one of its sources."""
        return f"source {self.shard} of {self.spec.table}" if self.shard else self.spec.table

    @cached_property
    def dialect(self) -> Dialect:
        """
        Raises:
            FatalError: `DIALECT_UNKNOWN`, `SPEC_INVALID`.
        """
        return dialect_of(self.spec, self.job.tiers[self.spec.size])

    @property
    def dialect_after_load(self) -> Dialect:
        """The dialect, which knows what the newest load has read where rows have no keys to tell."""
        if self.spec.keys or not self.dialect.names_transactions or (found := self.source_load) is None:
            return self.dialect
        return replace(self.dialect, loaded=found.seen, is_loading=found.ended is None)

    @cached_property
    def layout(self) -> Layout:
        return self.layout_override or Layout.of(self.job.roots, self.spec)

    @property
    def in_one_task(self) -> bool:
        return not self.declined and self.job.tiers[self.spec.size].in_one_task

    @property
    def tasks(self) -> TableTasks:
        return "one" if self.in_one_task else "many"

    def context(self, work: int | None = None) -> TableContext:
        """What engines get; `work`: what the run has to do (`PendingWork.cost`); None: not known."""
        if not self.in_one_task and self.runtime.engine is None and not self.runtime.spark.is_started:
            self.report(STARTING_SPARK)
        tier = self.job.tiers[self.spec.size]
        engine = make_engine(self.runtime, work, in_one_task=self.in_one_task)
        return TableContext(
            dialect=self.dialect_after_load,
            # Iceberg readers take data files as they are: no deletion vectors, no widened types.
            tier=replace(tier, deletion_vectors=False) if self.spec.iceberg else tier,
            layout=self.layout,
            storage=self.runtime.storage,
            engine=engine.of_shard(self.shard) if self.shard else engine,
        )

    def ledger(self) -> Ledger:
        """
        Raises:
            FatalError: `SHARDS_CHANGED`; as `Ledger.open`.
        """
        ledger = Ledger.open(self.runtime.storage, self.layout.state, self.others)
        if not self.shard and bool(self.spec.shards) != ledger.has_shards:
            require_same_kind(self.spec, ledger.state, has_shards=ledger.has_shards)
        return ledger

    def shard_runs(self) -> tuple[TableRun, ...]:
        """The same run of each of the table's sources alone; empty where the table has one."""
        states = self.shard_states()
        return tuple(run.beside(states) for run in self._each_shard())

    @cached_property
    def former_shards(self) -> tuple[TableRun, ...]:
        """Runs of sources that the row no longer names: they load nothing, and their rows stay in the table."""
        if self.shard or not self.spec.shards:
            return ()
        known = Ledger.open(self.runtime.storage, self.layout.state).shards
        return tuple(self._of_shard(shard) for shard in sorted(known - set(self.spec.shards)))

    def shard_states(self) -> dict[str, TableState]:
        """By source, also former ones, what its ledger holds; empty where the table has one source."""
        return {run.shard: run.own_state() for run in (*self._each_shard(), *self.former_shards)}

    def shard_ledgers(self) -> tuple[Ledger, ...]:
        """Of each of the table's sources by itself; empty where the table has one."""
        return tuple(run.ledger() for run in self._each_shard())

    def own_state(self) -> TableState:
        """The state of this shard alone, as its ledger holds it now."""
        return replace(self, others=()).ledger().state

    def beside(self, states: Mapping[str, TableState]) -> TableRun:
        """The run of this shard, with the states of the others."""
        return replace(self, others=tuple(state for shard, state in states.items() if shard != self.shard))

    def _each_shard(self) -> tuple[TableRun, ...]:
        return () if self.shard else tuple(self._of_shard(shard) for shard in self.spec.shards)

    def _of_shard(self, shard: str) -> TableRun:
        layout = self.layout.of_shard(self.job.roots, self.spec, shard)
        return replace(self, shard=shard, spec=self.spec.of_shard(shard), layout_override=layout)

    @property
    def place(self) -> LandingLocation:
        return self._place("never")

    def _place(self, wait: Wait) -> LandingLocation:
        landing = self.layout.landing
        settling = Settling(after=settle_of(self.spec, landing, self.runtime.environ), wait=wait)
        return LandingLocation(storage=self.runtime.storage, landing=landing, dialect=self.dialect, settling=settling)

    def discover(self, ledger: Ledger, *, brief: bool = False, wait: Wait = "never") -> Discovery:
        """What waits.

        Args:
            brief: in a continuous job, the newest files are enough between one poll far back and the next.
            wait: for files that may still be written; files of a stream always, for it notifies them once.
        """
        place = self._place(wait if self.notified is None else "always")
        if self.notified is not None:
            return discover_notified(place, ledger, self.runtime.clock(), self.notified)
        options, now = self.job.options, self.runtime.clock()
        if not brief or options.continuous is None or options.full_listing:
            found = discover(place, ledger, now, full=options.full_listing)
            if found.inference == CERTAIN or self.source_load is None:
                return found
            # Changes from before a load by `gddl load` are captured for it.
            return discover(replace(place, generations="one"), ledger, now, full=options.full_listing)
        deep_listings = self.runtime.deep_listings
        back = deep_listings.reach(place.root, now)
        found = discover(place, ledger, now, back=back)
        if back is None:
            deep_listings.record(place.root, found, ledger.state.cursor, now, self.runtime.clock(), self.dialect.times)
        return found

    def discover_unread(self, ledger: Ledger) -> Discovery:
        """Files to read again, of which a user replays the quarantine."""
        codes = self.job.options.codes
        if codes and not any(code.startswith(OF_FILES) for code in codes):
            return Discovery()
        return discover_unread(self._place("idle"), ledger, self.runtime.clock())

    @property
    def source_load(self) -> LoadProgress | None:
        """The newest load of the table from its source database; None: it had none.

        Raises:
            FatalError: `LEDGER_DAMAGED`.
        """
        return read_progress(self.runtime.storage, Layout.of(self.job.roots, self.spec).state)

    @property
    def is_loading(self) -> bool:
        """Whether more files of a load from the source database will come. Raises as `source_load`."""
        found = self.source_load
        return found is not None and found.ended is None

    def claim(self) -> Claim:
        """The table's: its Delta tables have one writer, whichever shard is processed."""
        options = self.job.options
        state = Layout.of(self.job.roots, self.spec).state if self.shard else self.layout.state
        return Claim.acquire(self.runtime.storage, state, self.job.run_id, self.runtime.clock, options.wait_seconds)

    def report(self, step: str, batch: int = 0, rows: int = 0) -> None:
        """
        Raises:
            RetriableError: as `go_on`; not after what is committed.
        """
        self.runtime.observe(Step(table=self.spec.table, step=step, batch=batch, rows=rows))
        if step not in _COMMITTED:
            self.go_on()

    def go_on(self) -> None:
        """
        Raises:
            RetriableError: `JOB_CANCELLED`: the job was asked to end, and nothing of this run is being written.
        """
        if signal := self.runtime.stopped_by():
            raise cancelled(signal)

    def result(self, totals: RunTotals, **changes: Any) -> JobResult:
        """The result of this run as it ends now, with some of its fields changed."""
        return replace(totals.result(self.spec.table, self.job.run_id, self.runtime.clock()), **changes)

    @property
    def limits(self) -> BatchLimits:
        tier = self.job.tiers[self.spec.size]
        most = tier.max_bytes_per_batch
        # Decoded rows take some 18 times the bytes of their file, a stored table far less.
        if self.in_one_task:
            most = min(most, tier.task_max_bytes // 2)
        return BatchLimits(max_files=tier.max_files_per_batch, max_bytes=most)
