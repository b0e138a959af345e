"""Batches without a readable row: files that go to the quarantine whole, and a landing folder that is gone."""

from __future__ import annotations

from collections.abc import Sequence

from airflow_gddl.contract.result import MainCounts
from spark_jobs.batch_schema import plan_batch
from spark_jobs.desk import Desk
from spark_jobs.dialects.probe import Unreadable
from spark_jobs.engines.spark.apply import Applying
from spark_jobs.engines.spark.decode import Stamp
from spark_jobs.engines.spark.measure import Figures
from spark_jobs.engines.spark.merge import Net
from spark_jobs.engines.spark.quarantine import bad_files, definition
from spark_jobs.engines.spark.site import QUARANTINE, version_of
from spark_jobs.plan.batch import BatchPlan, TableState

NOTHING = Figures(files={}, rows=0, quarantined=0, identities=0, keys=0, low=None, high=None, widths=None, loads=0)


def quarantine_files(desk: Desk, plan: BatchPlan, files: Sequence[Unreadable]) -> None:
    """Write files that can't be read to the errors table."""
    desk.tables.create(definition(desk.layout.errors))
    rows = bad_files(desk.tables, files, Stamp(plan.batch_id, plan.planned_at))
    desk.tables.append(rows, desk.layout.errors, QUARANTINE, version_of(plan))


def sweep_all(desk: Desk, plan: BatchPlan, state: TableState, floors: tuple[str | None, ...]) -> MainCounts:
    """Let every row of older generations vanish; history follows."""
    if not desk.tables.exists(desk.layout.replica):
        return MainCounts()
    schema = plan_batch(desk.spec, desk.options, (), desk.stored_columns(), state)
    nothing = desk.tables.read(desk.layout.changes).limit(0)
    batch = Applying(site=desk.site(plan, schema.shape), figures=NOTHING, schemas=frozenset(), first=False)
    counts = batch.sweep()
    if desk.spec.history and desk.spec.keys:
        batch.history(Net(rows=nothing, partial=False), floors, everything=True)
    return counts
