"""The task group of a table in its pack's DAG: the view `group`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow.sdk import TaskGroup

from airflow_gddl.operators.jobs import GddlLandedOperator, GddlTableOperator, LoadOperator
from airflow_gddl.sensors.tables import GddlTablesSensor
from airflow_gddl.topology.pipelines import group_of

_AFTER_LOADS = "none_failed_min_one_success"
"""Skipped by the scheduler where the sensor found no work at all. In other runs the sensor skips tasks without work;
a user who clears one of these loads its table, because the sensor has succeeded."""


def add_group(
    table: str, landed: GddlTablesSensor, loads: Iterable[LoadOperator], arguments: Mapping[str, Any]
) -> None:
    """Add the group of a table after the shared tasks of its DAG: `landed`, and a task for each load, with its id.

    Args:
        arguments: of the tasks that show what the loads brought.
    """
    of_marker = {name: arguments[name] for name in ("owner", "weight_rule") if name in arguments}
    with TaskGroup(group_of(table), group_display_name=table):
        arrived = GddlLandedOperator(task_id="landed", table=table, **of_marker)
        landed >> arrived
        for load in loads:
            shown = GddlTableOperator(
                task_id=load.task_id,
                task_display_name=load.task_display_name,
                table=table,
                load=load.task_id,
                stage=load.stage,
                trigger_rule=_AFTER_LOADS,
                **arguments,
            )
            [landed, load, arrived] >> shown
