"""Simulated time: commit times, the change sequence, names that never repeat."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_MILLISECOND = timedelta(milliseconds=1)
COMMITTING = 0.9
"""Share of a round in which transactions commit; the rest is for files written after them."""


def in_milliseconds(moment: datetime) -> datetime:
    return moment.replace(microsecond=moment.microsecond // 1000 * 1000)


def recent_start(now: datetime, seconds: int, rounds: int) -> datetime:
    """The start of a simulation whose last commit is just before `now`, so that a table's lag is that of its run."""
    return in_milliseconds(now - timedelta(seconds=seconds) * (rounds + COMMITTING))


@dataclass
class Sequencer:
    """One counter for the whole task, as `AR_H_CHANGE_SEQ` has."""

    counter: int = 0

    def next(self, moment: datetime) -> str:
        """35 digits: the time to the hundredth of a second, then the counter; sorts as text."""
        self.counter += 1
        return f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 10_000:02d}{self.counter:019d}"


@dataclass(frozen=True)
class RoundTime:
    """When round `number` takes place; 0 is the full load."""

    start: datetime
    seconds: int
    number: int

    @property
    def begin(self) -> datetime:
        return self.start + timedelta(seconds=self.seconds * self.number)

    def commit(self, index: int, count: int) -> datetime:
        """Commit time of transaction `index` of `count`: evenly over the first part, `COMMITTING`, of the round."""
        return self.begin + timedelta(seconds=self.seconds) * COMMITTING * (index + 1) / (count + 1)


@dataclass
class SimulatedClock:
    """Times in the names of one table's change files: milliseconds, each later than the one before."""

    last: datetime | None = None

    def after(self, moment: datetime) -> datetime:
        wanted = in_milliseconds(moment) + _MILLISECOND
        self.last = wanted if self.last is None else max(wanted, self.last + _MILLISECOND)
        return self.last
