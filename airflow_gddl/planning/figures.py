"""Planned figures of Airflow and their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_gddl.planning.day import Day
from airflow_gddl.runners.descriptor import RUNNERS

RUNS_PER_LOOP = 20
"""Airflow's `[scheduler] max_dagruns_per_loop_to_schedule`: DAG runs that a scheduler handles in one loop."""
TASK_CPU_SECONDS = 1.5
"""Of a task, whatever it does (measured: benchmarks/airflow_run.py)."""
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


_SOFT = ("starts", "worker_cpu", "worker_tasks")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of the plan.

    Attributes:
        name: stable, e.g. `dags`.
        limit: null: not known.
        text: what is counted.
        soft: above the limit things take longer, and nothing breaks.
    """

    name: str
    planned: float
    limit: float | None
    text: str
    soft: bool = False

    @property
    def fits(self) -> bool:
        return self.limit is None or self.planned <= self.limit


def figures_of(day: Day, limits: PlatformLimits, dags: int) -> tuple[Figure, ...]:
    """
    Args:
        dags: those of upkeep too.
    """
    peak = max(day.starts.per_minute)
    shown = _mapped_per_minute(day)
    # Loads of remote runners are deferred: two brief tasks of a worker, and a trigger in between.
    remote = RUNNERS.get(day.metadata.runner).remote
    at_once = sum(pool.at_once for pool in day.pools) + len(day.continuous)
    loads = 2 if remote else 1
    tasks = (loads * runs + shown[minute] for minute, runs in enumerate(day.starts.per_minute))
    cpu = max(tasks) * TASK_CPU_SECONDS
    made = [
        figure_of("dags", dags, limits.dags, f"DAGs ({limits.name})"),
        figure_of("tasks_per_day", 3 * day.starts.runs + sum(shown.values()), None, "task instances of the day"),
        figure_of("starts", peak, RUNS_PER_LOOP * limits.schedulers, "runs that start in the fullest minute"),
        figure_of("triggers", peak + (at_once if remote else 0), limits.triggers, "triggers at once"),
        figure_of("worker_cpu", cpu, None if limits.cpus is None else 60 * limits.cpus, "CPU seconds of that minute"),
    ]
    if not remote:
        made.append(figure_of("worker_tasks", at_once, limits.tasks, "loads on workers at once"))
    return (*made, *_of_listings(day))


def _of_listings(day: Day) -> list[Figure]:
    """By tier: polls of landing folders, as if each took one request; see the benchmark `landing_polls.py`."""
    requests: Counter[str] = Counter()
    for pipeline in day.metadata.pipelines:
        requests[pipeline.tier] += len(day.starts.of.get(pipeline.dag_id, ())) * len(pipeline.tables)
    return [
        figure_of(f"listings_{tier}", count, None, f"landing folders polled, {tier}: ${count * LIST_DOLLARS:.2f} on S3")
        for tier, count in sorted(requests.items())
        if count
    ]


def _mapped_per_minute(day: Day) -> Counter[int]:
    """Task instances of tables by the minute of the day, where all tables have news."""
    shown: Counter[int] = Counter()
    for pipeline in day.metadata.pipelines:
        if pipeline.view == "mapped":
            for minute in day.starts.of.get(pipeline.dag_id, ()):
                shown[minute] += len(pipeline.tables)
    return shown


def figure_of(name: str, planned: float, limit: float | None, text: str) -> Figure:
    return Figure(name=name, planned=planned, limit=limit, text=text, soft=name in _SOFT)
