"""Clears task instances of a run as Airflow's page does, and runs them in this process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow.bag import kept

_ROUNDS = 20


def instances(done: Any, session: Any) -> list[Any]:
    query = select(TaskInstance).where(TaskInstance.dag_id == done.dag_id, TaskInstance.run_id == done.run_id)
    return list(session.scalars(query))


def clear(dag: Any, done: Any, chosen: Callable[[Any], bool]) -> str:
    """Clear the instances that are chosen, run the DAG run to its end; its state."""
    with create_session() as session:
        clear_task_instances([one for one in instances(done, session) if chosen(one)], session)
    with create_session() as session:
        run = session.scalar(select(DagRun).where(DagRun.dag_id == done.dag_id, DagRun.run_id == done.run_id))
        run.dag, run.state = kept(dag), "running"
        for _ in range(_ROUNDS):
            session.expire_all()
            ready, _callback = run.update_state(session=session)
            if run.state != "running":
                return str(run.state)
            for one in ready:
                one.try_number += 1
                one.state = "scheduled"
            session.commit()
            for one in [each for each in instances(done, session) if each.state == "scheduled"]:
                _run_task(ti=one, task=dag.task_dict[one.task_id], run_triggerer=True)
    raise AssertionError(f"{done.run_id} does not end")
