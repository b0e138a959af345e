"""Rules about rows: unreachable freshness and overlong runs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import itemgetter

from airflow_gddl.contract import durations
from airflow_gddl.metadata.topology import Pipeline
from airflow_gddl.metadata.topology.starts import gaps
from airflow_gddl.planning.advice import Advice, advice
from airflow_gddl.planning.day import Day
from airflow_gddl.planning.figures import Figure
from airflow_gddl.planning.limits import PlatformLimits


def _overruns(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    """Reports the pipeline of a tier that overruns most."""
    late: defaultdict[str, list[tuple[float, str, Pipeline]]] = defaultdict(list)
    for pipeline in day.metadata.pipelines:
        if pipeline.timing.kind != "cron":
            continue
        share = day.seconds_of(pipeline) / (60 * gaps(pipeline.timing.cron, day.starts.day)[0])
        if share > 1:
            late[pipeline.tier].append((share, pipeline.dag_id, pipeline))
    for tier, found in sorted(late.items()):
        share, _, pipeline = max(found, key=itemgetter(0, 1))
        spec = day.metadata.tiers[tier]
        fewer = max(1, math.floor(len(pipeline.tables) / share))
        many = len(pipeline.tables)
        packs = f", tiers.{tier}.tables_per_job: {spec.tables_per_job:,} → {fewer:,}" if many > 1 else ""
        yield advice(
            code="RUN_OUTLASTS_INTERVAL",
            level="advice",
            message=f"a run of {pipeline.dag_id} takes {day.seconds_of(pipeline) / 60:,.0f} minutes where all its"
            f" {many:,} tables have new files, but the next one is due earlier: runs are skipped",
            change=f"schedule {day.metadata.rows[pipeline.tables[0]].schedule!r}: less often{packs},"
            f" tiers.{tier}.cores, or a larger size",
            tables=(table for *_, one in found for table in one.tables),
        )


def _freshness(day: Day, _limits: PlatformLimits, _figures: Mapping[str, Figure]) -> Iterator[Advice]:
    """Rows whose `freshness` is shorter than the time between two runs and what a run takes."""
    broken: dict[str, list[str]] = {}
    for pipeline in day.metadata.pipelines:
        least = _least_lag(day, pipeline)
        if least is None:
            continue
        for table in pipeline.tables:
            row = day.metadata.rows[table]
            if row.freshness is not None and durations.seconds(row.freshness) < least:
                broken.setdefault(str(row.schedule), []).append(table)
    for schedule, tables in sorted(broken.items()):
        yield advice(
            code="FRESHNESS_TOO_SHORT",
            level="advice",
            message=f"`freshness` of rows with schedule {schedule} is shorter than the time between two runs and a run"
            " itself: they will be late in between",
            change="freshness: longer, or schedule: more often",
            tables=tables,
        )


def _least_lag(day: Day, pipeline: Pipeline) -> float | None:
    """Seconds that a table of it is behind just before a run ends; null where its start times are not known."""
    if pipeline.timing.kind in ("never", "once"):
        return math.inf
    if pipeline.timing.kind != "cron":
        return None
    return 60 * gaps(pipeline.timing.cron, day.starts.day)[1] + day.seconds_of(pipeline)


ROW_RULES = (_overruns, _freshness)
