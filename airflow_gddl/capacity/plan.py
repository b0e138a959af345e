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
    figures_of,
)
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import TierSpec, TierTasks
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline

Rule = Callable[[Day, PlatformLimits, Mapping[str, Figure]], Iterator[Advice]]


@dataclass(frozen=True, kw_only=True)
class RunnerCapacity:
    """Figures of a runner's platform on a planned day, and rules that give advice on them; see `RunnerDescriptor`."""

    figures: Callable[[Day, PlatformLimits], Sequence[Figure]]
    rules: tuple[Rule, ...] = ()


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
        tiers=tuple(_tier_cost(day, tier) for tier in tiers_of(day)),
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


def tiers_of(day: Day) -> list[str]:
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
