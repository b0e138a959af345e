"""One simulated day: starts, durations and the load of the pools."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any

from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.metadata.runners.databricks import DatabricksSettings
from airflow_gddl.metadata.runners.emr_serverless import EmrSettings
from airflow_gddl.metadata.topology import Arrangement, Pipeline, Placed, arrange
from airflow_gddl.metadata.topology.pipelines import NOWHERE
from airflow_gddl.metadata.topology.placement import homes
from airflow_gddl.metadata.topology.starts import Starts, starts_on
from airflow_gddl.planning.expected import ExpectedDuration, benchmark_pace, recorded_seconds, with_seconds
from airflow_gddl.planning.pools import PoolUse, pool_use
from airflow_gddl.planning.slots import SlotRequest
from airflow_gddl.runtime.state.facts import TableRecord


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """Input of a plan.

    Attributes:
        tables: valid rows, each table once.
        settings: what `gddl.yaml` says of the runner, as written.
        records: past runs, by table.
        given: user-supplied seconds for a table of a tier; by tier.
        before: placement of the tables in the lake.
    """

    tables: tuple[TableSpec, ...]
    tiers: Mapping[str, TierSpec]
    runner: str = "local"
    settings: Mapping[str, Any] = field(default_factory=dict)
    records: Mapping[str, TableRecord] = field(default_factory=dict)
    given: Mapping[str, float] = field(default_factory=dict)
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
    def rows(self) -> Mapping[str, TableSpec]:
        return {table.table: table for table in self.tables}

    @cached_property
    def databricks(self) -> DatabricksSettings:
        return decode(DatabricksSettings, dict(self.settings))

    @cached_property
    def emr(self) -> EmrSettings:
        return decode(EmrSettings, dict(self.settings))


@dataclass(frozen=True, kw_only=True)
class Day:
    """Starts and paces together.

    Attributes:
        paces: by tier, of tiers that some pipeline has.
        pools: in the order of their names.
    """

    metadata: Metadata
    starts: Starts
    paces: Mapping[str, ExpectedDuration]
    pools: tuple[PoolUse, ...]

    @cached_property
    def tiers_by_pool(self) -> Mapping[str, frozenset[str]]:
        """Tiers may share a pool."""
        found: defaultdict[str, set[str]] = defaultdict(set)
        for pipeline in self.metadata.pipelines:
            found[pipeline.pool].add(pipeline.tier)
        return {pool: frozenset(tiers) for pool, tiers in found.items()}

    @cached_property
    def continuous(self) -> tuple[Pipeline, ...]:
        """Pipelines that are assumed to be always busy: each poll finds new files."""
        return tuple(pipeline for pipeline in self.metadata.pipelines if pipeline.timing.kind == "continuous")

    def seconds_of(self, pipeline: Pipeline) -> float:
        """Seconds of a run in which all its tables have new files."""
        return self.paces[pipeline.tier].run_seconds(len(pipeline.tables))

    def starting_at(self, minute: int) -> list[Pipeline]:
        return [pipeline for pipeline in self.metadata.pipelines if minute in self.starts.of.get(pipeline.dag_id, ())]

    def schedules_at(self, minute: int) -> Counter[str]:
        """The schedules of the rows that start then, as the rows have them, and how many runs each makes."""
        return Counter(str(self.metadata.rows[one.tables[0]].schedule) for one in self.starting_at(minute))


def clock(minute: int) -> str:
    """`HH:MM` of a minute of the day."""
    return f"{minute // 60:02d}:{minute % 60:02d}"


def day_of(metadata: Metadata, day: date) -> Day:
    starts = starts_on(metadata.pipelines, day)
    paces = _paces(metadata)
    slots: dict[str, int] = {}
    alike: defaultdict[tuple[str, tuple[int, ...], int, float], list[str]] = defaultdict(list)
    for pipeline in metadata.pipelines:
        slots[pipeline.pool] = max(pipeline.slots, slots.get(pipeline.pool, 0))
        seconds = paces[pipeline.tier].run_seconds(len(pipeline.tables))
        minutes = starts.of.get(pipeline.dag_id, ())
        alike[pipeline.pool, minutes, -pipeline.weight, seconds].append(pipeline.dag_id)
    asked: defaultdict[str, list[SlotRequest]] = defaultdict(list)
    for (pool, minutes, rank, seconds), dags in alike.items():
        asked[pool] += [SlotRequest(60.0 * minute, rank, min(dags), seconds, len(dags)) for minute in minutes]
    uses = tuple(pool_use(pool, slots[pool], sorted(asked[pool])) for pool in sorted(slots))
    return Day(metadata=metadata, starts=starts, paces=paces, pools=uses)


def _paces(metadata: Metadata) -> dict[str, ExpectedDuration]:
    recorded = recorded_seconds(metadata.tables, metadata.records)
    found = {}
    for name in {pipeline.tier for pipeline in metadata.pipelines}:
        pace = benchmark_pace(metadata.tiers[name], metadata.runner, fast=_is_fast(metadata, name))
        found[name] = with_seconds(with_seconds(pace, recorded.get(name), "records"), metadata.given.get(name), "given")
    return found


def _is_fast(metadata: Metadata, tier: str) -> bool:
    if metadata.runner != "databricks":
        return False
    machines = metadata.databricks.tier(tier)
    return machines.serverless and machines.performance == "PERFORMANCE_OPTIMIZED"
