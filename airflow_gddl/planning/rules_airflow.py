"""Rules about Airflow: its database, schedulers, triggerers, workers and pools."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from airflow_gddl.planning.advice import Advice, advice
from airflow_gddl.planning.day import Day, clock
from airflow_gddl.planning.figures import REMOTE, Figure
from airflow_gddl.planning.limits import MWAA, PlatformLimits, smallest_class
from airflow_gddl.planning.slots import DAY_SECONDS

_SCATTERED = 10
"""Tolerated number of excess packs."""


def _dags(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    found = figures["dags"]
    fitting = smallest_class(int(found.planned))
    if not found.fits:
        singles = Counter(pipeline.tier for pipeline in day.metadata.pipelines if pipeline.kind == "table")
        tier, many = singles.most_common(1)[0] if singles else ("", 0)
        own = f"; or tiers.{tier}.tables_per_job above 1: {many:,} tables have a DAG each" if tier else ""
        instead = f"--mwaa-class {fitting}" if fitting else "a second environment, with half of the sources"
        message = f"{found.planned:,.0f} DAGs, and {limits.name} is documented for {found.limit:,.0f}"
        yield advice(
            code="DAGS_OVER_CLASS",
            level="limit",
            message=message,
            change=instead + own,
            tables=(p.tables[0] for p in day.metadata.pipelines if p.kind == "table" and p.tier == tier),
        )
    elif limits.name in MWAA and fitting != limits.name:
        yield advice(
            code="CLASS_LARGER_THAN_NEEDED",
            level="advice",
            message=f"{found.planned:,.0f} DAGs fit into {fitting} as documented; look at workers and starts before",
            change=f"--mwaa-class {fitting}",
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
    found = figures["starts"]
    if found.fits:
        return
    minute = day.starts.per_minute.index(int(found.planned))
    schedule, many = day.schedules_at(minute).most_common(1)[0]
    tables = [
        table
        for pipeline in day.starting_at(minute)
        for table in pipeline.tables
        if str(day.metadata.rows[table].schedule) == schedule
    ]
    crowded = sum(number > (found.limit or 0) for number in day.starts.per_minute)
    yield advice(
        code="STARTS_CROWDED",
        level="advice",
        message=f"{found.planned:,.0f} runs start at {clock(minute)}, and {crowded:,} of the"
        f" day's minutes have more than the {found.limit:,.0f} that {limits.schedulers} schedulers handle in a loop",
        change=f"schedule {schedule!r} of {many:,} runs: {_spread(schedule)}",
        tables=tables,
    )


def _spread(schedule: str) -> str:
    if schedule == "@hourly":
        return "every two hours or less often, or fewer DAGs (tables_per_job)"
    if schedule.startswith("@"):
        return "cron lines with other hours: a preset is spread over the minutes of one hour alone"
    return "a preset, which is spread over the minutes of an hour, or other minutes and hours"


def _pools(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    for pool in day.pools:
        tier = min(day.tiers_by_pool[pool.pool])
        change = f"tiers.{tier}.slots: {pool.slots:,} → {pool.needed:,}; or a schedule that is less often"
        tables = (table for p in day.metadata.pipelines if p.pool == pool.pool for table in p.tables)
        if pool.busy > 1:
            hours = pool.busy * pool.slots * DAY_SECONDS / 3600
            message = f"pool {pool.pool} is asked for {hours:,.0f} hours of work a day, and has {24 * pool.slots:,}"
            yield advice(code="POOL_OVERLOADED", level="limit", message=message, change=change, tables=tables)
        elif pool.needed > pool.slots:
            message = f"in pool {pool.pool} a run waits {pool.longest_wait / 60:,.0f} minutes for a slot ({pool.waits})"
            yield advice(code="POOL_SHORT", level="advice", message=message, change=change, tables=tables)


def _triggers(day: Day, limits: PlatformLimits, figures: Mapping[str, Figure]) -> Iterator[Advice]:
    found = figures["triggers"]
    if not found.fits:
        triggerers = math.ceil(found.planned / 1000)
        # Where jobs run on workers, continuous jobs hold worker slots and no trigger.
        holding = day.continuous if day.metadata.runner in REMOTE else ()
        share = f", {len(holding):,} of them for `continuous` pipelines" if holding else ""
        instead = "schedule `*/5 * * * *` instead of `continuous`" if holding else "starts spread over more minutes"
        yield advice(
            code="TRIGGERS_OVER_CAPACITY",
            level="limit",
            message=f"{found.planned:,.0f} triggers at once{share}; the triggerers of {limits.name} serve"
            f" {found.limit:,.0f}",
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
    if limits.name in MWAA and day.metadata.runner not in REMOTE:
        yield advice(
            code="JOBS_ON_MWAA",
            level="limit",
            message=f"runner {day.metadata.runner} runs jobs on MWAA's own workers, which have neither Spark nor"
            " deltalake",
            change="runner: databricks, emr_serverless or glue",
        )


AIRFLOW_RULES = (_dags, _packs, _starts, _pools, _triggers, _workers)
