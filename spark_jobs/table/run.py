"""One table in one run: what it is made of, and how its parts are opened."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import EngineName, JobSpec, TableSpec
from spark_jobs.dialects.base import Dialect
from spark_jobs.dialects.registry import dialect_of
from spark_jobs.discovery.file_stream import NotifiedFile
from spark_jobs.discovery.listing import LandingLocation, discover
from spark_jobs.discovery.notified import discover_notified
from spark_jobs.discovery.settling import Settling, Wait, settle_of
from spark_jobs.engines.base import TableContext
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.discover import Discovery
from spark_jobs.table.choosing import make_engine
from spark_jobs.table.runtime import Runtime, Step


@dataclass(frozen=True, kw_only=True)
class TableRun:
    """One table in one run.

    Attributes:
        beside: other places for its tables and state than the usual; a full refresh builds beside the living tables.
        instead: the engine to take instead of the tier's.
        declined: why the tier's engine could not take the table; empty: it was not asked, or did.
        notified: the files that a stream notified; null: the landing folder is listed.
    """

    job: JobSpec
    spec: TableSpec
    runtime: Runtime
    beside: Layout | None = None
    instead: EngineName | None = None
    declined: str = ""
    notified: tuple[NotifiedFile, ...] | None = None

    @cached_property
    def dialect(self) -> Dialect:
        """
        Raises:
            FatalError: `DIALECT_UNKNOWN`, `SPEC_INVALID`.
        """
        return dialect_of(self.spec)

    @property
    def layout(self) -> Layout:
        return self.beside or Layout.of(self.job.roots, self.spec)

    @property
    def engine(self) -> EngineName:
        return self.instead or self.job.tiers[self.spec.size].engine

    def context(self) -> TableContext:
        return TableContext(
            dialect=self.dialect,
            tier=self.job.tiers[self.spec.size],
            layout=self.layout,
            storage=self.runtime.storage,
            engine=make_engine(self.engine, self.runtime),
        )

    def ledger(self) -> Ledger:
        return Ledger.open(self.runtime.storage, self.layout.state)

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
            brief: in a continuous job, the newest files are enough between one look far back and the next.
            wait: for files that may still be written; files of a stream always, for it notifies them once.
        """
        place = self._place(wait if self.notified is None else "always")
        if self.notified is not None:
            return discover_notified(place, ledger, self.runtime.clock(), self.notified)
        options, now = self.job.options, self.runtime.clock()
        if not brief or options.continuous is None or options.full_listing:
            return discover(place, ledger, now, full=options.full_listing)
        looks = self.runtime.looks
        back = looks.reach(place.root, now)
        found = discover(place, ledger, now, back=back)
        if back is None:
            looks.looked(place.root, found, ledger.state.cursor, now, self.runtime.clock(), self.dialect.times)
        return found

    def claim(self) -> Claim:
        options = self.job.options
        return Claim.acquire(
            self.runtime.storage, self.layout.state, self.job.run_id, self.runtime.clock, options.wait_seconds
        )

    def report(self, step: str, batch: int = 0, rows: int = 0) -> None:
        self.runtime.observe(Step(table=self.spec.table, step=step, batch=batch, rows=rows))

    @property
    def limits(self) -> BatchLimits:
        tier = self.job.tiers[self.spec.size]
        most = tier.max_bytes_per_batch
        if (
            self.engine == "delta_rs"
        ):  # decoded rows take some 18 times the bytes of their file, a stored table far less
            most = min(most, tier.delta_rs_max_bytes // 2)
        return BatchLimits(max_files=tier.max_files_per_batch, max_bytes=most)
