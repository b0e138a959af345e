"""A table while a run that holds its claim works on it: everything is opened once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.ledger.claim import Claim
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import BatchLimits
from spark_jobs.plan.planned_batch import BatchPlan, ForeignCommit, TableState
from spark_jobs.plan.waiting_files import Discovery
from spark_jobs.tables.engine import Engine, TableContext


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
    context: TableContext
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
    def engine(self) -> Engine:
        return self.context.engine

    @property
    def state(self) -> TableState:
        """The ledger's, before the current batch is committed."""
        return self.ledger.state

    def note(self, warnings: Iterable[RunWarning]) -> None:
        """Say something that a user should know; notes of one code become one."""
        self.totals.warn(warnings)

    def suit(self, *, few_rows: bool, resumed: bool = True) -> None:
        """Set the engine up for the next batch; `resumed`: an earlier run may have written part of it."""
        self.context = replace(self.context, engine=self.engine.suited(few_rows=few_rows), resumed=resumed)
