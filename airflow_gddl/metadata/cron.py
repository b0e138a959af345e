"""Cron lines, read by croniter, in UTC: what is wrong with one, when it fires, and how far its starts are apart."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise

from airflow_gddl.contract.basics import CALENDAR

SCHEDULES = ("@once", *CALENDAR, "continuous")
"""Schedules by name."""
_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day", 1, 31), ("month", 1, 12), ("weekday", 0, 7))
_RANDOM = re.compile(r"[HhRr]([(/,]|$)")
START = datetime(2024, 1, 1, tzinfo=UTC)
"""A fixed day, so that what is said of a line depends on the line alone."""
DAYS = 731
"""Two years, which contain the longest gap of a line that fires each year."""


@functools.lru_cache(maxsize=4096)
def cron_fault(schedule: str) -> str:
    """Why this text is not a schedule; empty when it is one."""
    if schedule in SCHEDULES:
        return ""
    if schedule.startswith("@"):
        return "no such preset"
    cells = schedule.split()
    if len(cells) != 5:
        return "neither a preset nor five cron fields"
    if any(_RANDOM.match(cell) for cell in cells):
        return "H and R give a different time in each parse"
    from croniter import croniter  # noqa: PLC0415 - few rows have a cron line
    from croniter.croniter import CroniterError  # noqa: PLC0415 - as above

    try:
        croniter(schedule, START).get_next()
    except (CroniterError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return next(_out_of_range(cells), "not a cron line that ever fires")
    return ""


def _out_of_range(cells: Sequence[str]) -> Iterator[str]:
    """What a cell of five holds that its field can't be."""
    for cell, (name, least, most) in zip(cells, _FIELDS, strict=True):
        for part in cell.split(","):
            span, _, step = part.partition("/")
            for number in (int(text) for text in span.split("-") if text.isdecimal()):
                if not least <= number <= most:
                    yield f"the {name} {number} is {f'above {most}' if number > most else f'below {least}'}"
            if step == "0":
                yield f"the {name} has a step of 0"


@functools.lru_cache(maxsize=16_384)
def longest_gap(cron: str) -> int:
    """Seconds between two starts, at most, in 2024 and 2025; two years if it fires on fewer than two of their days."""
    minutes = minutes_of(cron)
    days = days_of(cron.split(maxsplit=2)[2], START.date(), DAYS)
    nights = max((later - earlier for earlier, later in pairwise(days)), default=None)
    if nights is None:
        return DAYS * 86_400
    over_night = nights // timedelta(minutes=1) - minutes[-1] + minutes[0]
    return 60 * max([over_night, *(later - earlier for earlier, later in pairwise(minutes))])


@functools.lru_cache(maxsize=16_384)
def minutes_of(cron: str) -> tuple[int, ...]:
    """Minutes of the day at which a line fires on the days on which it does."""
    minute, hour = cron.split()[:2]
    from croniter import croniter  # noqa: PLC0415 - with its zones, as dear as all else here

    expanded = croniter.expand(f"{minute} {hour} * * *")[0]
    hours = range(24) if expanded[1] == ["*"] else expanded[1]
    minutes = range(60) if expanded[0] == ["*"] else expanded[0]
    return tuple(sorted(60 * h + m for h in hours for m in minutes))


@functools.lru_cache(maxsize=65_536)
def days_of(days: str, first: date, count: int) -> tuple[date, ...]:
    """Days on which lines with these last three fields fire, of so many from `first` on."""
    if days == "* * *":
        return tuple(first + timedelta(days=number) for number in range(count))
    from croniter import croniter_range  # noqa: PLC0415 - as above

    start = datetime.combine(first, datetime.min.time(), UTC)
    return tuple(day.date() for day in croniter_range(start, start + timedelta(days=count - 1), f"0 0 {days}"))
