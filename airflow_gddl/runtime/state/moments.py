"""Moments as seconds since the epoch: short in JSON, and fast to compare."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow_gddl.contract.durations import moment_of


def seconds_of(text: str | None) -> float | None:
    """An ISO 8601 moment, UTC when it names no zone; null when there is none, or none that can be read."""
    try:
        return moment_of(text or "").timestamp()
    except ValueError:
        return None


def text_of(moment: float | None) -> str | None:
    """ISO 8601, UTC, whole seconds; null for null."""
    return None if moment is None else datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds")


def latest(*moments: float | None) -> float | None:
    """The greatest value that is not null; null when all are."""
    return max((moment for moment in moments if moment is not None), default=None)
