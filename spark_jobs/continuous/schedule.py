"""Which table is run when: pure, moments are seconds of the caller's clock.

A table is run when it has news, when its last turn left something over, when it failed and its pause is over, and once
a minute whatever the files say: a notice that was lost costs a minute, and whoever asks is told that all is taken. News
that come while it is run count for the next turn, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.table.outcome import is_busy

BATCHES_A_TURN = 2
"""One more than a turn takes in the ordinary case: a turn that took as many may have left something over."""
ANYWAY_SECONDS = 60.0
LONGEST_PAUSE = 600.0
_FIRST_PAUSE = 5.0


@dataclass
class ScheduleEntry:
    """A table on the agenda.

    Attributes:
        anyway: when it is run whatever the files say.
        not_before: when it may be run at the earliest.
        failures: since it last went well.
        news: there is, or may be, something to do.
        at_work: as what it is being run; null: it is not.
        is_kept: whether the job keeps it; a table that went stays here until its turn is over, should it come back.
    """

    spec: TableSpec
    anyway: float
    not_before: float = 0.0
    failures: int = 0
    news: bool = True
    at_work: TableSpec | None = None
    is_kept: bool = True

    @property
    def due(self) -> float:
        return self.not_before if self.news else max(self.not_before, self.anyway)


@dataclass
class Schedule:
    """The tables that the job keeps."""

    entries: dict[str, ScheduleEntry] = field(default_factory=dict)

    def keep(self, specs: Iterable[TableSpec], now: float) -> None:
        """From now on these tables: new ones and those whose row changed are due at once, others are left alone."""
        wanted = {spec.table: spec for spec in specs}
        for name in self.entries.keys() - wanted.keys():
            self.entries[name].is_kept = False
        self._forget()
        for name, spec in wanted.items():
            known = self.entries.get(name)
            if known is None:
                self.entries[name] = ScheduleEntry(spec, now)
            elif known.spec != spec or not known.is_kept:
                known.spec, known.news, known.failures, known.not_before = spec, True, 0, now
                known.is_kept = True

    def keeps(self, table: str) -> bool:
        known = self.entries.get(table)
        return known is not None and known.is_kept

    def news(self, tables: Iterable[str]) -> None:
        for name in tables:
            if name in self.entries:
                self.entries[name].news = True

    def begin(self, now: float) -> list[TableSpec]:
        """Tables to be run now, those that waited longest first; they are at work until `done`."""
        due = sorted((e for e in self.entries.values() if e.at_work is None and e.due <= now), key=lambda e: e.due)
        for entry in due:
            entry.at_work, entry.news = entry.spec, False
        return [entry.spec for entry in due]

    def undo(self, tables: Iterable[str]) -> None:
        """Their turns were not begun after all: they are due as they were."""
        for name in tables:
            self.entries[name].at_work, self.entries[name].news = None, True
        self._forget()

    def done(self, result: JobResult, now: float) -> None:
        """A table's turn is over."""
        entry = self.entries.get(result.table)
        if entry is None:
            return
        was_changed = entry.at_work is not entry.spec
        entry.at_work, entry.anyway = None, now + anyway_seconds(entry.spec)
        self._forget()
        if result.status != "failed":
            entry.failures = 0
            entry.news = entry.news or result.batches >= BATCHES_A_TURN
            return
        entry.news = True
        if was_changed:  # the row that failed is not the one that is next
            return
        if is_busy(result):
            entry.not_before = now + entry.spec.look_seconds
            return
        entry.failures += 1
        entry.not_before = now + pause_seconds(entry.failures)

    def next_due(self) -> float:
        """When the next table that is not at work is due; infinite when there is none."""
        return min((e.due for e in self.entries.values() if e.at_work is None), default=float("inf"))

    def _forget(self) -> None:
        self.entries = {name: e for name, e in self.entries.items() if e.is_kept or e.at_work is not None}


def anyway_seconds(spec: TableSpec) -> float:
    """A table with `freshness` is looked at often enough that it does not seem late for want of a look."""
    wanted = min(ANYWAY_SECONDS, seconds(spec.freshness) / 4) if spec.freshness else ANYWAY_SECONDS
    return max(wanted, spec.look_seconds)


def pause_seconds(failures: int) -> float:
    """How long a table rests that failed so many times in a row."""
    return float(min(LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 10)))
