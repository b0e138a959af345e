"""Lines in a log while a job runs, so that a long one is not silent until its end."""

from __future__ import annotations

import time
from collections.abc import Callable

from airflow_gddl.runtime.runners.base import ProgressEvent

EVERY_SECONDS = 30.0
_SHOWN = 5


class Heartbeat:
    """Tracks the progress of a job's tables; `line` is due when nothing was logged for `EVERY_SECONDS`.

    Args:
        clock: seconds, monotonic.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = self._logged = clock()
        self._steps: dict[str, ProgressEvent] = {}
        self._done: set[str] = set()

    def moved(self, event: ProgressEvent) -> None:
        """Record the current step of a table; the newest come last."""
        self._steps.pop(event.table, None)
        self._steps[event.table] = event

    def ended(self, table: str) -> None:
        """Record a finished table, whose result was logged."""
        self._steps.pop(table, None)
        self._done.add(table)
        self._logged = self._clock()

    def line(self) -> str | None:
        """The line to log now; null: none is due."""
        now = self._clock()
        if now - self._logged < EVERY_SECONDS:
            return None
        self._logged = now
        at_work = list(self._steps.values())[-_SHOWN:]
        more = len(self._steps) - len(at_work)
        steps = [*map(_step, at_work), *([f"and {more} more"] if more else [])]
        return "; ".join([f"running for {now - self._began:.0f} s, tables done: {len(self._done)}", *steps])


def _step(event: ProgressEvent) -> str:
    of = f" of {event.batches}" if event.batches is not None else ""
    batch = f", batch {event.batch}{of}" if event.batch else ""
    rows = f", {event.rows} rows read" if event.rows else ""
    return f"{event.table}: {event.step}{batch}{rows}"
