"""Limits of Airflow and platforms, from their documentation; each can be replaced by an account's own quota."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

RUNS_PER_LOOP = 20
"""Airflow's `[scheduler] max_dagruns_per_loop_to_schedule`: DAG runs that a scheduler handles in one loop."""
TASK_CPU_SECONDS = 1.5
"""Of a task, whatever it does (measured: benchmarks/airflow_run.py)."""
DATABRICKS_JOBS, DATABRICKS_TASKS = 12_000, 2_000
DATABRICKS_RUNS_PER_HOUR, DATABRICKS_RUN_NOW_PER_SECOND = 10_000, 20
"""Of a workspace: Databricks' page of resource limits."""
LIST_DOLLARS = 0.005 / 1000
"""Of a LIST request: prices of S3 Standard in us-east-1."""
EMR_VCPUS = 16
"""At once, of a new AWS account: quotas of EMR Serverless."""


@dataclass(frozen=True, kw_only=True)
class PlatformLimits:
    """Limits for a plan.

    Attributes:
        name: of the class, or of the sort of Airflow.
        dags: supported by its database and schedulers; null: not known.
        schedulers: how many there are.
        tasks: that workers run at once, all together.
        cpus: of all workers; null: not known.
        triggers: that triggerers serve at once, all together.
        emr_vcpus: quota of the account.
    """

    name: str = "airflow"
    dags: int | None = None
    schedulers: int = 1
    tasks: int = 32
    cpus: float | None = None
    triggers: int = 1_000
    emr_vcpus: int = EMR_VCPUS


@dataclass(frozen=True, kw_only=True)
class MwaaClass:
    """A row of AWS's page of environment classes.

    Attributes:
        dags: documented capacity, for DAGs that one file makes.
        tasks, vcpus: of one worker.
        workers: that a new environment has at most; can be set up to 25.
        schedulers: by default; each has a triggerer beside it.
    """

    dags: int
    tasks: int
    vcpus: float
    workers: int = 10
    schedulers: int = 2


MWAA: Mapping[str, MwaaClass] = {
    "mw1.micro": MwaaClass(dags=25, tasks=3, vcpus=1, workers=1, schedulers=1),
    "mw1.small": MwaaClass(dags=50, tasks=5, vcpus=1),
    "mw1.medium": MwaaClass(dags=250, tasks=10, vcpus=2),
    "mw1.large": MwaaClass(dags=1_000, tasks=20, vcpus=4),
    "mw1.xlarge": MwaaClass(dags=2_000, tasks=40, vcpus=8),
    "mw1.2xlarge": MwaaClass(dags=4_000, tasks=80, vcpus=16),
}
AIRFLOW = PlatformLimits()
TRIGGERER_CAPACITY = 1_000
"""Airflow's `[triggerer] capacity`."""


def mwaa_limits(name: str, workers: int | None = None, schedulers: int | None = None) -> PlatformLimits:
    """
    Args:
        name: of `MWAA`.
        workers, schedulers: null: those of a new environment.
    """
    made = MWAA[name]
    many, planners = workers or made.workers, schedulers or made.schedulers
    return PlatformLimits(
        name=name,
        dags=made.dags,
        schedulers=planners,
        tasks=made.tasks * many,
        cpus=made.vcpus * many,
        triggers=TRIGGERER_CAPACITY * planners,
    )


def smallest_class(dags: int) -> str | None:
    """The smallest class whose documented capacity holds so many DAGs; null when none does."""
    return next((name for name, made in MWAA.items() if dags <= made.dags), None)
