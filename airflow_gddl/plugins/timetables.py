"""Cron timetables that Airflow displays as written in the metadata.

A preset of the metadata runs at a minute of the DAG's own, so that Airflow's `@hourly`, minute 0, can't be used.
Airflow describes a cron line whenever it makes a timetable, more than a dozen times for each DAG in each parse, which
was half of the time of parsing; here each line is described once in a process.
"""

from __future__ import annotations

import functools
from typing import Any

from airflow.timetables.trigger import CronTriggerTimetable


class GddlCronTimetable(CronTriggerTimetable):
    """Like Airflow's `CronTriggerTimetable`, but displayed as written, with Airflow's description.

    Args:
        cron: five fields.
        timezone: name of the zone that they are in.
        written: what is shown, e.g. `@hourly`; empty: the cron line.
        more: arguments of `CronTriggerTimetable`.
    """

    def __init__(self, cron: str, *, timezone: Any, written: str = "", **more: Any) -> None:
        # With a field for seconds, which has no effect, Airflow omits the description.
        super().__init__(f"{cron} 0", timezone=timezone, **more)
        self._expression = cron
        self.written = written
        self.description = _described(cron)

    @property
    def summary(self) -> str:
        return self.written or self._expression

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GddlCronTimetable) and self.serialize() == other.serialize()

    def __hash__(self) -> int:
        return hash((self._expression, self.written))

    def serialize(self) -> dict[str, Any]:
        return {**super().serialize(), "written": self.written}

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> GddlCronTimetable:
        made: Any = super().deserialize(data)
        made.written = data["written"]
        timetable: GddlCronTimetable = made
        return timetable


@functools.lru_cache(maxsize=4096)
def _described(cron: str) -> str:
    return str(CronTriggerTimetable(cron, timezone="UTC").description)
