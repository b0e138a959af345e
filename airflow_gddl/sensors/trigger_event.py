"""Handles the event of the sensor's trigger; imported only when there is one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.reporting.results import airflow_errors, announce
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, Stage
from airflow_gddl.sensors.tables import GddlTablesSensor
from airflow_gddl.triggers import POLL_ON_WORKER, poll_once, utc_now
from airflow_gddl.version_compat import (
    AirflowException,
    AirflowFailException,
    AirflowSkipException,
    DownstreamTasksSkipped,
)


def answer(sensor: GddlTablesSensor, context: Context, event: Mapping[str, Any] | str) -> None:
    """See `GddlTablesSensor.polled`."""
    if isinstance(event, str):
        raise AirflowSkipException("no table has work")
    if "error" in event:
        raise (AirflowException if event["passing"] else AirflowFailException)(event["error"])
    work = _poll_here(sensor, context) if event == POLL_ON_WORKER else decode(PipelineWork, event)
    if not work.is_some:
        raise AirflowSkipException(work.why_none)
    _tell(sensor, work)
    if work.pending:
        announce(context, sensor.metadata, sensor.pipeline)
    groups = tuple(sorted({one.table for one in sensor.get_direct_relatives() if hasattr(one, "table")}))
    context["ti"].xcom_push(key="return_value", value=plain(replace(work, groups=groups)))
    # Avoids starting tasks that would only skip themselves.
    if idle := [one.task_id for one in sensor.get_direct_relatives() if not _is_busy(one, work)]:
        raise DownstreamTasksSkipped(tasks=idle)


def _is_busy(task: Any, work: PipelineWork) -> bool:
    """Whether a task has something to load or to show; true of tasks of users.

    Args:
        task: a load has a `stage`, a task in a table's group a `table`, and one that shows what a load brought, both.
    """
    table: str | None = getattr(task, "table", None)
    stage: Stage | None = getattr(task, "stage", None)
    if table is None:
        return stage is None or bool(work.marks(stage))
    stages: tuple[Stage, ...] = ("initial", "increments") if stage is None else (stage,)
    return any(work.may_load(one, table) for one in stages)


def _poll_here(sensor: GddlTablesSensor, context: Context) -> PipelineWork:
    """Poll from the worker.

    Raises:
        AirflowException, AirflowFailException: the poll failed.
    """
    with airflow_errors():
        again, form = context["ti"].try_number > 1, from_params(context["params"])
        question = Question(run=context["run_id"], now=utc_now(), form=form, again=again)
        work = poll_once(sensor.metadata, sensor.pipeline, question)
    if work is None:
        state = configuration.compiled_metadata(sensor.metadata).state
        why = f" ({state.why})" if state.why else ""
        raise AirflowFailException(f"the metadata at {sensor.metadata} has no pipeline {sensor.pipeline}{why}")
    return work


def _tell(sensor: GddlTablesSensor, work: PipelineWork) -> None:
    sensor.log.info("%d tables to load first, %d to bring up to date", len(work.initial), len(work.increments))
    if work.elsewhere:
        sensor.log.info("left to the next run, since another run loads them now: %s", ", ".join(work.elsewhere))
    for table, others in work.held.items():
        sensor.log.warning("%s waits for %s, which it depends on", table, ", ".join(others))
    for table, others in work.unmet.items():
        sensor.log.warning("%s continues without %s: no pipeline loads it", table, ", ".join(others))
