"""Start times of pipelines: cron lines as minutes of one day, in UTC."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

from croniter import croniter

from airflow_gddl.metadata.topology.pipelines import Pipeline

MINUTES = 1440
HORIZON = 31
"""Number of days considered: contains each day of a week and of a month."""


@dataclass(frozen=True, kw_only=True)
class Starts:
    """The starts of one day.

    Attributes:
        of: minutes of the day, ascending, by DAG id; only pipelines that start on it.
        per_minute: how many start in each of its 1,440 minutes.
    """

    day: date
    of: Mapping[str, tuple[int, ...]]
    per_minute: tuple[int, ...]

    @property
    def runs(self) -> int:
        return sum(self.per_minute)


def starts_on(pipelines: Iterable[Pipeline], day: date) -> Starts:
    """The starts of pipelines with a time schedule; others start by data or manually."""
    of = {
        pipeline.dag_id: minutes_of(pipeline.timing.cron)
        for pipeline in pipelines
        if pipeline.timing.kind == "cron" and runs_on(pipeline.timing.cron, day)
    }
    counted: Counter[int] = Counter()
    # Thousands of pipelines have few different lines, and these many minutes.
    for minutes, pipelines_alike in Counter(of.values()).items():
        counted.update(dict.fromkeys(minutes, pipelines_alike))
    return Starts(day=day, of=of, per_minute=tuple(counted[minute] for minute in range(MINUTES)))


def busiest_day(pipelines: Iterable[Pipeline], first: date) -> date:
    """The day with the most starts among the `HORIZON` days from `first`; the earliest of several."""
    weights: Counter[str] = Counter()
    for pipeline in pipelines:
        if pipeline.timing.kind == "cron":
            # Days depend on the last three fields alone, of which thousands of lines have few.
            weights[_day_part(pipeline.timing.cron)] += len(minutes_of(pipeline.timing.cron))
    days = [first + timedelta(days=number) for number in range(HORIZON)]
    return max(days, key=lambda day: sum(weight for part, weight in weights.items() if _fires(part, day)))


@functools.lru_cache(maxsize=16_384)
def gaps(cron: str, first: date) -> tuple[int, int]:
    """Minutes between two starts, at least and at most, as the `HORIZON` days from `first` on show them.

    A line that fires on one of these days or on none counts as once in so many days.
    """
    minutes = minutes_of(cron)
    days = [number for number in range(HORIZON) if runs_on(cron, first + timedelta(days=number))]
    if len(days) < 2:
        return HORIZON * MINUTES, HORIZON * MINUTES
    within = [later - earlier for earlier, later in pairwise(minutes)]
    over_night = MINUTES - minutes[-1] + minutes[0]
    between = [(later - earlier - 1) * MINUTES + over_night for earlier, later in pairwise(days)]
    return min(within + between), max(within + between)


@functools.lru_cache(maxsize=16_384)
def minutes_of(cron: str) -> tuple[int, ...]:
    """Minutes of the day at which a line fires on the days on which it does."""
    minute, hour = cron.split()[:2]
    expanded = croniter.expand(f"{minute} {hour} * * *")[0]
    hours = range(24) if expanded[1] == ["*"] else expanded[1]
    minutes = range(60) if expanded[0] == ["*"] else expanded[0]
    return tuple(sorted(60 * h + m for h in hours for m in minutes))


def runs_on(cron: str, day: date) -> bool:
    """Whether a line fires on this day at all."""
    return _fires(_day_part(cron), day)


def _day_part(cron: str) -> str:
    return " ".join(cron.split()[2:])


@functools.lru_cache(maxsize=65_536)
def _fires(part: str, day: date) -> bool:
    return part == "* * *" or bool(croniter.match(f"0 0 {part}", datetime.combine(day, time(), UTC)))
