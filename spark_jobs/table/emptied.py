"""Batches without a readable row: a landing folder that is gone."""

from __future__ import annotations

from airflow_gddl.contract.result import MainCounts
from spark_jobs.plan.batch import BatchPlan, TableState
from spark_jobs.table.context import TableContext


def sweep_all(
    context: TableContext, plan: BatchPlan, state: TableState, generation_low_watermarks: tuple[str | None, ...]
) -> MainCounts:
    """Let every row of older generations vanish; history follows."""
    if not context.engine.exists(context.layout.replica):
        return MainCounts()
    work = context.engine.without_rows(context, plan, state)
    counts = work.sweep()
    if context.spec.history and context.spec.keys:
        work.history(generation_low_watermarks, everything=True)
    return counts
