"""Which batch comes next: the one that was begun, or a new one."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from spark_jobs.engines.base import TableContext
from spark_jobs.engines.transactions import APPEND, version_of
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.plan.batching import next_batch
from spark_jobs.plan.discover import Discovery
from spark_jobs.plan.sweeping import RELEASED, SweepRule, SweepState, sweep_state, with_sweep
from spark_jobs.table.run import TableRun
from spark_jobs.table.runtime import iso


@dataclass(frozen=True, kw_only=True)
class NextBatch:
    """A plan, and how far an earlier run came with it.

    Attributes:
        begun: it was written by an earlier run.
        appended: its changes are in the change table, and its files are no longer what they were when it was planned:
            go on from the change table.
    """

    plan: BatchPlan
    begun: bool = False
    appended: bool = False


def next_plan(
    run: TableRun, context: TableContext, found: Discovery, ledger: Ledger, *, replayed: bool
) -> NextBatch | None:
    """The batch to carry out now; None when nothing is left.

    A begun batch whose files changed before it appended anything is dropped: the files as they are now make a new one.

    Args:
        replayed: this run has replayed the quarantine already.
    """
    begun = ledger.plan()
    if begun is not None and not files_changed(begun, found):
        return NextBatch(plan=begun, begun=True)
    if begun is not None:
        if context.engine.last_transaction(context.layout.changes, APPEND) >= version_of(begun):
            return NextBatch(plan=begun, begun=True, appended=True)
        _drop(context, begun, ledger)
    now = moment(run, ledger, begun)
    if run.job.options.action == "errors_replay":
        plan = None if replayed else _replay(ledger, now)
    elif is_emptied(run, found, ledger):
        plan = _emptying(ledger, now)
    elif sweep_of(run, found, ledger.state) == "due":
        plan = _sweeping(ledger, now, released=releases(run))
    elif releases(run):
        plan = None
    else:
        plan = next_batch(found.waiting, limits=run.limits, state=ledger.state, now=now)
        plan = None if plan is None else with_sweep(plan, found, SweepRule.of(run.spec))
    return None if plan is None else NextBatch(plan=plan)


def releases(run: TableRun) -> bool:
    """Whether a person has said that rows which the newest full load lacks may vanish."""
    return run.job.options.action == "sweep_release"


def sweep_of(run: TableRun, found: Discovery, state: TableState) -> SweepState:
    """How the sweep of the newest generation stands; a person's release makes it due."""
    rule = RELEASED if releases(run) else SweepRule.of(run.spec)
    return sweep_state(state, found, rule, run.runtime.clock())


def moment(run: TableRun, ledger: Ledger, dropped: BatchPlan | None = None) -> datetime:
    """The time of a new plan, later than every plan's before, whatever the clocks say: it tells transactions apart."""
    last = ledger.last_commit()
    before = [p.planned_at for p in (dropped, last.plan if last else None) if p is not None]
    floor = [datetime.fromisoformat(text) + timedelta(microseconds=1) for text in before]
    return max([run.runtime.clock(), *floor])


def is_emptied(run: TableRun, found: Discovery, ledger: Ledger) -> bool:
    """The folder is gone, the row says that this empties the table, and no batch has done so yet."""
    if not (found.folder_missing and run.dialect.options.missing_folder == "empty" and ledger.state.batch):
        return False
    generation = ledger.state.generation
    return any(row.generation == generation for row in ledger.all_entries().values())


def files_changed(plan: BatchPlan, found: Discovery) -> bool:
    """Whether some file of a begun batch is no longer what it was when the batch was planned."""
    now = {file.path: file.fingerprint for file in found.waiting}
    return any(now.get(file.path) != file.fingerprint for file in plan.files)


def _drop(context: TableContext, plan: BatchPlan, ledger: Ledger) -> None:
    """Forget a batch that has written nothing but, perhaps, rows of the quarantine."""
    if context.engine.exists(context.layout.errors):
        context.engine.forget_errors(context.layout.errors, plan.batch_id)
    ledger.drop_plan()


def _replay(ledger: Ledger, now: datetime) -> BatchPlan | None:
    state = ledger.state
    if state.keys is None:
        return None
    return BatchPlan(
        number=state.batch + 1,
        mode="incremental",
        planned_at=iso(now),
        generation=state.generation,
        files=(),
        source="quarantine",
    )


def _sweeping(ledger: Ledger, now: datetime, *, released: bool) -> BatchPlan:
    """A batch without files, which removes the rows that the newest full load lacks."""
    state = ledger.state
    return BatchPlan(
        number=state.batch + 1,
        mode="incremental",
        planned_at=iso(now),
        generation=state.generation,
        files=(),
        sweep=True,
        released=released,
    )


def _emptying(ledger: Ledger, now: datetime) -> BatchPlan:
    state = ledger.state
    return BatchPlan(
        number=state.batch + 1,
        mode="incremental",
        planned_at=iso(now),
        generation=state.generation + 1,
        files=(),
        sweep=True,
        released=True,
    )
