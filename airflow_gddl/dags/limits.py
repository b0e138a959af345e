"""Timeouts of tasks and runs, so that nothing in Airflow waits, or holds a pool slot, forever."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from airflow_gddl.metadata.topology import Pipeline

POLL = timedelta(hours=1)
"""Timeout of polling landing folders or the state of all tables, without a sensor's wait for dependencies."""
_QUEUED = timedelta(hours=1)
"""Time that a run may wait for slots, in addition to its two loads."""


@dataclass(frozen=True)
class TimeLimits:
    """Null: no timeout, for a job without a time limit (`continuous_hours` = 0)."""

    task: timedelta | None
    run: timedelta | None


def of_task(longest: timedelta) -> TimeLimits:
    """Of DAGs whose tasks may each take so long."""
    return TimeLimits(task=longest, run=2 * longest + _QUEUED)


def of_pipeline(pipeline: Pipeline, continuous_hours: float) -> TimeLimits:
    """As its tier's `run_timeout` says; a continuous job has its hours, and that time for its last batch."""
    longest = timedelta(seconds=pipeline.run_timeout)
    if pipeline.timing.kind != "continuous":
        return of_task(longest)
    if continuous_hours <= 0:
        return TimeLimits(task=None, run=None)
    return of_task(timedelta(hours=continuous_hours) + longest)
