"""Cron timetables that Airflow displays as written in the metadata.

A preset of the metadata runs at a minute of the DAG's own, so that Airflow's `@hourly`, minute 0, can't be used.
Airflow reads, checks and describes a cron line whenever it makes a timetable, and makes one from a stored DAG a dozen
times in each parse. Here each line has one timetable in a process: a timetable never changes.
"""

from __future__ import annotations

import functools
import json
from typing import Any

from airflow.timetables.trigger import CronTriggerTimetable

_MOST = 4096


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

    def validate(self) -> None:
        """See `Timetable`; a line is checked once."""
        _validate(self._expression)

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> GddlCronTimetable:
        return _deserialized(cls, json.dumps(data))


@functools.lru_cache(maxsize=_MOST)
def cron_timetable(cron: str, **arguments: Any) -> GddlCronTimetable:
    """The one timetable of a process for these arguments of `GddlCronTimetable`."""
    return GddlCronTimetable(cron, **arguments)


@functools.lru_cache(maxsize=_MOST)
def _deserialized(cls: type[GddlCronTimetable], text: str) -> GddlCronTimetable:
    data = json.loads(text)
    made: Any = super(GddlCronTimetable, cls).deserialize(data)
    made.written = data["written"]
    timetable: GddlCronTimetable = made
    return timetable


@functools.lru_cache(maxsize=_MOST)
def _validate(cron: str) -> None:
    CronTriggerTimetable(cron, timezone="UTC").validate()


@functools.lru_cache(maxsize=_MOST)
def _described(cron: str) -> str:
    text = str(CronTriggerTimetable(cron, timezone="UTC").description)
    return text if len(text) <= _LONGEST_DESCRIPTION else f"{text[: _LONGEST_DESCRIPTION - 1]}…"


_LONGEST_DESCRIPTION = 1000
"""Of a timetable in Airflow's database; a longer one ends the DAG processor on PostgreSQL."""
