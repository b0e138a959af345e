"""The plan: load of one day on Airflow, its pools and the platform, with capacity of runners and advice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from airflow_gddl.capacity.day import Day, Metadata, PoolUse, ViewChange, clock, day_of
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
from airflow_gddl.contract.spec import TierTasks
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline
from airflow_gddl.topology.table_row import busiest_day

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
_PEAKS = 3


@dataclass(frozen=True, kw_only=True)
class TierCost:
    """The pipelines of a tier.

    Attributes:
        tables: enabled ones.
        views: tables by what Airflow shows of them; see `TableSpec.airflow`.
        run_seconds: of its longest run, when all its tables have new files.
        table_seconds: of one table, and `basis` where that comes from: `records`, `benchmarks` or `given`.
        merged: tables with `commit: merge`; `merge_seconds` and `direct_seconds` of one of them, and with
            `commit: direct`, both by benchmarks; `merge_hours`: of all their batches of the day beyond `direct`.
    """

    tier: str
    tasks: TierTasks
    tables: int
    dags: int
    views: Mapping[AirflowView, int]
    runs: int
    run_seconds: float
    table_seconds: float
    basis: str
    merged: int = 0
    merge_seconds: float = 0.0
    direct_seconds: float = 0.0
    merge_hours: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Peak:
    """A minute in which many runs start, as `HH:MM`, and the schedules of these runs with how many each has."""

    minute: str
    runs: int
    schedules: Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `gddl plan --json` prints.

    Attributes:
        day: the day that is shown, `YYYY-MM-DD`.
        tables: enabled ones.
        dags: those of tables, and the two for maintenance.
        started_by: DAGs by what starts them: `cron`, `continuous`, `assets`, `once`, `never`.
        runs: that start on the day by the clock.
        runs_per_minute: of each of its 1,440 minutes; they sum to `runs`.
        peaks: the fullest minutes, fullest first.
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
    runs_per_minute: tuple[int, ...]
    peaks: tuple[Peak, ...]
    tiers: tuple[TierCost, ...]
    pools: tuple[PoolUse, ...]
    figures: tuple[Figure, ...]
    advice: tuple[Advice, ...]
    parallelism: Parallelism

    @property
    def fits(self) -> bool:
        return not any(advice.level == "limit" for advice in self.advice)


def make_plan(metadata: Metadata, limits: PlatformLimits, today: date, chosen: date | None = None) -> Plan:
    """
    Args:
        chosen: the day to show; None: the busiest from `today` on, see `topology.table_row.busiest_day`.

    Raises:
        MetadataError: `RUNNER_UNKNOWN`, `RUNNER_SETTINGS_INVALID`: what the metadata would have refused.
    """
    day = day_of(metadata, chosen or busiest_day(metadata.pipelines, today))
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
        runs_per_minute=day.starts.per_minute,
        peaks=_peaks(day),
        tiers=tuple(_tier_cost(day, tier) for tier in sorted(day.paces)),
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


def _tier_cost(day: Day, tier: str) -> TierCost:
    members = [pipeline for pipeline in day.metadata.pipelines if pipeline.tier == tier]
    pace = day.paces[tier]
    return TierCost(
        tier=tier,
        tasks=day.metadata.tiers[tier].tasks,
        tables=sum(len(pipeline.tables) for pipeline in members),
        dags=len(members),
        views=_views(members),
        runs=sum(len(day.starts.of.get(pipeline.dag_id, ())) for pipeline in members),
        run_seconds=round(max(day.seconds_of(pipeline) for pipeline in members), 1),
        table_seconds=pace.table_seconds,
        basis=pace.basis,
        merged=pace.merged,
        merge_seconds=pace.merge_seconds,
        direct_seconds=pace.direct_seconds,
        merge_hours=round(_merges(day, members) * (pace.merge_seconds - pace.direct_seconds) / 3600, 2),
    )


def _merges(day: Day, pipelines: Iterable[Pipeline]) -> int:
    """Batches of the day that Spark's `MERGE` commits."""
    return sum(
        len(day.starts.of.get(pipeline.dag_id, ()))
        for pipeline in pipelines
        for table in pipeline.tables
        if day.metadata.tiers[pipeline.tier].for_row(day.metadata.rows[table]).commit == "merge"
    )


def _views(pipelines: Iterable[Pipeline]) -> dict[AirflowView, int]:
    tables: Counter[AirflowView] = Counter()
    for pipeline in pipelines:
        tables[pipeline.view] += len(pipeline.tables)
    return dict(sorted(tables.items()))


def _peaks(day: Day) -> tuple[Peak, ...]:
    ordered = sorted(enumerate(day.starts.per_minute), key=lambda pair: (-pair[1], pair[0]))
    return tuple(
        Peak(minute=clock(minute), runs=runs, schedules=dict(day.schedules_at(minute).most_common()))
        for minute, runs in ordered[:_PEAKS]
        if runs
    )
