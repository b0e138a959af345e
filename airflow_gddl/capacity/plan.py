"""The plan: DAGs, starts and quotas on Airflow and the platform, with capacity of runners and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from airflow_gddl.capacity.day import Day, Metadata, PoolSlots, ViewChange, busiest, clock
from airflow_gddl.capacity.parallelism import Parallelism, parallelism_of
from airflow_gddl.capacity.rules import (
    AIRFLOW_RULES,
    ROW_RULES,
    Advice,
    Figure,
    PlatformLimits,
    advice,
    figure_of,
    figures_of,
)
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import TierSpec, TierTasks
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline

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
        figure_of("databricks_jobs", len(_tiers(day)), DATABRICKS_JOBS, "saved Databricks jobs"),
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
    spec, tier_settings = day.metadata.tiers[tier], day.metadata.runner_settings.tier(tier)
    return spec.cores * (1 + max(spec.workers, tier_settings.max_executors or 0))


def _databricks(_day: Day, _limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    for name, figure in figures.items():
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


def _emr(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    figure = figures.get("emr_vcpus")
    if figure is None or figure.fits:
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
        message=f"job runs ask for {figure.planned:,.0f} vCPUs at once ({', '.join(parts)}); the account has"
        f" {limits.emr_vcpus:,}",
        change=f"a quota of {figure.planned:,.0f} vCPUs (--emr-vcpus), or fewer tiers.<tier>.slots, cores or workers",
    )


DATABRICKS = RunnerCapacity(figures=_of_databricks, rules=(_databricks, _queued))
EMR_SERVERLESS = RunnerCapacity(figures=_of_emr, rules=(_emr,))


UPKEEP_DAGS = 2
SHARED_TABLE: Mapping[TableTasks, float] = {"one": 0.05, "many": 2.2}
"""Core seconds of a batch of 100 changes, of a table that shares its job (`benchmarks/small_tables.py`)."""
OWN_TABLE: Mapping[TableTasks, float] = {"one": 11.0, "many": 1.4}
"""Seconds for 200,000 changes into 5,000,000 rows on two cores (`benchmarks/large_merge.py`)."""
MERGED_TABLE: Mapping[bool, float] = {True: 5.4, False: 29.4}
"""The same of tables that Spark's `MERGE` commits, by whether they share a job (`benchmarks/commit_merge.py`): core
seconds of a small one, seconds of a large one."""


@dataclass(frozen=True, kw_only=True)
class TierCost:
    """The pipelines of a tier.

    Attributes:
        tables: enabled ones.
        views: tables by what Airflow shows of them; see `TableSpec.airflow`.
        runs: that start on the day by the clock.
        merged: tables with `commit: merge`; `merge_seconds` and `direct_seconds` of a batch of one of them, and with
            `commit: direct`, both by benchmarks; `merge_hours`: of all their batches of the day beyond `direct`.
    """

    tier: str
    tasks: TierTasks
    tables: int
    dags: int
    views: Mapping[AirflowView, int]
    runs: int
    merged: int
    merge_seconds: float
    direct_seconds: float
    merge_hours: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `gddl plan --json` prints.

    Attributes:
        day: the busiest of the next 31, `YYYY-MM-DD`.
        tables: enabled ones.
        dags: those of tables, and the two for maintenance.
        started_by: DAGs by what starts them: `cron`, `continuous`, `assets`, `once`, `never`.
        runs: that start on the day by the clock.
        fullest_minute: of that day, in UTC, as `HH:MM`; None: no run starts by the clock.
        views: DAG id to what Airflow shows of its tables.
        moves: table to the DAG that loads it now and the one that will.
        changed_views: DAG id to what Airflow shows of its tables now, and will.
        parallelism: what Airflow must let run at once.
        fits: no limit is exceeded.
    """

    day: str
    limits: PlatformLimits
    runner: str
    tables: int
    dags: int
    started_by: Mapping[str, int]
    views: Mapping[str, AirflowView]
    moves: Mapping[str, tuple[str, str]]
    changed_views: Mapping[str, ViewChange]
    runs: int
    fullest_minute: str | None
    tiers: tuple[TierCost, ...]
    pools: tuple[PoolSlots, ...]
    figures: tuple[Figure, ...]
    advice: tuple[Advice, ...]
    parallelism: Parallelism

    @property
    def fits(self) -> bool:
        return not any(advice.level == "limit" for advice in self.advice)


def make_plan(metadata: Metadata, limits: PlatformLimits, today: date) -> Plan:
    """
    Raises:
        MetadataError: `RUNNER_UNKNOWN`, `RUNNER_SETTINGS_INVALID`: what the metadata would have refused.
    """
    day = busiest(metadata, today)
    reference = RUNNERS.get(metadata.runner).capacity
    capacity: RunnerCapacity | None = RUNNERS.load(reference) if reference else None
    figures = figures_of(day, limits, len(metadata.pipelines) + UPKEEP_DAGS)
    if capacity is not None:
        figures += tuple(capacity.figures(day, limits))
    return Plan(
        day=day.starts.day.isoformat(),
        limits=limits,
        runner=metadata.runner,
        tables=sum(len(pipeline.tables) for pipeline in metadata.pipelines),
        dags=len(metadata.pipelines) + UPKEEP_DAGS,
        started_by=dict(sorted(Counter(pipeline.timing.kind for pipeline in metadata.pipelines).items())),
        views={pipeline.dag_id: pipeline.view for pipeline in metadata.pipelines},
        moves=metadata.moves,
        changed_views=metadata.changed_views,
        runs=day.starts.runs,
        fullest_minute=_fullest_minute(day),
        tiers=tuple(_tier_cost(day, tier) for tier in _tiers(day)),
        pools=day.pools,
        figures=figures,
        advice=_advise(day, limits, figures, capacity.rules if capacity else ()),
        parallelism=parallelism_of(day, {figure.name: figure for figure in figures}, limits.schedulers),
    )


def _advise(
    day: Day, limits: PlatformLimits, figures: tuple[Figure, ...], of_runner: tuple[Rule, ...]
) -> tuple[Advice, ...]:
    """All advice; exceeded limits first, else in the order of the rules."""
    by_name = {figure.name: figure for figure in figures}
    all_advice = [advice for rule in (*AIRFLOW_RULES, *of_runner, *ROW_RULES) for advice in rule(day, limits, by_name)]
    return tuple(sorted(all_advice, key=lambda advice: advice.level != "limit"))


def _tiers(day: Day) -> list[str]:
    """Tiers that some pipeline has, sorted."""
    return sorted({pipeline.tier for pipeline in day.metadata.pipelines})


def _tier_cost(day: Day, tier: str) -> TierCost:
    members = [pipeline for pipeline in day.metadata.pipelines if pipeline.tier == tier]
    spec = day.metadata.tiers[tier]
    by_merge, direct = MERGED_TABLE[spec.tables_per_job > 1], _direct_seconds(spec)
    merged = {one.dag_id: _merged(day, one) for one in members}
    batches = sum(len(day.starts.of.get(dag_id, ())) * tables for dag_id, tables in merged.items())
    return TierCost(
        tier=tier,
        tasks=spec.tasks,
        tables=sum(len(pipeline.tables) for pipeline in members),
        dags=len(members),
        views=_views(members),
        runs=sum(len(day.starts.of.get(pipeline.dag_id, ())) for pipeline in members),
        merged=sum(merged.values()),
        merge_seconds=by_merge,
        direct_seconds=direct,
        merge_hours=round(batches * (by_merge - direct) / 3600, 2),
    )


def _direct_seconds(spec: TierSpec) -> float:
    """Of a batch that `commit: direct` commits."""
    return (SHARED_TABLE if spec.tables_per_job > 1 else OWN_TABLE)["many" if spec.tasks == "many" else "one"]


def _merged(day: Day, pipeline: Pipeline) -> int:
    """Tables of a pipeline that Spark's `MERGE` commits."""
    tier, rows = day.metadata.tiers[pipeline.tier], day.metadata.rows
    return sum(tier.for_row(rows[table]).commit == "merge" for table in pipeline.tables)


def _views(pipelines: Iterable[Pipeline]) -> dict[AirflowView, int]:
    tables: Counter[AirflowView] = Counter()
    for pipeline in pipelines:
        tables[pipeline.view] += len(pipeline.tables)
    return dict(sorted(tables.items()))


def _fullest_minute(day: Day) -> str | None:
    most = max(day.starts.per_minute)
    return clock(day.starts.per_minute.index(most)) if most else None
