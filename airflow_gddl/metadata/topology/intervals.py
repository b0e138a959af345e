"""Longest interval between two runs of a pipeline."""

from __future__ import annotations

from datetime import date

from airflow_gddl.metadata.topology.schedules import Timing

_FROM = date(2024, 1, 1)
"""A fixed day, so that the interval depends only on the schedule."""


def longest_interval(timing: Timing) -> int:
    """Maximum seconds between two runs; 0 for pipelines without a time schedule."""
    if timing.kind != "cron":
        return 0
    # Needed only for compiling and alerting; parsing a DAG file must not import the cron parser.
    from airflow_gddl.metadata.topology.starts import gaps  # noqa: PLC0415 - as said above

    return 60 * gaps(timing.cron, _FROM)[1]
