"""One simulated day: starts, durations and the load of the pools."""

from __future__ import annotations

import heapq
import itertools
import math
import operator
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import cached_property
from typing import Any, Literal, NamedTuple

from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import TableSpec, TierSpec
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.topology.pipeline import Pipeline
from airflow_gddl.topology.pipelines import NOWHERE, Arrangement, Placed, arrange
from airflow_gddl.topology.placement import homes
from airflow_gddl.topology.table_row import Starts, starts_on

LEAST_RECORDS = 5
"""Minimum number of records: a first load takes longer than later ones."""
JOB_START: Mapping[TableTasks, float] = {"one": 2.0, "many": 15.0}
"""Seconds until a local job processes its first table."""
SHARED_TABLE: Mapping[TableTasks, float] = {"one": 0.05, "many": 2.2}
"""Core seconds for a table with 100 changes (`benchmarks/small_tables.py`)."""
OWN_TABLE: Mapping[TableTasks, float] = {"one": 11.0, "many": 1.4}
"""Seconds for 200,000 changes into 5,000,000 rows on two cores (`benchmarks/large_merge.py`)."""
MERGED_TABLE: Mapping[bool, float] = {True: 5.4, False: 29.4}
"""The same of tables that Spark's `MERGE` commits, by whether they share a job (`benchmarks/commit_merge.py`): core
seconds of a small one, seconds of a large one."""


@dataclass(frozen=True, kw_only=True)
class ExpectedDuration:
    """Duration of a tier's runs.

    Attributes:
        start_seconds: before its first table.
        table_seconds: of one table.
        at_once: tables processed in parallel.
        merged: tables that Spark's `MERGE` commits; `merge_seconds` and `direct_seconds` of one of them, and with
            `commit: direct`, by benchmarks.
        basis: where `table_seconds` comes from: `records` of the lake, `benchmarks`, or `given`.
    """

    start_seconds: float
    table_seconds: float
    at_once: int
    merged: int = 0
    merge_seconds: float = 0.0
    direct_seconds: float = 0.0
    basis: Literal["records", "benchmarks", "given"] = "benchmarks"

    def run_seconds(self, tables: int) -> float:
        return self.start_seconds + math.ceil(tables / self.at_once) * self.table_seconds


def benchmark_pace(
    tier: TierSpec, machine_start: float, *, cluster: bool, rows: Sequence[TableSpec] = ()
) -> ExpectedDuration:
    """
    Args:
        machine_start: seconds until the runner's machines are available.
        cluster: jobs have the tier's `workers` machines; otherwise one.
        rows: of the tier; a table takes the mean of theirs. Empty: one without a `commit` of its own.
    """
    shared, made = tier.tables_per_job > 1, [tier.for_row(row) for row in rows] or [tier]
    merged = sum(one.commit == "merge" for one in made)
    tasks: TableTasks = "many" if tier.tasks == "many" else "one"
    direct = (SHARED_TABLE if shared else OWN_TABLE)[tasks]
    by_merge = MERGED_TABLE[shared]
    machines = tier.workers if cluster and tasks == "one" and merged < len(made) else 1
    return ExpectedDuration(
        start_seconds=JOB_START["many" if merged else tasks] + machine_start,
        table_seconds=round(direct + (by_merge - direct) * merged / len(made), 3),
        at_once=tier.cores * machines if shared else 1,
        merged=merged,
        merge_seconds=by_merge,
        direct_seconds=direct,
    )


def recorded_seconds(tables: Iterable[TableSpec], records: Mapping[str, TableRecord]) -> dict[str, float]:
    """By tier the median seconds of its tables' newest runs that did something; tiers with `LEAST_RECORDS` of them."""
    by_tier: defaultdict[str, list[float]] = defaultdict(list)
    for table in tables:
        record = records.get(table.table)
        newest = record.newest if record else None
        if newest is not None and newest.status == "succeeded":
            by_tier[table.size].append(newest.seconds)
    return {
        tier: statistics.median(durations) for tier, durations in by_tier.items() if len(durations) >= LEAST_RECORDS
    }


def with_seconds(pace: ExpectedDuration, seconds: float | None, basis: Literal["records", "given"]) -> ExpectedDuration:
    """The pace with another time for a table; the same when it is null."""
    return pace if seconds is None else replace(pace, table_seconds=seconds, basis=basis)


DAY_SECONDS = 86_400.0


class SlotRequest(NamedTuple):
    """Runs that need a slot each; of runs with the same start, the smaller `rank` goes first.

    Attributes:
        start: second of the day.
        rank: minus the priority weight.
        dag_id: of one of them.
        seconds: how long each holds its slot.
        runs: number of identical runs.
    """

    start: float
    rank: int
    dag_id: str
    seconds: float
    runs: int = 1


def serve(requests: Sequence[SlotRequest], slots: int, patience: float = math.inf) -> ServedPool:
    """The pool at the end of one day, nothing left over from the day before.

    Args:
        requests: sorted.
        slots: from 1 up.
        patience: stop as soon as a run waited longer than so many seconds.
    """
    pool = ServedPool(slots)
    for start, together in itertools.groupby(requests, key=operator.itemgetter(0)):
        pool.go_on(start)
        if pool.longest_wait > patience:
            return pool
        for run in together:
            heapq.heappush(pool.queue, (run.rank, run.start, run.dag_id, run.seconds, run.runs))
        pool.fill(start)
    pool.go_on(math.inf)
    return pool


class ServedPool:
    """Slots that are held, and the runs that wait for one.

    Attributes:
        longest_wait: seconds from a run's start to its slot, at most.
        waits: the DAG id of that run; empty when none waited.
    """

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.ends: list[tuple[float, int]] = []
        self.queue: list[tuple[int, float, str, float, int]] = []
        self.longest_wait, self.waits = 0.0, ""

    def go_on(self, until: float) -> None:
        """Assign slots released before this time; slots released exactly then are also available to new runs."""
        while self.ends and self.ends[0][0] < until:
            self.fill(self.ends[0][0])

    def fill(self, now: float) -> None:
        """Assign free slots to waiting runs, the most urgent first."""
        while self.ends and self.ends[0][0] <= now:
            self.free += heapq.heappop(self.ends)[1]
        while self.queue and self.free:
            rank, start, dag_id, seconds, runs = heapq.heappop(self.queue)
            taken = min(runs, self.free)
            self.free -= taken
            heapq.heappush(self.ends, (now + seconds, taken))
            if runs > taken:
                heapq.heappush(self.queue, (rank, start, dag_id, seconds, runs - taken))
            if now - start > self.longest_wait:
                self.longest_wait, self.waits = now - start, dag_id


def busy_seconds(requests: Sequence[SlotRequest]) -> float:
    """All runs' seconds together."""
    return sum(run.seconds * run.runs for run in requests)


def demand_of(requests: Sequence[SlotRequest]) -> int:
    """Maximum number of concurrent runs if none waited. Ends go before starts of the same moment."""
    moments = sorted(
        [(run.start, run.runs) for run in requests] + [(run.start + run.seconds, -run.runs) for run in requests]
    )
    now = most = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


def slots_needed(requests: Sequence[SlotRequest], patience: float, few: int, enough: int) -> int:
    """Approximately the fewest slots with which no run waits longer than `patience` seconds, at most a tenth more.

    Args:
        few: known to be too few.
        enough: known to be enough.
    """
    few = max(few, math.ceil(busy_seconds(requests) / (DAY_SECONDS + patience)) - 1)
    while few + 1 < enough and enough > 1.1 * few:
        middle = (few + enough) // 2
        if serve(requests, middle, patience).longest_wait <= patience:
            enough = middle
        else:
            few = middle
    return enough


PATIENCE = 600.0
"""Seconds that a run may wait for its slot before more slots are advised."""


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """A pool on the planned day.

    Attributes:
        demand: slots that would be held at once if there were any number.
        busy: share of its slots' day that is taken; above 1, the pool can't keep up.
        longest_wait: seconds from a run's start to its slot, at most; `waits` is that run's DAG.
        needed: slots with which no run waits longer than `PATIENCE`; `slots` where these are enough.
    """

    pool: str
    slots: int
    demand: int
    busy: float
    longest_wait: float
    waits: str
    needed: int

    @property
    def at_once(self) -> int:
        """Loads that run at the same time, at most."""
        return min(self.demand, self.slots)


def pool_use(pool: str, slots: int, requests: Sequence[SlotRequest]) -> PoolUse:
    """
    Args:
        requests: sorted.
    """
    served, demand = serve(requests, slots), demand_of(requests)
    short = served.longest_wait > PATIENCE
    return PoolUse(
        pool=pool,
        slots=slots,
        demand=demand,
        busy=round(busy_seconds(requests) / (slots * DAY_SECONDS), 4),
        longest_wait=round(served.longest_wait, 1),
        waits=served.waits,
        needed=slots_needed(requests, PATIENCE, slots, demand) if short else slots,
    )


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
        by_pool: defaultdict[str, set[str]] = defaultdict(set)
        for pipeline in self.metadata.pipelines:
            by_pool[pipeline.pool].add(pipeline.tier)
        return {pool: frozenset(tiers) for pool, tiers in by_pool.items()}

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
    requests: defaultdict[str, list[SlotRequest]] = defaultdict(list)
    for (pool, minutes, rank, seconds), dags in alike.items():
        requests[pool] += [SlotRequest(60.0 * minute, rank, min(dags), seconds, len(dags)) for minute in minutes]
    uses = tuple(pool_use(pool, slots[pool], sorted(requests[pool])) for pool in sorted(slots))
    return Day(metadata=metadata, starts=starts, paces=paces, pools=uses)


def _paces(metadata: Metadata) -> dict[str, ExpectedDuration]:
    recorded = recorded_seconds(metadata.tables, metadata.records)
    by_tier: defaultdict[str, list[TableSpec]] = defaultdict(list)
    for table in metadata.tables:
        if table.enabled:
            by_tier[table.size].append(table)
    runner, paces = RUNNERS.get(metadata.runner), {}
    for name in {pipeline.tier for pipeline in metadata.pipelines}:
        start = runner.start_seconds(metadata.runner_settings, name)
        pace = benchmark_pace(metadata.tiers[name], start, cluster=runner.cluster, rows=by_tier[name])
        paces[name] = with_seconds(with_seconds(pace, recorded.get(name), "records"), metadata.given.get(name), "given")
    return paces
