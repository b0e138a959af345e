"""How long deletes are remembered."""

from __future__ import annotations

from datetime import datetime, timedelta

from airflow_gddl.contract.durations import seconds
from airflow_gddl.contract.spec import TableSpec


def tombstones_since(spec: TableSpec, now: datetime) -> datetime:
    """Tombstones of deletes that were applied before this time are removed, by a batch once a day or maintenance."""
    return now - timedelta(seconds=seconds(spec.tombstone_retention))
