"""Capacity of platforms: planned figures of runners, and what to change where a limit is exceeded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from airflow_gddl.planning.day import Day
from airflow_gddl.planning.figures import Figure, PlatformLimits, figure_of
from airflow_gddl.planning.rules import Advice, advice

DATABRICKS_JOBS, DATABRICKS_TASKS = 12_000, 2_000
DATABRICKS_RUNS_PER_HOUR, DATABRICKS_RUN_NOW_PER_SECOND = 10_000, 20
"""Of a workspace: Databricks' page of resource limits."""


Rule = Callable[[Day, PlatformLimits, Mapping[str, Figure]], Iterator[Advice]]


@dataclass(frozen=True, kw_only=True)
class RunnerCapacity:
    """Figures of a runner's platform on a planned day, and rules that give advice on them; see `RunnerDescriptor`."""

    figures: Callable[[Day, PlatformLimits], Sequence[Figure]]
    rules: tuple[Rule, ...] = ()


def _of_databricks(day: Day, _limits: PlatformLimits) -> list[Figure]:
    most = day.metadata.runner_settings.max_concurrent_runs
    tasks = sum(min(pool.at_once, most * len(day.tiers_by_pool[pool.pool])) for pool in day.pools)
    tasks += len(day.continuous)
    per_hour = max(sum(day.starts.per_minute[60 * hour : 60 * hour + 60]) for hour in range(24))
    per_minute = 60 * DATABRICKS_RUN_NOW_PER_SECOND
    return [
        figure_of("databricks_jobs", len(day.paces), DATABRICKS_JOBS, "saved Databricks jobs"),
        figure_of("databricks_tasks", tasks, DATABRICKS_TASKS, "Databricks runs at once"),
        figure_of(
            "databricks_runs_per_hour", per_hour, DATABRICKS_RUNS_PER_HOUR, "Databricks runs in the fullest hour"
        ),
        figure_of("databricks_run_now", max(day.starts.per_minute), per_minute, "calls of run-now in a minute"),
    ]


def _of_emr(day: Day, limits: PlatformLimits) -> list[Figure]:
    sizes = {pool: max(vcpus_of(day, tier) for tier in tiers) for pool, tiers in day.tiers_by_pool.items()}
    vcpus = sum(pool.at_once * sizes[pool.pool] for pool in day.pools)
    vcpus += sum(vcpus_of(day, pipeline.tier) for pipeline in day.continuous)
    return [figure_of("emr_vcpus", vcpus, limits.emr_vcpus, "vCPUs of EMR Serverless at once")]


def vcpus_of(day: Day, tier: str) -> int:
    """Of one job run on EMR Serverless: its driver and as many executors as it may have."""
    spec, own = day.metadata.tiers[tier], day.metadata.runner_settings.tier(tier)
    return spec.cores * (1 + max(spec.workers, own.max_executors or 0))


def _databricks(_day: Day, _limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    for name, found in figures.items():
        if name.startswith("databricks_") and not found.fits:
            yield advice(
                code="DATABRICKS_OVER_LIMIT",
                level="limit",
                message=f"{found.text}: {found.planned:,.0f}, where a workspace takes {found.limit:,.0f}",
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


def _emr(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    found = figures.get("emr_vcpus")
    if found is None or found.fits:
        return
    parts = []
    for pool in day.pools:
        tier = max(sorted(day.tiers_by_pool[pool.pool]), key=lambda name: vcpus_of(day, name))
        parts.append(f"{pool.at_once:,} of {tier} with {vcpus_of(day, tier):,} each")
    if day.continuous:
        parts.append(f"{len(day.continuous):,} continuous ones")
    yield advice(
        code="EMR_OVER_QUOTA",
        level="limit",
        message=f"job runs ask for {found.planned:,.0f} vCPUs at once ({', '.join(parts)}); the account has"
        f" {limits.emr_vcpus:,}",
        change=f"a quota of {found.planned:,.0f} vCPUs (--emr-vcpus), or fewer tiers.<tier>.slots, cores or workers",
    )


DATABRICKS = RunnerCapacity(figures=_of_databricks, rules=(_databricks, _queued))
EMR_SERVERLESS = RunnerCapacity(figures=_of_emr, rules=(_emr,))
