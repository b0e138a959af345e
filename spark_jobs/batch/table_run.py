"""One table in one run: its job and row, and how its parts are opened."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.actions import Action, HandleErrors
from airflow_gddl.contract.connections import key_id
from airflow_gddl.contract.errors import OF_FILES, FatalError
from airflow_gddl.contract.features import used_by
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import (
    STARTING_SPARK,
    JobResult,
    TableTasks,
    error_info,
)
from airflow_gddl.contract.sources import reads_of, source_of
from airflow_gddl.contract.spec import JobSpec, TableSpec, TierSpec
from airflow_gddl.contract.table_spec import titled
from spark_jobs.batch.runtime import Runtime, SparkLeftOut, Step, cancelled
from spark_jobs.batch.totals import RunTotals
from spark_jobs.discovery import (
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
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.generations import CERTAIN
from spark_jobs.plan.planned_batch import LandedFile, TableState
from spark_jobs.plan.sharding import require_same_kind
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.dialects.protocol import Dialect, dialect_of
from spark_jobs.tables.delta_log import DeltaCommits

if TYPE_CHECKING:
    from spark_jobs.tables.delta_tables import Tables
    from spark_jobs.tables.engine import Engine

_COMMITTED = ("committed", "done")


@dataclass
class _OpenedLedger:
    """The ledger of a run, which is opened once.

    Attributes:
        ledger: None until it is opened.
        listed: names below its root that were listed just now; None: they have to be listed.
    """

    ledger: Ledger | None = None
    listed: Iterable[str] | None = None


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """One table in one run.

    Attributes:
        layout_override: another layout for its tables and state: of the shadow tables of a rebuild, or of a shard.
        declined: why one task declined the table, which many tasks then take; empty: none did.
        notified: files reported by a stream; None: the landing folder is listed.
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
    _opened: _OpenedLedger = field(default_factory=_OpenedLedger, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Under `hmac` the row gets the key's id, so that stored values of another key can be distinguished."""
        if "hmac" in self.spec.mask.values():
            object.__setattr__(self, "spec", replace(self.spec, mask_key_id=key_id(os.environ)))

    def asking(self, action: Action) -> TableRun:
        """The run with another action."""
        return replace(self, job=replace(self.job, options=replace(self.job.options, action=action)))

    @property
    def title(self) -> str:
        """In messages: the table, or one of its sources."""
        return titled(self.spec.table, self.shard)

    @cached_property
    def tier(self) -> TierSpec:
        """The row's tier; without Spark each table is in one task, and committed directly."""
        tier = self.job.tier_of(self.spec)
        return replace(tier, tasks="one", commit="direct") if isinstance(self.runtime.spark, SparkLeftOut) else tier

    @cached_property
    def dialect(self) -> Dialect:
        """The dialect of the table's files.

        Raises:
            FatalError: `DIALECT_UNKNOWN`, `SPEC_INVALID`.
        """
        return dialect_of(self.spec, self.tier)

    @property
    def dialect_after_load(self) -> Dialect:
        """The dialect, which knows what the newest load has read.

        Rows without keys do not tell; of others, changes that it has read may be another table's of this name.
        """
        if not self.dialect.names_transactions or (self.spec.keys and reads_of(self.spec) != "log"):
            return self.dialect
        if (load := self.source_load) is None:
            return self.dialect
        return replace(self.dialect, loaded=load.seen, is_loading=not self.spec.keys and load.ended is None)

    @cached_property
    def layout(self) -> Layout:
        if self.layout_override is not None:
            return self.layout_override
        return Layout.of(self.job.roots, self.spec)

    @cached_property
    def in_one_task(self) -> bool:
        return not self.declined and self.tier.in_one_task

    @property
    def tasks(self) -> TableTasks:
        return "one" if self.in_one_task else "many"

    def context(self, work: int | None = None) -> Engine:
        """Its tables, where its tier works on them; `work`: as `LazySpark.for_table`."""
        if self.in_one_task:
            is_shared = self.spec.shards or self.shard  # by sources that write the tables during the run
            return self._in_one_task(self._new_tables() if is_shared else self._own_tables)
        if not self.runtime.spark.is_started:
            self.report(STARTING_SPARK)
        session = self.runtime.spark.for_table(work)  # before the imports: without Spark there may be no pyspark
        from spark_jobs.tables.many_tasks import ManyTasksEngine  # noqa: PLC0415 - idle tables need none of it
        from spark_jobs.tables.spark_merge import SparkTables  # noqa: PLC0415 - as above

        bounds = self.runtime.bounds_of(self.spec.table)
        tables = SparkTables(session, DeltaCommits(self.runtime.storage), shard=self.shard, bounds=bounds)
        return ManyTasksEngine(tables=tables, **self._context)

    def context_here(self) -> Engine:
        """To look at the tables in this process, whatever their tier: it never starts Spark.

        Its methods raise `DeclinedError` for tables that only Spark can read.
        """
        return self._in_one_task(self._new_tables())

    def _in_one_task(self, tables: Tables) -> Engine:
        from spark_jobs.tables.file_parts import PartBounds  # noqa: PLC0415 - idle tables need none of it
        from spark_jobs.tables.one_task import OneTaskEngine  # noqa: PLC0415 - as above

        return OneTaskEngine(tables=tables, parts=self.runtime.parts or PartBounds(), **self._context)

    @property
    def _context(self) -> dict[str, Any]:
        """Fields of `TableContext` but for the tables; features of the row may change the tier."""
        tier, storage = self.tier, self.runtime.storage
        for feature in used_by(self.spec).values() if self.spec.features else ():
            tier = feature.tier(self.spec, tier)
        return {"dialect": self.dialect_after_load, "tier": tier, "layout": self.layout, "storage": storage}

    @cached_property
    def _own_tables(self) -> Tables:
        return self._new_tables()

    def _new_tables(self) -> Tables:
        from spark_jobs.tables.deletion_vectors import are_known  # noqa: PLC0415 - idle tables need none of it
        from spark_jobs.tables.delta_tables import Tables  # noqa: PLC0415 - as above
        from spark_jobs.tables.snapshots import VECTORS  # noqa: PLC0415 - as above

        features = frozenset({VECTORS}) if are_known() else frozenset[str]()
        return Tables(self.runtime.storage, self.runtime.clock, self.shard, features)

    def ledger(self) -> Ledger:
        """The ledger as it is now: opened once, then looked at again.

        Raises:
            FatalError: `SHARDS_CHANGED`; as `Ledger.open`.
        """
        opened = self._opened
        if opened.ledger is None:
            opened.ledger = Ledger.open(self.runtime.storage, self.layout.state, self.others)
        else:
            opened.ledger.look_again(opened.listed)
        ledger, opened.listed = opened.ledger, None
        if not self.shard and bool(self.spec.shards) != ledger.has_shards:
            require_same_kind(self.spec, ledger.state, has_shards=ledger.has_shards)
        return ledger

    def shard_runs(self) -> tuple[TableRun, ...]:
        """A run for each of the table's sources; empty if the table has only one."""
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

    def ledgers(self) -> tuple[Ledger, ...]:
        """The ledger of each of the table's sources, or of the table."""
        return tuple(run.ledger() for run in self._each_shard() or (self,))

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

    @cached_property
    def place(self) -> LandingLocation:
        return self._place("never")

    def _place(self, wait: Wait) -> LandingLocation:
        landing = self.layout.landing
        after = settle_of(self.spec, landing, self.runtime.environ)
        load = cache(lambda: self.source_load)

        def is_whole(file: LandedFile) -> bool:
            """Whether jobs have written it: all files of a source that they read, and those of `gddl load`."""
            if source_of(self.spec) is not None:
                return True
            known = load()
            return known is not None and known.has_written(file.path.rpartition("/")[2], file.modified)

        settling = Settling(after=after, wait=wait, is_whole=is_whole)
        return LandingLocation(storage=self.runtime.storage, landing=landing, dialect=self.dialect, settling=settling)

    def discover(self, ledger: Ledger, *, wait: Wait = "never") -> Discovery:
        """What waits.

        Args:
            wait: for files that may still be written; files of a stream always, for it notifies them once.
        """
        place = self._place(wait if self.notified is None else "always")
        if self.notified is not None:
            return discover_notified(place, ledger, self.runtime.clock(), self.notified)
        full, now = self.job.options.full_listing, self.runtime.clock()
        discovery = discover(place, ledger, now, full=full)
        is_plain = discovery.inference == CERTAIN and discovery.overtaken is None
        if is_plain or self.source_load is None:
            return discovery
        # Changes from before a load by `gddl load` are captured for it.
        return discover(replace(place, generations="one"), ledger, now, full=full)

    @property
    def replayed_codes(self) -> tuple[str, ...]:
        """Codes whose rows a user lets be processed again; empty: all, or none is asked for."""
        asked = self.job.options.action
        return asked.codes if isinstance(asked, HandleErrors) else ()

    @property
    def replays_files(self) -> bool:
        """Whether a replay takes files that could not be read."""
        codes = self.replayed_codes
        return not codes or any(code.startswith(OF_FILES) for code in codes)

    @property
    def source_connection(self) -> str:
        """Name of the connection to the source: the action's, else the row's; empty: neither has one."""
        return self.job.options.source_connection or self.dialect.options.verify_connection or ""

    def discover_unread(self, ledger: Ledger) -> Discovery:
        """Files to read again, of which a user replays the quarantine."""
        if not self.replays_files:
            return Discovery()
        return discover_unread(self._place("idle"), ledger, self.runtime.clock())

    @property
    def source_load(self) -> LoadProgress | None:
        """The newest load of the table from its source database; None: it had none.

        Raises:
            FatalError: `LEDGER_DAMAGED`.
        """
        return read_progress(self.runtime.storage, self._state_of_table)

    @property
    def _state_of_table(self) -> str:
        """State folder of the table as a whole, also for a shard and for shadow tables."""
        return Layout.of(self.job.roots, self.spec).state

    @property
    def is_loading(self) -> bool:
        """Whether more files of a load from the source database will come. Raises as `source_load`."""
        load = self.source_load
        return load is not None and load.ended is None

    def claim(self) -> Claim:
        """The table's: its Delta tables have one writer, whichever shard is processed."""
        state = self._state_of_table if self.shard else self.layout.state
        ledger = None if self.shard else self._opened.ledger
        known, job = None if ledger is None else ledger.listing, self.job
        claim = Claim.acquire(
            self.runtime.storage, state, job.run_id, self.runtime.clock, job.options.wait_seconds, known
        )
        if known is not None:  # nobody else writes the ledger from here on
            self.reuse_listing(claim.listed)
        return claim

    def reuse_listing(self, names: Iterable[str]) -> None:
        """Let the next `ledger` take these names below its root for a listing: they were listed just now."""
        self._opened.listed = names

    def report(self, step: str, batch: int = 0, rows: int = 0) -> None:
        """Report a step that has ended; stop the run if the job was asked to end.

        Raises:
            RetriableError: as `go_on`; not after what is committed.
        """
        self.runtime.observe(Step(table=self.spec.table, step=step, batch=batch, rows=rows))
        if step not in _COMMITTED:
            self.go_on()

    def go_on(self) -> None:
        """Stop the run if the job was asked to end.

        Raises:
            RetriableError: `JOB_CANCELLED`: the job was asked to end, and nothing of this run is being written.
        """
        if signal := self.runtime.stopped_by():
            raise cancelled(signal)

    def result(self, totals: RunTotals, **changes: Any) -> JobResult:
        """The result of this run as it ends now, with some of its fields changed."""
        done = totals.result(self.spec.table, self.job.run_id, self.runtime.clock())
        return replace(done, place=self.runtime.spark.place, **changes)

    def answer(self, totals: RunTotals, details: object, error: FatalError | None = None) -> JobResult:
        """The result of an action that loads nothing: what it has found, and the error that follows from it."""
        status, info = ("succeeded", None) if error is None else ("failed", error_info(error))
        return self.result(totals, status=status, details=details, error=info)

    @property
    def limits(self) -> BatchLimits:
        limits = BatchLimits.of(self.tier, in_one_task=self.in_one_task)
        return replace(limits, first_load=0) if self.shard else limits  # sources share the tables
