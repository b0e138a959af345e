"""Simulates the slots of a pool over a day, and the waiting times of runs."""

from __future__ import annotations

import heapq
import itertools
import math
import operator
from collections.abc import Sequence
from typing import NamedTuple

DAY_SECONDS = 86_400.0


class SlotRequest(NamedTuple):
    """Runs that need a slot each; of runs with the same start, the smaller `rank` goes first.

    Attributes:
        start: second of the day.
        rank: minus the priority weight.
        dag_id: of one of them.
        seconds: how long each holds its slot.
        runs: number of identical runs.
    """

    start: float
    rank: int
    dag_id: str
    seconds: float
    runs: int = 1


def serve(asked: Sequence[SlotRequest], slots: int, patience: float = math.inf) -> ServedPool:
    """The pool at the end of one day, nothing left over from the day before.

    Args:
        asked: sorted.
        slots: from 1 up.
        patience: stop as soon as a run waited longer than so many seconds.
    """
    pool = ServedPool(slots)
    for start, together in itertools.groupby(asked, key=operator.itemgetter(0)):
        pool.go_on(start)
        if pool.longest_wait > patience:
            return pool
        for run in together:
            heapq.heappush(pool.queue, (run.rank, run.start, run.dag_id, run.seconds, run.runs))
        pool.fill(start)
    pool.go_on(math.inf)
    return pool


class ServedPool:
    """Slots that are held, and the runs that wait for one.

    Attributes:
        longest_wait: seconds from a run's start to its slot, at most.
        waits: the DAG id of that run; empty when none waited.
    """

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.ends: list[tuple[float, int]] = []
        self.queue: list[tuple[int, float, str, float, int]] = []
        self.longest_wait, self.waits = 0.0, ""

    def go_on(self, until: float) -> None:
        """Assign slots released before this time; slots released exactly then are also available to new runs."""
        while self.ends and self.ends[0][0] < until:
            self.fill(self.ends[0][0])

    def fill(self, now: float) -> None:
        """Assign free slots to waiting runs, the most urgent first."""
        while self.ends and self.ends[0][0] <= now:
            self.free += heapq.heappop(self.ends)[1]
        while self.queue and self.free:
            rank, start, dag_id, seconds, runs = heapq.heappop(self.queue)
            taken = min(runs, self.free)
            self.free -= taken
            heapq.heappush(self.ends, (now + seconds, taken))
            if runs > taken:
                heapq.heappush(self.queue, (rank, start, dag_id, seconds, runs - taken))
            if now - start > self.longest_wait:
                self.longest_wait, self.waits = now - start, dag_id


def busy_seconds(asked: Sequence[SlotRequest]) -> float:
    """All runs' seconds together."""
    return sum(run.seconds * run.runs for run in asked)


def demand_of(asked: Sequence[SlotRequest]) -> int:
    """Maximum number of concurrent runs if none waited. Ends go before starts of the same moment."""
    moments = sorted([(run.start, run.runs) for run in asked] + [(run.start + run.seconds, -run.runs) for run in asked])
    now = most = 0
    for _, step in moments:
        now += step
        most = max(most, now)
    return most


def slots_needed(asked: Sequence[SlotRequest], patience: float, few: int, enough: int) -> int:
    """Approximately the fewest slots with which no run waits longer than `patience` seconds, at most a tenth more.

    Args:
        few: known to be too few.
        enough: known to be enough.
    """
    few = max(few, math.ceil(busy_seconds(asked) / (DAY_SECONDS + patience)) - 1)
    while few + 1 < enough and enough > 1.1 * few:
        middle = (few + enough) // 2
        if serve(asked, middle, patience).longest_wait <= patience:
            enough = middle
        else:
            few = middle
    return enough
