"""Poll intervals for a run: short at first, then growing, with jitter."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

_GROWTH, _SPREAD = 1.5, 0.2


def pauses(first: float, chance: Callable[[], float] = random.random) -> Iterator[float]:
    """Seconds between two polls, without end: from `first` to twelve times as many.

    Args:
        chance: returns random numbers from 0 to 1, so that many watchers do not poll at the same time.
    """
    pause = first
    while True:
        yield pause * (1 + _SPREAD * (2 * chance() - 1))
        pause = min(12 * first, pause * _GROWTH)
