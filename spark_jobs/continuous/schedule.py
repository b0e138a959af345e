"""Schedule of table runs; pure: times are seconds of the caller's clock.

A table runs when it has new files, when its last turn left some over, when its back-off after a failure ends, and once
a minute in any case: a lost notification costs at most a minute, and idle tables still report their state. Files
that are reported during a run count for the next turn, so that none is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.batch.totals import is_busy

BATCHES_A_TURN = 2
"""One more than the usual turn has: a turn with this many may have left files over."""
ANYWAY_SECONDS = 60.0
LONGEST_PAUSE = 600.0
_FIRST_PAUSE = 5.0


@dataclass
class ScheduleEntry:
    """A scheduled table.

    Attributes:
        anyway: time of the next run without new files.
        not_before: earliest time of the next run.
        failures: since its last success.
        news: it has, or may have, new files.
        at_work: the spec of its current run; None: none.
        is_kept: whether the job has it; a removed table stays until its turn is over, in case it returns.
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
    """The tables of the job."""

    entries: dict[str, ScheduleEntry] = field(default_factory=dict)

    def keep(self, specs: Iterable[TableSpec], now: float) -> None:
        """Replace the job's tables: new ones and those whose row changed are due at once, others are unchanged."""
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
        """Tables to run now, longest wait first; they are running until `done`."""
        due = sorted((e for e in self.entries.values() if e.at_work is None and e.due <= now), key=lambda e: e.due)
        for entry in due:
            entry.at_work, entry.news = entry.spec, False
        return [entry.spec for entry in due]

    def undo(self, tables: Iterable[str]) -> None:
        """Their turns did not start: they are due again."""
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
        if was_changed:  # the failed run had another row
            return
        if is_busy(result):
            entry.not_before = now + entry.spec.look_seconds
            return
        entry.failures += 1
        entry.not_before = now + pause_seconds(entry.failures)

    def next_due(self) -> float:
        """Time at which the next idle table is due; infinite when there is none."""
        return min((e.due for e in self.entries.values() if e.at_work is None), default=float("inf"))

    def _forget(self) -> None:
        self.entries = {name: e for name, e in self.entries.items() if e.is_kept or e.at_work is not None}


def anyway_seconds(spec: TableSpec) -> float:
    """A table with `freshness` is polled often enough that it is not reported late without cause."""
    wanted = min(ANYWAY_SECONDS, seconds(spec.freshness) / 4) if spec.freshness else ANYWAY_SECONDS
    return max(wanted, spec.look_seconds)


def pause_seconds(failures: int) -> float:
    """Seconds of back-off after so many consecutive failures."""
    return float(min(LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(failures - 1, 10)))
