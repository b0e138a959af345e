"""Timeouts of tasks and runs, so that nothing in Airflow waits, or holds a pool slot, forever."""

from __future__ import annotations

from datetime import timedelta

from airflow_gddl.topology import Pipeline

POLL = timedelta(hours=1)
"""Timeout of polling landing folders or the state of all tables, without a sensor's wait for dependencies."""
_QUEUED = timedelta(hours=1)
"""Time that a run may wait for slots, in addition to a load and one of a cleared instance."""


def of_task(pipeline: Pipeline, continuous_hours: float) -> timedelta | None:
    """As its tier's `run_timeout` says; a continuous job has its hours, and that time for its last batch.

    Null: no timeout, for a job without a time limit (`continuous_hours` = 0).
    """
    longest = timedelta(seconds=pipeline.run_timeout)
    if pipeline.timing.kind != "continuous":
        return longest
    return timedelta(hours=continuous_hours) + longest if continuous_hours > 0 else None


def of_run(longest: timedelta | None) -> timedelta | None:
    """Of a DAG whose tasks may each take so long; null for null."""
    return None if longest is None else 2 * longest + _QUEUED
