"""What a table has to do: waiting files, the next batch, a started one; and what a run leaves."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from spark_jobs.delta.commits import APPEND, version_of
from spark_jobs.engines.port import TableContext
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.batching import (
    RELEASED,
    SweepRule,
    SweepState,
    is_due_by_time,
    next_batch,
    sweep_state,
    with_sweep,
)
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.identity import require_same_identity
from spark_jobs.table import foreign, notices
from spark_jobs.table.outcome import RunTotals
from spark_jobs.table.run import TableRun
from spark_jobs.table.runtime import iso


@dataclass(frozen=True, kw_only=True)
class NextBatch:
    """A plan, and its state by an earlier run.

    Attributes:
        resumed: its plan was written by an earlier run.
        appended: its changes are in the change table, and its files have changed since it was planned:
            resume from the change table.
    """

    plan: BatchPlan
    resumed: bool = False
    appended: bool = False


def next_plan(
    run: TableRun, context: TableContext, found: Discovery, ledger: Ledger, *, replayed: bool
) -> NextBatch | None:
    """The batch to run now; None when nothing is left.

    A started batch whose files changed before it appended rows is dropped: the current files form a new one.

    Args:
        replayed: this run has replayed the quarantine already.
    """
    pending = ledger.plan()
    if pending is not None and not files_changed(pending, found):
        return NextBatch(plan=pending, resumed=True)
    if pending is not None:
        if context.engine.last_transaction(context.layout.changes, APPEND) >= version_of(pending):
            return NextBatch(plan=pending, resumed=True, appended=True)
        drop(context, pending, ledger)
    now, state = moment(run, ledger, pending), ledger.state
    without_files = BatchPlan(
        number=state.batch + 1, mode="incremental", planned_at=iso(now), generation=state.generation, files=()
    )
    if run.job.options.action == "errors_replay":
        is_done = replayed or state.keys is None
        plan = None if is_done else replace(without_files, source="quarantine", codes=run.job.options.codes)
    elif is_emptied(run, found, ledger):
        plan = replace(without_files, generation=state.generation + 1, sweep=True, released=True)
    elif sweep_of(run, found, state) == "due":
        # It removes the rows that the newest full load lacks.
        plan = replace(without_files, sweep=True, released=releases(run))
    elif releases(run):
        plan = None
    else:
        plan = next_batch(found.waiting, limits=run.limits, state=state, now=now)
        plan = None if plan is None else with_sweep(plan, found, SweepRule.of(run.spec))
    return None if plan is None else NextBatch(plan=replace(plan, shard=run.shard))


def batches_ahead(
    run: TableRun, pending: BatchPlan | None, state: TableState, found: Discovery
) -> Iterator[tuple[BatchPlan, bool]]:
    """Batches that a run would make of what was found, each with whether it is resumed; writes nothing.

    Args:
        pending: a started batch; null: none.
        state: before these batches.
    """
    now = run.runtime.clock()
    while (plan := pending or next_batch(found.waiting, limits=run.limits, state=state, now=now)) is not None:
        yield plan, pending is not None
        pending, found = None, found.without(plan)
        state = replace(state, batch=plan.number, generation=plan.generation)


def releases(run: TableRun) -> bool:
    """Whether a user has released the sweep of rows that the newest full load lacks."""
    return run.job.options.action == "sweep_release"


def sweep_of(run: TableRun, found: Discovery, state: TableState) -> SweepState:
    """State of the newest generation's sweep; a user's release makes it due."""
    rule = RELEASED if releases(run) else SweepRule.of(run.spec)
    return sweep_state(state, found, rule, run.runtime.clock())


def moment(run: TableRun, ledger: Ledger, dropped: BatchPlan | None = None) -> datetime:
    """The time of a new plan, later than all earlier plans regardless of clocks: it is the transaction version."""
    last = ledger.last_commit()
    before = [p.planned_at for p in (dropped, last.plan if last else None) if p is not None]
    floor = [datetime.fromisoformat(text) + timedelta(microseconds=1) for text in before]
    return max([run.runtime.clock(), *floor])


def is_emptied(run: TableRun, found: Discovery, ledger: Ledger) -> bool:
    """Whether the folder is missing, the row empties the table then, and no batch has done so yet."""
    if not (found.folder_missing and run.dialect.options.missing_folder == "empty" and ledger.state.batch):
        return False
    generation = ledger.state.generation
    return any(row.generation == generation for row in ledger.all_entries().values())


def files_changed(plan: BatchPlan, found: Discovery) -> bool:
    """Whether a file of a started batch has changed since it was planned."""
    now = {file.path: file.fingerprint for file in found.waiting}
    return any(now.get(file.path) != file.fingerprint for file in plan.files)


def drop(context: TableContext, plan: BatchPlan, ledger: Ledger) -> None:
    """Drop a batch that has written at most quarantined rows."""
    if context.engine.exists(context.layout.errors):
        context.engine.forget_errors(context, plan.batch_id)
    ledger.drop_plan()


def withdraw(context: TableContext, plan: BatchPlan, ledger: Ledger) -> None:
    """Drop a batch that can't be loaded, so that nothing waits for it, unless its changes are in the change table."""
    if context.engine.last_transaction(context.layout.changes, APPEND) < version_of(plan):
        drop(context, plan, ledger)


_BYTES_A_ROW = 50
_LANDED_WEIGHT = 7
"""What a byte of a landing file costs, in bytes of a replica that is merged into: see docs/decisions/175."""


@dataclass(frozen=True, kw_only=True)
class PendingWork:
    """A table with new files, as listed before the run had the claim.

    Attributes:
        state: its ledger's then.
    """

    state: TableState
    found: Discovery

    @property
    def cost(self) -> int:
        """Estimated work, in bytes of the replica: waiting files, which cost more, plus the replica."""
        return sum(f.size for f in self.found.waiting) * _LANDED_WEIGHT + self.state.rows * _BYTES_A_ROW


def find_pending(run: TableRun, outcome: RunTotals) -> PendingWork | None:
    """The table's work; None when there is none.

    Raises:
        FatalError: as `require_same_identity`; `FIRST_LOAD_UNREADABLE`.
    """
    ledger = run.ledger()
    run.report("discover")
    pending = ledger.plan() is not None  # its late files must be found again
    found = run.discover(ledger, brief=not pending)
    outcome.not_listed = found.not_listed
    outcome.mode = "initial" if ledger.state.batch == 0 else "incremental"
    outcome.max_commit_ts = ledger.state.max_commit_ts
    outcome.version = ledger.state.delta_versions.get("replica")
    # Also without new files: a row that stored rows do not follow is never reported as up to date.
    require_same_identity(run.spec, ledger.state)
    due = is_emptied(run, found, ledger) or sweep_of(run, found, ledger.state) == "due"
    replaying = run.job.options.action == "errors_replay" or ledger.awaits_replay
    if not (found.waiting or pending or due or replaying or waits_for_files(run, found)):
        outcome.warn(notices.of_discovery(found, run.layout.landing, run.dialect))
        report_left(run, ledger, found, outcome)
        if run.job.options.full_listing:  # requested by a user
            commits = foreign.foreign_commits(run.spec, run.runtime.storage, run.layout, ledger)
            outcome.warn(foreign.warnings_of(run.spec, commits))
        notices.require_first_load(run.spec.table, ledger)
        return None
    return PendingWork(state=ledger.state, found=found)


def waits_for_files(run: TableRun, found: Discovery) -> bool:
    """Whether a run waits for files that may still be written; a continuous job lists them again."""
    return bool(found.unsettled) and run.job.options.continuous is None


def report_left(run: TableRun, ledger: Ledger, found: Discovery, outcome: RunTotals) -> None:
    """What a run leaves to a later one: files that may still be written, rows that a reload may yet bring again."""
    standing = sweep_of(run, found, ledger.state)
    outcome.warn((*notices.of_unsettled(found), *notices.of_sweep(standing, ledger.state, found)))
    outcome.revisit = bool(found.unsettled) or is_due_by_time(ledger.state, standing)
