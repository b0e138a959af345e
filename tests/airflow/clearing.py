"""Clears task instances of a run as Airflow's page does, and runs them in this process."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from airflow.models.dagrun import DagRun
from airflow.models.taskinstance import TaskInstance, clear_task_instances
from airflow.sdk.definitions.dag import _run_task
from airflow.utils.session import create_session
from sqlalchemy import select

from tests.airflow.bag import kept
from tests.airflow.stored import store

_ROUNDS = 20


def instances(done: Any, session: Any) -> list[Any]:
    query = select(TaskInstance).where(TaskInstance.dag_id == done.dag_id, TaskInstance.run_id == done.run_id)
    return list(session.scalars(query))


def _run(instance: Any, task: Any) -> None:
    """Before 3.1 Airflow's helper takes the task from the instance."""
    if "task" in inspect.signature(_run_task).parameters:
        _run_task(ti=instance, task=task, run_triggerer=True)
    else:
        instance.task = task
        _run_task(ti=instance, run_triggerer=True)


def clear(dag: Any, done: Any, chosen: Callable[[Any], bool]) -> str:
    """Clear the instances that are chosen, run the DAG run to its end; its state."""
    store(dag)
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
                _run(one, dag.task_dict[one.task_id])
    raise AssertionError(f"{done.run_id} does not end")
