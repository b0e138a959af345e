"""How often to look at a run: soon at first, then less and less, and never all at once."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class PollInterval:
    """Seconds between looks.

    Attributes:
        first: of the first pause.
        longest: of every later one, at most.
        growth: a pause by the one before it.
        spread: share of a pause by which it may be longer or shorter, so that many watchers don't ask in step.
        chance: gives numbers from 0 to 1.
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
