"""The sweep of a batch: removes rows of older generations, or holds them for a user's decision."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines.port import TableContext, TableWork
from spark_jobs.plan.batch import BatchPlan, HeldSweep, TableState
from spark_jobs.plan.batching import generation_low_watermarks_of
from spark_jobs.plan.settings import history_begins, settings_of
from spark_jobs.plan.sweeping import SweepRule, held_sweep


@dataclass(frozen=True, kw_only=True)
class Swept:
    """Result of a sweep.

    Attributes:
        done: rows of older generations were removed; false also where the batch does not sweep.
        held: why they were not, though the full load is complete; null: not held.
    """

    done: bool = False
    counts: MainCounts = field(default_factory=MainCounts)
    held: HeldSweep | None = None


NOT_SWEPT = Swept()


def sweep(context: TableContext, work: TableWork, plan: BatchPlan) -> Swept:
    """Sweep, unless it would remove a larger share of the replica than the row allows without a release."""
    rows, live = work.sweepable()
    held = held_sweep(plan, rows, live, SweepRule.of(context.spec))
    return Swept(held=held) if held is not None else Swept(done=True, counts=work.sweep())


def sweep_alone(context: TableContext, plan: BatchPlan, state: TableState, *, sweeps: bool) -> Swept:
    """Run a batch without rows: for a missing folder, or a settled reload.

    Args:
        sweeps: remove rows of older generations; else tables are only reconciled with the row.
    """
    changed = state.applied != settings_of(context.spec)
    if not context.engine.exists(context.layout.replica) or not (sweeps or changed):
        return Swept(done=sweeps)
    work = context.engine.table_work(context, plan, context.stored_schema(state))
    if changed:
        work.ensure_tables()
    swept = sweep(context, work, plan) if sweeps else NOT_SWEPT
    derived = swept.done or history_begins(context.spec, state.applied)
    if derived and context.spec.history and context.spec.keys:
        vanished = plan.generation if swept.done else state.swept
        work.history(generation_low_watermarks_of(plan, state), swept=vanished)
    return swept
