"""A planned batch while it is carried out, and what of it has been written."""

from __future__ import annotations

from dataclasses import dataclass, replace

from spark_jobs.dialects.probed import Unreadable
from spark_jobs.engines.port import AppendedWork
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchPlan, ForeignCommit
from spark_jobs.plan.discover import Discovery
from spark_jobs.rules.decoded_batch import DecodedBatch
from spark_jobs.rules.figures import NOTHING_APPENDED, Appended
from spark_jobs.table.next_batch import NextBatch


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch on its way.

    Attributes:
        left: what waits after it.
        foreign: commits that others made to the tables before it.
    """

    coming: NextBatch
    ledger: Ledger
    claim: Claim
    left: Discovery
    foreign: tuple[ForeignCommit, ...] = ()

    @property
    def plan(self) -> BatchPlan:
        return self.coming.plan

    def decided(self, plan: BatchPlan | None) -> Batch:
        """The batch with what its files have decided; null: nothing."""
        return self if plan is None else replace(self, coming=replace(self.coming, plan=plan))


@dataclass(frozen=True, kw_only=True)
class Ingested:
    """What of a batch has reached the change table and the quarantine.

    Attributes:
        work: null when no file could be read.
        plan: the batch's plan with what its files have decided; null: as it was.
        purged_at: when old tombstones were removed in this batch; null when it wasn't their time.
    """

    work: AppendedWork | None = None
    plan: BatchPlan | None = None
    bad_files: tuple[Unreadable, ...] = ()
    purged_at: str | None = None

    @property
    def decoded_batch(self) -> DecodedBatch | None:
        return None if self.work is None else self.work.decoded_batch

    @property
    def opens(self) -> bool:
        """A generation is opened by a readable load file or a missing folder; not by a damaged file."""
        return self.work is not None or not self.bad_files

    @property
    def appended(self) -> Appended:
        return NOTHING_APPENDED if self.work is None else self.work.appended
