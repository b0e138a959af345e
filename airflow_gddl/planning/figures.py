"""Planned figures and their limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from airflow_gddl.planning.day import Day

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


REMOTE = ("databricks", "emr_serverless", "glue")
"""Runners whose loads are deferred: two brief tasks of a worker, and a trigger in between."""
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
    remote = day.metadata.runner in REMOTE
    at_once = sum(pool.at_once for pool in day.pools) + len(day.continuous)
    loads = 2 if remote else 1
    tasks = (loads * runs + shown[minute] for minute, runs in enumerate(day.starts.per_minute))
    cpu = max(tasks) * TASK_CPU_SECONDS
    made = [
        _figure("dags", dags, limits.dags, f"DAGs ({limits.name})"),
        _figure("tasks_per_day", 3 * day.starts.runs + sum(shown.values()), None, "task instances of the day"),
        _figure("starts", peak, RUNS_PER_LOOP * limits.schedulers, "runs that start in the fullest minute"),
        _figure("triggers", peak + (at_once if remote else 0), limits.triggers, "triggers at once"),
        _figure("worker_cpu", cpu, None if limits.cpus is None else 60 * limits.cpus, "CPU seconds of that minute"),
    ]
    if not remote:
        made.append(_figure("worker_tasks", at_once, limits.tasks, "loads on workers at once"))
    return (*made, *_of_listings(day), *_of_platform(day, limits))


def _of_listings(day: Day) -> list[Figure]:
    """By tier: polls of landing folders, as if each took one request; see the benchmark `landing_polls.py`."""
    requests: Counter[str] = Counter()
    for pipeline in day.metadata.pipelines:
        requests[pipeline.tier] += len(day.starts.of.get(pipeline.dag_id, ())) * len(pipeline.tables)
    return [
        _figure(f"listings_{tier}", count, None, f"landing folders polled, {tier}: ${count * LIST_DOLLARS:.2f} on S3")
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


def _of_platform(day: Day, limits: PlatformLimits) -> list[Figure]:
    if day.metadata.runner == "databricks":
        return _of_databricks(day)
    if day.metadata.runner == "emr_serverless":
        sizes = {pool: max(vcpus_of(day, tier) for tier in tiers) for pool, tiers in day.tiers_by_pool.items()}
        vcpus = sum(pool.at_once * sizes[pool.pool] for pool in day.pools)
        vcpus += sum(vcpus_of(day, pipeline.tier) for pipeline in day.continuous)
        return [_figure("emr_vcpus", vcpus, limits.emr_vcpus, "vCPUs of EMR Serverless at once")]
    return []


def _of_databricks(day: Day) -> list[Figure]:
    most = day.metadata.databricks.max_concurrent_runs
    tasks = sum(min(pool.at_once, most * len(day.tiers_by_pool[pool.pool])) for pool in day.pools)
    tasks += len(day.continuous)
    per_hour = max(sum(day.starts.per_minute[60 * hour : 60 * hour + 60]) for hour in range(24))
    per_minute = 60 * DATABRICKS_RUN_NOW_PER_SECOND
    return [
        _figure("databricks_jobs", len(day.paces), DATABRICKS_JOBS, "saved Databricks jobs"),
        _figure("databricks_tasks", tasks, DATABRICKS_TASKS, "Databricks runs at once"),
        _figure("databricks_runs_per_hour", per_hour, DATABRICKS_RUNS_PER_HOUR, "Databricks runs in the fullest hour"),
        _figure("databricks_run_now", max(day.starts.per_minute), per_minute, "calls of run-now in a minute"),
    ]


def vcpus_of(day: Day, tier: str) -> int:
    """Of one job run on EMR Serverless: its driver and as many executors as it may have."""
    spec, own = day.metadata.tiers[tier], day.metadata.emr.tier(tier)
    return spec.cores * (1 + max(spec.workers, own.max_executors or 0))


def _figure(name: str, planned: float, limit: float | None, text: str) -> Figure:
    return Figure(name=name, planned=planned, limit=limit, text=text, soft=name in _SOFT)
