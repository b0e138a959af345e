"""Planned figures of Airflow with their limits, and rules of a plan: about Airflow, its pools, platforms and rows."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from airflow_gddl.capacity.day import Day, clock
from airflow_gddl.contract import durations
from airflow_gddl.contract.basics import AirflowView
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.topology.pipeline import Pipeline
from airflow_gddl.topology.table_row import gaps

RUNS_PER_LOOP = 20
"""Airflow's `[scheduler] max_dagruns_per_loop_to_schedule`: DAG runs that a scheduler handles in one loop."""
TASK_CPU_SECONDS = 1.5
"""Of a task, whatever it does (measured: benchmarks/airflow_run.py)."""
LIST_DOLLARS = 0.005 / 1000
"""Of a LIST request: prices of S3 Standard in us-east-1."""


class Requests(NamedTuple):
    """Requests of S3: `lists` and `writes` (PUT, COPY, POST) have one price, `reads` (GET, HEAD) another."""

    lists: float
    reads: float
    writes: float


REQUESTS_OF_A_BATCH = Requests(lists=5, reads=20, writes=10)
"""Of one small table that has a change file, its ledger and its results (`tests/s3/test_requests.py`)."""
EMR_VCPUS = 16
"""At once, of a new AWS account: quotas of EMR Serverless."""


@dataclass(frozen=True, kw_only=True)
class PlatformLimits:
    """Limits for a plan.

    Attributes:
        name: of the class, or of the sort of Airflow.
        dags: supported by its database and schedulers; None: not known.
        schedulers: how many there are.
        tasks: that workers run at once, all together.
        cpus: of all workers; None: not known.
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
    """A row of AWS's page of environment classes (https://docs.aws.amazon.com/mwaa/latest/userguide/environment-class.html).

    Attributes:
        dags: documented capacity, for DAGs that one file makes.
        tasks, vcpus: of one worker.
        workers: that a new environment has at most; can be set up to `MWAA_MOST_WORKERS`.
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
MWAA_MOST_WORKERS = 25
"""Highest maximum of workers that an environment takes; the smallest class, micro, has one."""
AIRFLOW = PlatformLimits()
TRIGGERER_CAPACITY = 1_000
"""Airflow's `[triggerer] capacity`."""


def mwaa_limits(name: str, workers: int | None = None, schedulers: int | None = None) -> PlatformLimits:
    """
    Args:
        name: of `MWAA`.
        workers, schedulers: None: those of a new environment.
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


_SOFT = ("starts", "worker_cpu", "worker_tasks")


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number of the plan.

    Attributes:
        name: stable, e.g. `dags`.
        limit: None: not known.
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
    shown, _ = _tables_per_minute(day)
    remote = RUNNERS.get(day.metadata.runner).remote
    at_once, cpu = loads_at_once(day), brief_tasks(day) * TASK_CPU_SECONDS
    made = [
        figure_of("dags", dags, limits.dags, f"DAGs ({limits.name})"),
        figure_of("tasks_per_day", 3 * day.starts.runs + shown, None, "task instances of the day"),
        figure_of("starts", peak, RUNS_PER_LOOP * limits.schedulers, "runs that start in the fullest minute"),
        figure_of("triggers", peak + (at_once if remote else 0), limits.triggers, "triggers at once"),
        figure_of("worker_cpu", cpu, None if limits.cpus is None else 60 * limits.cpus, "CPU seconds of that minute"),
    ]
    if not remote:
        made.append(figure_of("worker_tasks", at_once, limits.tasks, "loads on workers at once"))
    return (*made, *_of_listings(day))


def loads_at_once(day: Day) -> int:
    """Loads that run at the same time, at most."""
    return sum(pool.at_once for pool in day.pools) + len(day.continuous)


def brief_tasks(day: Day) -> int:
    """Tasks that workers start in the fullest minute.

    Loads of remote runners are deferred: two brief tasks of a worker, and a trigger in between.
    """
    loads, (_, started) = 2 if RUNNERS.get(day.metadata.runner).remote else 1, _tables_per_minute(day)
    return max(loads * runs + started[minute] for minute, runs in enumerate(day.starts.per_minute))


def _of_listings(day: Day) -> list[Figure]:
    """By tier: polls of landing folders, as if each took one request; see the benchmark `landing_polls.py`."""
    requests: Counter[str] = Counter()
    for pipeline in day.metadata.pipelines:
        requests[pipeline.tier] += len(day.starts.of.get(pipeline.dag_id, ())) * len(pipeline.tables)
    return [
        figure_of(f"listings_{tier}", count, None, f"landing folders polled, {tier}: ${count * LIST_DOLLARS:.2f} on S3")
        for tier, count in sorted(requests.items())
        if count
    ]


_INSTANCES: Mapping[AirflowView, int] = {"group": 3, "mapped": 1}
"""Task instances of a table in a run, by view; of `group` a worker starts one, the scheduler decides the others."""


def _tables_per_minute(day: Day) -> tuple[int, Counter[int]]:
    """Task instances of tables in the day, and those that workers start by its minutes, where all tables have news."""
    instances, started = 0, Counter[int]()
    for pipeline in day.metadata.pipelines:
        if started_of(pipeline):
            for minute in day.starts.of.get(pipeline.dag_id, ()):
                instances += _INSTANCES[pipeline.view] * len(pipeline.tables)
                started[minute] += started_of(pipeline)
    return instances, started


def started_of(pipeline: Pipeline) -> int:
    """Task instances of tables that workers start in a run, where all tables have news."""
    return len(pipeline.tables) if pipeline.view in _INSTANCES else 0


def figure_of(name: str, planned: float, limit: float | None, text: str) -> Figure:
    return Figure(name=name, planned=planned, limit=limit, text=text, soft=name in _SOFT)


Level = Literal["limit", "advice"]
_SHOWN = 5


@dataclass(frozen=True, kw_only=True)
class Advice:
    """One recommended change.

    Attributes:
        code: stable, see docs/codes.md.
        level: `limit`: a limit is exceeded; `advice`: a possible improvement.
        message: what was found, with its numbers.
        change: the field of a row, the setting or the option to change, and to what.
        tables: some of the tables it is about; empty: all.
        count: how many tables it is about; 0: all.
    """

    code: str
    level: Level
    message: str
    change: str
    tables: tuple[str, ...] = ()
    count: int = 0


def advice(*, code: str, level: Level, message: str, change: str, tables: Iterable[str] = ()) -> Advice:
    """
    Args:
        tables: all that it is about.
    """
    names = sorted(tables)
    return Advice(
        code=code, level=level, message=message, change=change, tables=tuple(names[:_SHOWN]), count=len(names)
    )


_SCATTERED = 10
"""Tolerated number of excess packs."""


def _dags(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    figure = figures["dags"]
    fitting = smallest_class(int(figure.planned))
    if not figure.fits:
        singles = Counter(pipeline.tier for pipeline in day.metadata.pipelines if pipeline.kind == "table")
        tier, many = singles.most_common(1)[0] if singles else ("", 0)
        alternative = f"; or tiers.{tier}.tables_per_job above 1: {many:,} tables have a DAG each" if tier else ""
        instead = f"--mwaa-class {fitting}" if fitting else "a second environment, with half of the sources"
        message = f"{figure.planned:,.0f} DAGs, and {limits.name} is documented for {figure.limit:,.0f}"
        yield advice(
            code="DAGS_OVER_CLASS",
            level="limit",
            message=message,
            change=instead + alternative,
            tables=(p.tables[0] for p in day.metadata.pipelines if p.kind == "table" and p.tier == tier),
        )
    elif limits.name in MWAA and fitting != limits.name:
        yield advice(
            code="CLASS_LARGER_THAN_NEEDED",
            level="advice",
            message=f"{figure.planned:,.0f} DAGs fit into {fitting} as documented; look at workers and starts before",
            change=f"--mwaa-class {fitting}",
        )


DAGS_OF_A_FILE = 2_500
"""A parse takes some 4 ms of CPU a DAG, twice that on a busy machine, and Airflow ends one after 30 s."""


def _dag_files(_day: Day, _limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    many = int(figures["dags"].planned)
    if many > DAGS_OF_A_FILE:
        files = math.ceil(many / DAGS_OF_A_FILE)
        yield advice(
            code="DAG_FILE_LARGE",
            level="advice",
            message=f"{many:,} DAGs: one DAG file with more than {DAGS_OF_A_FILE:,} may take longer to parse than "
            "Airflow allows, and all its DAGs disappear then",
            change=f"{files} DAG files, by select and exclude of build_dags; nothing where that is so already",
        )


def _packs(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    packs = [pipeline for pipeline in day.metadata.pipelines if pipeline.kind == "pack"]
    full: Counter[str] = Counter()
    for pack in packs:
        full[pack.tier] += len(pack.tables)
    # Up to twice the minimum number of packs is acceptable.
    least = sum(2 * math.ceil(many / day.metadata.tiers[tier].tables_per_job) for tier, many in full.items())
    if len(packs) <= least + _SCATTERED:
        return
    small = [pack for pack in packs if len(pack.tables) == 1]
    schedules = len({str(day.metadata.rows[pack.tables[0]].schedule) for pack in packs})
    priorities = len({pack.priority for pack in packs})
    sources = len({pack.source for pack in packs})
    yield advice(
        code="PACKS_SCATTERED",
        level="advice",
        message=f"{len(packs):,} packs where {least:,} would do, {len(small):,} of them of one table: {sources}"
        f" sources, {schedules} schedules and {priorities} priorities are kept apart",
        change="schedule (a preset instead of cron lines of its own), priority, source: fewer different ones",
        tables=(table for pack in small for table in pack.tables),
    )


def _starts(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    figure = figures["starts"]
    if figure.fits:
        return
    minute = day.starts.per_minute.index(int(figure.planned))
    schedule, many = day.schedules_at(minute).most_common(1)[0]
    tables = [
        table
        for pipeline in day.starting_at(minute)
        for table in pipeline.tables
        if str(day.metadata.rows[table].schedule) == schedule
    ]
    crowded = sum(number > (figure.limit or 0) for number in day.starts.per_minute)
    yield advice(
        code="STARTS_CROWDED",
        level="advice",
        message=f"{figure.planned:,.0f} runs start at {clock(minute)}, and {crowded:,} of the"
        f" day's minutes have more than the {figure.limit:,.0f} that {limits.schedulers} schedulers handle in a loop",
        change=f"schedule {schedule!r} of {many:,} runs: {_spread(schedule)}",
        tables=tables,
    )


def _spread(schedule: str) -> str:
    if schedule == "@hourly":
        return "every two hours or less often, or fewer DAGs (tables_per_job)"
    if schedule.startswith("@"):
        return "cron lines with other hours: a preset is spread over the minutes of one hour alone"
    return "a preset, which is spread over the minutes of an hour, or other minutes and hours"


def _triggers(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    figure = figures["triggers"]
    if not figure.fits:
        triggerers = math.ceil(figure.planned / 1000)
        # Where jobs run on workers, continuous jobs hold worker slots and no trigger.
        holding = day.continuous if RUNNERS.get(day.metadata.runner).remote else ()
        share = f", {len(holding):,} of them for `continuous` pipelines" if holding else ""
        instead = "schedule `*/5 * * * *` instead of `continuous`" if holding else "starts spread over more minutes"
        yield advice(
            code="TRIGGERS_OVER_CAPACITY",
            level="limit",
            message=f"{figure.planned:,.0f} triggers at once{share}; the triggerers of {limits.name} serve"
            f" {figure.limit:,.0f}",
            change=f"{triggerers} triggerers (--triggers {1000 * triggerers}), or {instead}",
            tables=(table for pipeline in holding for table in pipeline.tables),
        )


def _workers(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    loads, cpu = figures.get("worker_tasks"), figures["worker_cpu"]
    if loads is not None and not loads.fits:
        slots = ", ".join(f"tiers.{min(day.tiers_by_pool[p.pool])}.slots: {p.slots:,}" for p in day.pools)
        yield advice(
            code="WORKERS_SHORT",
            level="advice",
            message=f"pools and {len(day.continuous):,} continuous pipelines let {loads.planned:,.0f} loads run at"
            f" once, the workers of {limits.name} {loads.limit:,.0f} tasks of any kind",
            change=f"more workers (--workers, [core] parallelism), or fewer slots ({slots})",
        )
    if not cpu.fits:
        yield advice(
            code="WORKERS_SHORT",
            level="advice",
            message=f"the fullest minute takes {cpu.planned:,.0f} CPU seconds to start tasks, and has"
            f" {cpu.limit or 0:,.0f}",
            change="more workers (--workers), or schedules that are spread",
        )
    if limits.name in MWAA and not RUNNERS.get(day.metadata.runner).remote:
        yield advice(
            code="JOBS_ON_MWAA",
            level="limit",
            message=f"runner {day.metadata.runner} runs jobs on MWAA's own workers, which have neither Spark nor"
            " deltalake",
            change=f"runner: {', '.join(name for name in RUNNERS.referenced if RUNNERS.get(name).remote)}",
        )


AIRFLOW_RULES = (_dags, _dag_files, _packs, _starts, _triggers, _workers)


def _freshness(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    """Rows whose `freshness` is not longer than the time between two runs."""
    broken: dict[str, list[str]] = {}
    for pipeline in day.metadata.pipelines:
        least = _least_lag(day, pipeline)
        if least is None:
            continue
        for table in pipeline.tables:
            row = day.metadata.rows[table]
            if row.freshness is not None and durations.seconds(row.freshness) <= least:
                broken.setdefault(str(row.schedule), []).append(table)
    for schedule, tables in sorted(broken.items()):
        yield advice(
            code="FRESHNESS_TOO_SHORT",
            level="advice",
            message=f"`freshness` of rows with schedule {schedule} is not longer than the time between two runs:"
            " they will be late in between",
            change="freshness: longer, or schedule: more often",
            tables=tables,
        )


def _least_lag(day: Day, pipeline: Pipeline) -> float | None:
    """Seconds that a table of it is behind just before a run starts; None where its start times are not known."""
    if pipeline.timing.kind in ("never", "once"):
        return math.inf
    if pipeline.timing.kind != "cron":
        return None
    return 60 * gaps(pipeline.timing.cron, day.starts.day)[1]


ROW_RULES = (_freshness,)
