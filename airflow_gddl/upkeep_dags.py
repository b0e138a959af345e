"""DAGs that keep tables up: maintenance and verification, each a task for each tier, on schedules of their own."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_parsing_context
from airflow.sdk.definitions.param import ParamsDict

from airflow_gddl import configuration
from airflow_gddl.capabilities import CronTriggerTimetable
from airflow_gddl.dag_factory import schedule_of
from airflow_gddl.form import params
from airflow_gddl.notifications.webhook import GddlNotifier
from airflow_gddl.operators.upkeep import GddlUpkeepOperator, Upkeep
from airflow_gddl.topology import Pipeline, Timing
from airflow_gddl.topology.schedules import timing

DAGS: dict[str, tuple[Upkeep, str]] = {
    "gddl_maintenance": (
        "maintain",
        "Joins small files and removes what nobody needs any more; readers see no change.",
    ),
    "gddl_verify": (
        "verify",
        "Compares each replica with its changes, and with its source where a connection is named.",
    ),
}
"""By DAG id: what its tasks do, and its page."""


def build_upkeep_dags(metadata_dir: str | Path | None = None, *, beside: str | Path | None = None) -> dict[str, DAG]:
    """The DAGs by id, a task for each tier that has tables; none where there are no tables.

    Args:
        metadata_dir, beside: see `dag_factory.build_dags`.

    Raises:
        GddlError: Airflow's configuration of this package is wrong (`OPTION_INVALID`, `CACHE_UNUSABLE`).
    """
    running = get_parsing_context().dag_id
    wanted = [dag_id for dag_id in DAGS if running in (None, dag_id)]
    if not wanted:
        return {}
    metadata = configuration.metadata_place(metadata_dir, beside)
    tiers = {pipeline.tier: pipeline for pipeline in configuration.snapshot(metadata).pipelines()}
    return {dag_id: _dag(dag_id, metadata, tiers) for dag_id in wanted if tiers}


def _dag(dag_id: str, metadata: str, tiers: dict[str, Pipeline]) -> DAG:
    action, page = DAGS[dag_id]
    connection = configuration.text("notify_connection") or None
    written = configuration.text("maintenance_schedule" if action == "maintain" else "verify_schedule")
    with DAG(
        dag_id=dag_id,
        schedule=_schedule(timing(written, dag_id) if written else Timing(kind="never")),
        catchup=False,
        max_active_runs=1,
        is_paused_upon_creation=configuration.is_on("paused_upon_creation"),
        tags=["gddl", "upkeep"],
        doc_md=f"{page}\n\nTrigger it with *Tables* to see to some alone.",
        default_args={
            "retries": int(configuration.number("retries")),
            "retry_delay": timedelta(seconds=configuration.number("retry_delay_seconds")),
            "priority_weight": 1,
            "weight_rule": "absolute",
            **({} if connection is None else {"on_failure_callback": GddlNotifier(connection=connection)}),
        },
    ) as dag:
        for tier, pipeline in sorted(tiers.items()):
            GddlUpkeepOperator(
                task_id=f"{action}_{tier}", metadata=metadata, tier=tier, action=action, pool=pipeline.pool
            )
    # As in `dag_factory.build_dag`: tasks have no copies of it.
    object.__setattr__(dag, "params", ParamsDict({"tables": params()["tables"]}))
    return dag


def _schedule(when: Timing) -> Any:
    """As tables have it, but that a new DAG's first run is the next one, not the one that would have been before."""
    if when.kind != "cron":
        return schedule_of(when)
    return CronTriggerTimetable(schedule_of(when), timezone="UTC", run_immediately=timedelta(0))
