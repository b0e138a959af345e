"""Lines in the log of a task while its job runs, so that a long one is not silent until its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_gddl.runtime.runners.base import ProgressEvent

EVERY_SECONDS = 30.0
_SHOWN = 5


class Heartbeat:
    """Remembers where the tables of a job are; `line` is due when nothing was logged for `EVERY_SECONDS`.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._logged = clock()
        self._steps: dict[str, ProgressEvent] = {}
        self._done: set[str] = set()

    def moved(self, event: ProgressEvent) -> None:
        """A table of the job is at this step; the newest come last."""
        self._steps.pop(event.table, None)
        self._steps[event.table] = event

    def ended(self, table: str) -> None:
        """A table has its result, which was logged."""
        self._steps.pop(table, None)
        self._done.add(table)
        self._logged = self._clock()

    def line(self) -> str | None:
        """What to log now; null: nothing yet."""
        now = self._clock()
        if now - self._logged < EVERY_SECONDS:
            return None
        self._logged = now
        at_work = list(self._steps.values())[-_SHOWN:]
        more = len(self._steps) - len(at_work)
        steps = [*map(_step, at_work), *([f"and {more} more"] if more else [])]
        return "; ".join([f"the job runs since {now - self._began:.0f} s, {len(self._done)} tables done", *steps])


def _step(event: ProgressEvent) -> str:
    of = f" of {event.batches}" if event.batches is not None else ""
    batch = f", batch {event.batch}{of}" if event.batch else ""
    return f"{event.table}: {event.step}{batch}, {event.rows} rows read"
