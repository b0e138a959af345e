"""Input of a plan, and what it counts: starts on one day, slots of pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline
from airflow_gddl.topology.pipelines import NOWHERE, Arrangement, Placed, arrange
from airflow_gddl.topology.placement import homes
from airflow_gddl.topology.table_row import Starts, busiest_day, starts_on

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
        settings: what `gddl.yaml` says of the runner, as written.
        before: placement of the tables in the lake.
    """

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec]
    runner: str = "local"
    settings: Mapping[str, Any] = field(default_factory=dict)
    dag_prefix: str = ""
    before: Placed = NOWHERE

    @cached_property
    def arrangement(self) -> Arrangement:
        return arrange(self.tables, self.tiers, self.dag_prefix, self.before)

    @property
    def pipelines(self) -> tuple[Pipeline, ...]:
        return self.arrangement.pipelines

    @cached_property
    def moves(self) -> Mapping[str, tuple[str, str]]:
        """DAG ids before and after, of tables that another DAG loads from now on."""
        before, after = homes(self.before.placement), homes(self.arrangement.placement)
        return {
            table: (f"{self.dag_prefix}{before[table]}", f"{self.dag_prefix}{name}")
            for table, name in sorted(after.items())
            if before.get(table, name) != name
        }

    @cached_property
    def changed_views(self) -> Mapping[str, ViewChange]:
        """DAGs of several tables that Airflow shows otherwise from now on."""
        packs = self.before.placement.packs.items()
        before = {f"{self.dag_prefix}{name}": pack.view for name, pack in packs}
        return changed_views(before, {pipeline.dag_id: pipeline.view for pipeline in self.pipelines})

    @cached_property
    def rows(self) -> Mapping[str, TableSpec]:
        return {table.table: table for table in self.tables}

    @cached_property
    def runner_settings(self) -> Any:
        """An instance of the runner's class of settings; None: it has none."""
        return RUNNERS.get(self.runner).decoded(self.runner, self.settings)


@dataclass(frozen=True, kw_only=True)
class PoolSlots:
    """A pool.

    Attributes:
        dags: that start by themselves and load in it, those that are continuous left out.
    """

    pool: str
    slots: int
    dags: int

    @property
    def at_once(self) -> int:
        """Loads that the pool lets run at the same time, at most."""
        return min(self.dags, self.slots)


@dataclass(frozen=True, kw_only=True)
class Day:
    """The pipelines with their starts on one day.

    Attributes:
        pools: in the order of their names.
    """

    metadata: Metadata
    starts: Starts
    pools: tuple[PoolSlots, ...]

    @cached_property
    def tiers_by_pool(self) -> Mapping[str, frozenset[str]]:
        """Tiers may share a pool."""
        by_pool: defaultdict[str, set[str]] = defaultdict(set)
        for pipeline in self.metadata.pipelines:
            by_pool[pipeline.pool].add(pipeline.tier)
        return {pool: frozenset(tiers) for pool, tiers in by_pool.items()}

    @cached_property
    def continuous(self) -> tuple[Pipeline, ...]:
        """Pipelines that are assumed to be always busy: each poll finds new files."""
        return tuple(pipeline for pipeline in self.metadata.pipelines if pipeline.timing.kind == "continuous")

    def starting_at(self, minute: int) -> list[Pipeline]:
        return [pipeline for pipeline in self.metadata.pipelines if minute in self.starts.of.get(pipeline.dag_id, ())]

    def schedules_at(self, minute: int) -> Counter[str]:
        """The schedules of the rows that start then, as the rows have them, and how many runs each makes."""
        return Counter(str(self.metadata.rows[one.tables[0]].schedule) for one in self.starting_at(minute))


def clock(minute: int) -> str:
    """`HH:MM` of a minute of the day."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def busiest(metadata: Metadata, today: date) -> Day:
    """The day with the most starts from `today` on, see `topology.table_row.busiest_day`."""
    slots: dict[str, int] = {}
    dags: Counter[str] = Counter()
    for pipeline in metadata.pipelines:
        slots[pipeline.pool] = max(pipeline.slots, slots.get(pipeline.pool, 0))
        dags[pipeline.pool] += pipeline.timing.kind not in ("continuous", "never")
    return Day(
        metadata=metadata,
        starts=starts_on(metadata.pipelines, busiest_day(metadata.pipelines, today)),
        pools=tuple(PoolSlots(pool=pool, slots=slots[pool], dags=dags[pool]) for pool in sorted(slots)),
    )
