"""The sweep of a batch: rows of older generations vanish, or are kept for a person to decide."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_gddl.contract.result import MainCounts
from spark_jobs.engines.base import TableContext
from spark_jobs.engines.batch_steps import TableWork
from spark_jobs.plan.batch import BatchPlan, HeldSweep, TableState
from spark_jobs.plan.settings import history_begins, settings_of
from spark_jobs.plan.sweeping import SweepRule, held_sweep
from spark_jobs.table.stored_schema import stored_schema


@dataclass(frozen=True, kw_only=True)
class Swept:
    """What a sweep did.

    Attributes:
        done: rows of older generations have vanished; false also where the batch does not sweep.
        held: why they have not, though the full load is whole; null: no person is asked.
    """

    done: bool = False
    counts: MainCounts = field(default_factory=MainCounts)
    held: HeldSweep | None = None


NOT_SWEPT = Swept()


def sweep(context: TableContext, work: TableWork, plan: BatchPlan) -> Swept:
    """Carry it out, unless it would remove more of the replica than the row allows without a person's release."""
    rows, live = work.sweepable()
    held = held_sweep(plan, rows, live, SweepRule.of(context.spec))
    return Swept(held=held) if held is not None else Swept(done=True, counts=work.sweep())


def sweep_alone(
    context: TableContext, plan: BatchPlan, state: TableState, generation_low_watermarks: tuple[str | None, ...],
    *, sweeps: bool,
) -> Swept:  # fmt: skip
    """A batch without a readable row: of a folder that is gone, or of a reload that has settled.

    Args:
        sweeps: rows of older generations are to vanish; else tables are only brought to what the row says now.
    """
    changed = state.applied != settings_of(context.spec)
    if not context.engine.exists(context.layout.replica) or not (sweeps or changed):
        return Swept(done=sweeps)
    work = context.engine.table_work(context, plan, stored_schema(context, state))
    if changed:
        work.ensure_tables()
    swept = sweep(context, work, plan) if sweeps else NOT_SWEPT
    derived = swept.done or history_begins(context.spec, state.applied)
    if derived and context.spec.history and context.spec.keys:
        vanished = plan.generation if swept.done else state.swept
        work.history(generation_low_watermarks, swept=vanished)
    return swept
