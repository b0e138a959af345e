"""A table while a run that holds its claim works on it, and the batch that it works on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import MainCounts, RunWarning
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.planned_batch import BatchPlan, ForeignCommit, HeldSweep, HeldTruncate, TableState
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.rooms.dialects.protocol import Unreadable
from spark_jobs.rules.figures import DecodedBatch

if TYPE_CHECKING:
    from spark_jobs.tables.engine import BatchWork, Engine


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Result of a sweep.

    Attributes:
        done: rows of older generations were removed; false also where the batch does not sweep.
        held: why they were not, though the full load is complete; None: not held.
    """

    done: bool = False
    counts: MainCounts = field(default_factory=MainCounts)
    held: HeldSweep | None = None


@dataclass(frozen=True, kw_only=True)
class Batch:
    """A planned batch, how far an earlier run has come with it, and what each step has made of it.

    Attributes:
        plan: once appended, with what its files have decided.
        resumed: its plan was written by an earlier run.
        in_changes: its changes are in the change table, and its files have changed since it was planned:
            resume from the change table.
        of_reload: what it makes is judged as a whole before it replaces anything, also what a file lacks.
        work: None: not read, no file could be read, or all wait for a load file that can't be.
        bad_files: that could not be read.
        held: a truncate of this file waits for a user's release, and so does the batch; None: none does.
        set_aside: files with truncates alone, of which no table can be made yet.
        main: what became of the replica.
        purged_at: when old tombstones were removed in this batch; None when it wasn't their time.
    """

    plan: BatchPlan
    resumed: bool = False
    in_changes: bool = False
    of_reload: bool = False
    work: BatchWork | None = None
    bad_files: tuple[Unreadable, ...] = ()
    held: HeldTruncate | None = None
    set_aside: tuple[str, ...] = ()
    main: MainCounts = field(default_factory=MainCounts)
    swept: Swept = field(default_factory=Swept)
    purged_at: str | None = None

    @property
    def waits(self) -> bool:
        """Whether the batch was withdrawn: it is planned again once what it waits for has come."""
        return self.held is not None or bool(self.set_aside)

    @property
    def opens(self) -> bool:
        """A generation is opened by a readable load file or a missing folder; not by a damaged file."""
        return self.work is not None or not self.bad_files

    @property
    def decoded_batch(self) -> DecodedBatch | None:
        return None if self.work is None else self.work.decoded_batch


@dataclass(kw_only=True)
class TableSession:
    """Row, layout, tables, ledger, claim and counts of one table in one run.

    Attributes:
        context: what the steps of the current batch get.
        discovery: what waits after the current batch.
        foreign: commits that others made to the tables.
        limits: of a batch.
        dropped: plan that this run has dropped, since its batch was too large; the next plan is later. None: none.
    """

    run: TableRun
    context: Engine
    ledger: Ledger
    claim: Claim
    totals: RunTotals
    discovery: Discovery
    limits: BatchLimits
    foreign: tuple[ForeignCommit, ...] = ()
    dropped: BatchPlan | None = None

    @property
    def spec(self) -> TableSpec:
        return self.run.spec

    @property
    def layout(self) -> Layout:
        return self.context.layout

    @property
    def state(self) -> TableState:
        """The ledger's, before the current batch is committed."""
        return self.ledger.state

    def note(self, warnings: Iterable[RunWarning]) -> None:
        """Say something that a user should know; notes of one code become one."""
        self.totals.warn(warnings)

    def suit(self, *, few_rows: bool, resumed: bool = True) -> None:
        """Set the engine up for the next batch; `resumed`: an earlier run may have written part of it."""
        self.context = replace(self.context.suited(few_rows=few_rows), resumed=resumed)
