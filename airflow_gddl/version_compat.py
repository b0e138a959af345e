"""Differences between Airflow versions, decided here by feature detection."""

from __future__ import annotations

import importlib
import inspect
from typing import Any

from airflow.triggers.base import BaseTrigger


def _first(name: str, *modules: str) -> Any:
    """The name from the first module that has it."""
    for module in modules:
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise ImportError(f"this Airflow has no {name}; airflow-gddl needs Airflow 3.0 or newer")


conf = _first("conf", "airflow.sdk.configuration", "airflow.configuration")
(
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    AirflowTaskTimeout,
    TaskDeferred,
    DownstreamTasksSkipped,
) = (
    _first(name, "airflow.sdk.exceptions", "airflow.exceptions")
    for name in (
        "AirflowException",
        "AirflowFailException",
        "AirflowSkipException",
        "AirflowTaskTimeout",
        "TaskDeferred",
        "DownstreamTasksSkipped",
    )
)

STARTS_FROM_TRIGGER = hasattr(BaseTrigger, "render_template_fields")
"""Whether a task can start in the triggerer with its run's params: only a trigger that renders templates gets them."""

TELLS_TRIGGERS_OF_KILLS = hasattr(BaseTrigger, "on_kill")
"""Whether a trigger learns that a user stopped its task; else it must query the task's state."""


async def is_still_deferred(instance: Any) -> bool:
    """Whether a trigger's task is still deferred; called from the cancelled trigger."""
    from asgiref.sync import sync_to_async  # noqa: PLC0415 - of the triggerer, which has it

    run, task = instance.run_id, instance.task_id
    lookup = _first("RuntimeTaskInstance", "airflow.sdk.execution_time.task_runner").get_task_states
    states = await sync_to_async(lookup)(
        dag_id=instance.dag_id, run_ids=[run], task_ids=[task], map_index=instance.map_index
    )
    return str(states.get(run, {}).get(task)) == "deferred"


def is_paused(instance: Any, dag_id: str) -> bool:
    """Whether a DAG is paused, asked by a running task; false where this Airflow (before 3.2) does not tell tasks."""
    get_dag = getattr(instance, "get_dag", None)
    if get_dag is None:
        return False
    try:
        return bool(get_dag(dag_id).is_paused)
    except Exception:  # noqa: BLE001 - the operator that triggers it reports an unknown DAG
        return False


def connection(name: str) -> Any:
    """An Airflow connection; hooks are imported only when one is asked for."""
    return _first("BaseHook", "airflow.sdk", "airflow.hooks.base").get_connection(name)


def gauge(name: str, value: float, tags: dict[str, str]) -> None:
    """Send a metric, where this Airflow sends any."""
    try:
        send = importlib.import_module("airflow.sdk.observability.stats").gauge
    except (ImportError, AttributeError):
        send = _first("Stats", "airflow.stats").gauge
    send(name, value, tags=tags)


def without_backfills() -> dict[str, Any]:
    """Argument of a DAG that refuses backfills: the trigger dialog disables *Backfill*. Empty before Airflow 3.2."""
    if "allowed_run_types" not in inspect.signature(_first("DAG", "airflow.sdk")).parameters:
        return {}
    types = _first("DagRunType", "airflow.utils.types")
    return {"allowed_run_types": [kind for kind in types if kind != types.BACKFILL_JOB]}
