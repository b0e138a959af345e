"""Batches without a readable row: a landing folder that is gone."""

from __future__ import annotations

from airflow_gddl.contract.result import MainCounts
from spark_jobs.desk import Desk
from spark_jobs.plan.batch import BatchPlan, TableState


def sweep_all(desk: Desk, plan: BatchPlan, state: TableState, floors: tuple[str | None, ...]) -> MainCounts:
    """Let every row of older generations vanish; history follows."""
    if not desk.engine.exists(desk.layout.replica):
        return MainCounts()
    work = desk.engine.without_rows(desk, plan, state)
    counts = work.sweep()
    if desk.spec.history and desk.spec.keys:
        work.history(floors, everything=True)
    return counts
