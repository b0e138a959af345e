"""Load of a day on the Airflow pools."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from airflow_gddl.planning.slots import DAY_SECONDS, SlotRequest, busy_seconds, demand_of, serve, slots_needed

PATIENCE = 600.0
"""Seconds that a run may wait for its slot before more slots are advised."""


@dataclass(frozen=True, kw_only=True)
class PoolUse:
    """A pool on the planned day.

    Attributes:
        demand: slots that would be held at once if there were any number.
        busy: share of its slots' day that is taken; above 1, the pool can't keep up.
        longest_wait: seconds from a run's start to its slot, at most; `waits` is that run's DAG.
        needed: slots with which no run waits longer than `PATIENCE`; `slots` where these are enough.
    """

    pool: str
    slots: int
    demand: int
    busy: float
    longest_wait: float
    waits: str
    needed: int

    @property
    def at_once(self) -> int:
        """Loads that run at the same time, at most."""
        return min(self.demand, self.slots)


def pool_use(pool: str, slots: int, asked: Sequence[SlotRequest]) -> PoolUse:
    """
    Args:
        asked: sorted.
    """
    served, demand = serve(asked, slots), demand_of(asked)
    short = served.longest_wait > PATIENCE
    return PoolUse(
        pool=pool,
        slots=slots,
        demand=demand,
        busy=round(busy_seconds(asked) / (slots * DAY_SECONDS), 4),
        longest_wait=round(served.longest_wait, 1),
        waits=served.waits,
        needed=slots_needed(asked, PATIENCE, slots, demand) if short else slots,
    )
