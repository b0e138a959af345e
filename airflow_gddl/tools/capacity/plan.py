"""The plan: how many DAGs, task instances and starts the rows give, tables that move to other DAGs, and advice."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cached_property

from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.codes import DAG_FILE_LARGE, FRESHNESS_TOO_SHORT
from airflow_gddl.contract.spec import TableSpec, TierSpec, TierTasks
from airflow_gddl.metadata.cron import days_of, longest_gap, minutes_of
from airflow_gddl.topology.pipelines import Arrangement, Pipeline, arrange
from airflow_gddl.topology.placement import NOWHERE, Placement

UPKEEP_DAGS = 2
DAGS_OF_A_FILE = 2_500
"""A parse takes some 4 ms of CPU a DAG, twice that on a busy machine, and Airflow ends one after 30 s."""
MWAA = {
    "mw1.micro": 25, "mw1.small": 50, "mw1.medium": 250, "mw1.large": 1_000, "mw1.xlarge": 2_000, "mw1.2xlarge": 4_000,
}  # fmt: skip
"""DAGs that a class of MWAA is documented for, if one file makes them
(https://docs.aws.amazon.com/mwaa/latest/userguide/environment-class.html)."""
_INSTANCES: Mapping[AirflowView, int] = {"group": 3, "mapped": 1}
"""Task instances of a table in a run, beside those of its pipeline."""
_SHOWN = 5

ViewChange = tuple[AirflowView, AirflowView]
"""What Airflow shows of a DAG's tables before and after."""


def changed_views(before: Mapping[str, AirflowView], after: Mapping[str, AirflowView]) -> dict[str, ViewChange]:
    """Those that differ, by DAG id, of DAGs that are there before and after."""
    return {
        dag_id: (before[dag_id], view) for dag_id, view in sorted(after.items()) if before.get(dag_id, view) != view
    }


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Input of a plan.

    Attributes:
        tables: valid rows, each table once.
        before: placement of the tables in the lake.
    """

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec]
    dag_prefix: str = ""
    before: Placement = NOWHERE

    @cached_property
    def arrangement(self) -> Arrangement:
        return arrange(self.tables, self.tiers, self.dag_prefix, self.before)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return self.arrangement.pipelines

    @cached_property
    def moves(self) -> Mapping[str, tuple[str, str]]:
        """DAG ids before and after, of tables that another DAG loads from now on."""
        before, after = self.before.homes, self.arrangement.placement.homes
        return {
            table: (f"{self.dag_prefix}{before[table]}", f"{self.dag_prefix}{name}")
            for table, name in sorted(after.items())
            if before.get(table, name) != name
        }

    @cached_property
    def changed_views(self) -> Mapping[str, ViewChange]:
        """DAGs of several tables that Airflow shows otherwise from now on."""
        packs = self.before.packs.items()
        before = {f"{self.dag_prefix}{name}": pack.view for name, pack in packs}
        return changed_views(before, {pipeline.dag_id: pipeline.view for pipeline in self.pipelines})


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One recommended change.

    Attributes:
        code: stable, see docs/codes.md.
        message: what was found, with its numbers.
        change: the field of a row or the setting to change, and to what.
        tables: some of the tables it is about; empty: all.
        count: how many tables it is about; 0: all.
    """

    code: str
    message: str
    change: str
    tables: tuple[str, ...] = ()
    count: int = 0


@dataclass(frozen=True, kw_only=True)
class TierCounts:
    """The pipelines of a tier.

    Attributes:
        tables: enabled ones.
        views: tables by what Airflow shows of them; see `TableSpec.airflow`.
        runs: that start on the day by the clock.
    """

    tier: str
    tasks: TierTasks
    tables: int
    dags: int
    views: Mapping[AirflowView, int]
    runs: int


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `gddl plan --json` prints.

    Attributes:
        day: the busiest of the next 31, `YYYY-MM-DD`.
        tables: enabled ones.
        dags: those of tables, and the two for maintenance.
        mwaa_class: the smallest class of MWAA that is documented for as many DAGs; None: none is.
        started_by: DAGs by what starts them: `cron`, `continuous`, `assets`, `once`, `never`.
        runs: that start on the day by the clock.
        task_instances: of these runs, if all tables have new files.
        views: DAG id to what Airflow shows of its tables.
        moves: table to the DAG that loads it now and the one that will.
        changed_views: DAG id to what Airflow shows of its tables now, and will.
    """

    day: str
    tables: int
    dags: int
    mwaa_class: str | None
    started_by: Mapping[str, int]
    runs: int
    task_instances: int
    views: Mapping[str, AirflowView]
    moves: Mapping[str, tuple[str, str]]
    changed_views: Mapping[str, ViewChange]
    tiers: tuple[TierCounts, ...]
    advice: tuple[Advice, ...]


def make_plan(metadata: Metadata, today: date) -> Plan:
    """Counts of the day with the most starts from `today` on."""
    pipelines = metadata.pipelines
    days = (today + timedelta(days=number) for number in range(31))
    day, starts = max(((day, starts_on(pipelines, day)) for day in days), key=lambda one: sum(one[1].values()))
    dags = len(pipelines) + UPKEEP_DAGS
    return Plan(
        day=day.isoformat(),
        tables=sum(len(pipeline.tables) for pipeline in pipelines),
        dags=dags,
        mwaa_class=next((name for name, most in MWAA.items() if dags <= most), None),
        started_by=dict(sorted(Counter(pipeline.timing.kind for pipeline in pipelines).items())),
        runs=sum(starts.values()),
        # Of a run: three of the pipeline, and those of its tables.
        task_instances=sum(
            starts.get(one.dag_id, 0) * (3 + _INSTANCES.get(one.view, 0) * len(one.tables)) for one in pipelines
        ),
        views={pipeline.dag_id: pipeline.view for pipeline in pipelines},
        moves=metadata.moves,
        changed_views=metadata.changed_views,
        tiers=tuple(_tier(metadata, tier, starts) for tier in sorted({pipeline.tier for pipeline in pipelines})),
        advice=(*_dag_files(dags), *_freshness(metadata)),
    )


def starts_on(pipelines: Iterable[Pipeline], day: date) -> dict[str, int]:
    """How often pipelines with a time schedule start, by DAG id; others start by data or manually."""
    crons = ((pipeline.dag_id, pipeline.timing.cron) for pipeline in pipelines if pipeline.timing.cron)
    return {dag: len(minutes_of(cron)) for dag, cron in crons if days_of(cron.split(maxsplit=2)[2], day, 1)}


def _tier(metadata: Metadata, tier: str, starts: Mapping[str, int]) -> TierCounts:
    members = [pipeline for pipeline in metadata.pipelines if pipeline.tier == tier]
    return TierCounts(
        tier=tier,
        tasks=metadata.tiers[tier].tasks,
        tables=sum(len(pipeline.tables) for pipeline in members),
        dags=len(members),
        views=_views(members),
        runs=sum(starts.get(pipeline.dag_id, 0) for pipeline in members),
    )


def _views(pipelines: Iterable[Pipeline]) -> dict[AirflowView, int]:
    tables: Counter[AirflowView] = Counter()
    for pipeline in pipelines:
        tables[pipeline.view] += len(pipeline.tables)
    return dict(sorted(tables.items()))


def _dag_files(dags: int) -> Iterator[Advice]:
    if dags > DAGS_OF_A_FILE:
        yield Advice(
            code=DAG_FILE_LARGE,
            message=f"{dags:,} DAGs: one DAG file with more than {DAGS_OF_A_FILE:,} may take longer to parse than "
            "Airflow allows, and all its DAGs disappear then",
            change=f"{math.ceil(dags / DAGS_OF_A_FILE)} DAG files, by select and exclude of build_dags; nothing where "
            "that is so already",
        )


def _freshness(metadata: Metadata) -> Iterator[Advice]:
    """Rows whose `freshness` is not longer than the time between two runs."""
    rows = {table.table: table for table in metadata.tables}
    broken: dict[str, list[str]] = {}
    for pipeline in metadata.pipelines:
        least = _least_lag(pipeline)
        for row in (rows[table] for table in pipeline.tables):
            if row.freshness is not None and durations.seconds(row.freshness) <= least:
                broken.setdefault(str(row.schedule), []).append(row.table)
    for schedule, tables in sorted(broken.items()):
        yield Advice(
            code=FRESHNESS_TOO_SHORT,
            message=f"`freshness` of rows with schedule {schedule} is not longer than the time between two runs:"
            " they will be late in between",
            change="freshness: longer, or schedule: more often",
            tables=tuple(sorted(tables)[:_SHOWN]),
            count=len(tables),
        )


def _least_lag(pipeline: Pipeline) -> float:
    """Seconds that a table of it is behind just before a run starts; 0 where its start times are not known."""
    if pipeline.timing.kind in ("never", "once"):
        return math.inf
    return longest_gap(pipeline.timing.cron) if pipeline.timing.cron else 0
