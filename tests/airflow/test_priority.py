"""Airflow's own scheduler with fewer slots than tables that are ready (docs/airflow.md)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.jobs.job import Job
from airflow.jobs.scheduler_job_runner import SchedulerJobRunner
from airflow.models.dagrun import DagRun
from airflow.models.pool import Pool
from airflow.models.taskinstance import TaskInstance
from airflow.utils.session import create_session
from airflow.utils.state import DagRunState, TaskInstanceState
from sqlalchemy import select, update

from airflow_gddl.dags.factory import build_dags
from tests.airflow.stage import Stage

PRIORITIES = ("low", "normal", "high", "critical")


def ready(dag: Any, date: datetime) -> None:
    """A run of the DAG whose sensor is done and whose load waits for a slot."""
    done = dag.test(logical_date=date)
    with create_session() as session:
        session.execute(update(DagRun).where(DagRun.id == done.id).values(state=DagRunState.RUNNING))
        session.execute(
            update(TaskInstance)
            .where(TaskInstance.dag_id == dag.dag_id, TaskInstance.run_id == done.run_id)
            .where(TaskInstance.task_id == "initial_load")
            .values(state=TaskInstanceState.SCHEDULED)
        )


@pytest.mark.usefixtures("database")
@pytest.mark.filterwarnings("ignore:Multiple rows returned with uselist=False")
def test_a08_with_fewer_slots_than_tables_the_critical_ones_start_first(stage: Stage) -> None:
    stage.write("gddl.yaml", "landing: ../landing\nlake: ../lake\ntiers: {medium: {pool: narrow, slots: 2}}\n")
    stage.rows(*(f"{{table: first.{p}, keys: [id], size: medium, priority: {p}}}" for p in PRIORITIES))
    dags = build_dags()
    # The least urgent has waited longest.
    for age, priority in enumerate(PRIORITIES):
        ready(dags[f"gddl.first.{priority}"], datetime(2040, 1, 1, tzinfo=UTC) + timedelta(days=age))
    with create_session() as session:
        Pool.create_or_update_pool(name="narrow", slots=2, description="", include_deferred=True, session=session)
        if None in session.scalars(select(TaskInstance.dag_version_id)).all():
            pytest.skip("DAG.test of this Airflow leaves tasks without a DAG version, which its scheduler leaves alone")
    with create_session() as session:
        scheduler = SchedulerJobRunner(job=Job())
        queued = scheduler._executable_task_instances_to_queued(max_tis=10, session=session)
        assert sorted(ti.dag_id for ti in queued) == ["gddl.first.critical", "gddl.first.high"]
        left = select(TaskInstance.dag_id).where(TaskInstance.state == TaskInstanceState.SCHEDULED)
        assert sorted(session.scalars(left)) == ["gddl.first.low", "gddl.first.normal"]
