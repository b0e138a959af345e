"""Poll intervals for a run: short at first, then growing, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PollInterval:
    """Seconds between polls.

    Attributes:
        first: length of the first interval.
        longest: maximum interval.
        growth: factor from one interval to the next.
        spread: jitter, as a share of the interval, so that many watchers do not poll at the same time.
        chance: returns random numbers from 0 to 1.
    """

    first: float = 5.0
    longest: float = 60.0
    growth: float = 1.5
    spread: float = 0.2
    chance: Callable[[], float] = random.random

    @classmethod
    def of_runs(cls, first: float) -> PollInterval:
        """For a run that may take minutes or hours."""
        return cls(first=first, longest=12 * first)

    def pauses(self) -> Iterator[float]:
        """Without end."""
        pause = self.first
        while True:
            yield pause * (1 + self.spread * (2 * self.chance() - 1))
            pause = min(self.longest, pause * self.growth)
