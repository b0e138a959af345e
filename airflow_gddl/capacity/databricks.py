"""Jobs, runs and starts of a Databricks workspace on a planned day."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from airflow_gddl.capacity.day import Day
from airflow_gddl.capacity.plan import RunnerCapacity, tiers_of
from airflow_gddl.capacity.rules import Advice, Figure, PlatformLimits, advice, figure_of

JOBS, TASKS = 12_000, 2_000
RUNS_PER_HOUR, RUN_NOW_PER_SECOND = 10_000, 20
"""Of a workspace: Databricks' page of resource limits."""


def figures(day: Day, _limits: PlatformLimits) -> list[Figure]:
    most = day.metadata.runner_settings.max_concurrent_runs
    tasks = sum(min(pool.at_once, most * len(day.tiers_by_pool[pool.pool])) for pool in day.pools)
    tasks += len(day.continuous)
    per_hour = max(sum(day.starts.per_minute[60 * hour : 60 * hour + 60]) for hour in range(24))
    per_minute = 60 * RUN_NOW_PER_SECOND
    return [
        figure_of("databricks_jobs", len(tiers_of(day)), JOBS, "saved Databricks jobs"),
        figure_of("databricks_tasks", tasks, TASKS, "Databricks runs at once"),
        figure_of("databricks_runs_per_hour", per_hour, RUNS_PER_HOUR, "Databricks runs in the fullest hour"),
        figure_of("databricks_run_now", max(day.starts.per_minute), per_minute, "calls of run-now in a minute"),
    ]


def _over_limit(_day: Day, _limits: PlatformLimits, planned: Mapping[str, Figure]) -> Iterator[Advice]:
    for name, figure in planned.items():
        if name.startswith("databricks_") and not figure.fits:
            yield advice(
                code="DATABRICKS_OVER_LIMIT",
                level="limit",
                message=f"{figure.text}: {figure.planned:,.0f}, where a workspace takes {figure.limit:,.0f}",
                change="fewer DAGs (tiers.<tier>.tables_per_job above 1), a schedule that is less often, or a second"
                " workspace",
            )


def _queued(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    most = day.metadata.runner_settings.max_concurrent_runs
    for pool in day.pools:
        tiers = sorted(day.tiers_by_pool[pool.pool])
        if pool.at_once > most * len(tiers):
            yield advice(
                code="RUNS_QUEUED",
                level="advice",
                message=f"pool {pool.pool} lets {pool.at_once:,} runs start, and Databricks queues all but {most:,}"
                " a job",
                change=f"runners.databricks.max_concurrent_runs: {most:,} → {pool.at_once:,}, then `gddl deploy"
                f" databricks`; or tiers.{tiers[0]}.slots: {pool.slots:,} → {most:,}",
            )


CAPACITY = RunnerCapacity(figures=figures, rules=(_over_limit, _queued))
