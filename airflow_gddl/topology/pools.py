"""The Airflow pools that pipelines need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_gddl.topology.pipelines import Pipeline

_DESCRIPTION = "Loads of airflow-gddl; slots come from the tier."


def pools(pipelines: Iterable[Pipeline]) -> dict[str, dict[str, Any]]:
    """Pools by name, in the form that `airflow pools import` reads.

    Deferred tasks count: a load whose job runs elsewhere holds its slot. Where tiers share a pool, the most slots win.
    """
    slots: dict[str, int] = {}
    for pipeline in pipelines:
        slots[pipeline.pool] = max(pipeline.slots, slots.get(pipeline.pool, 0))
    return {
        name: {"slots": count, "description": _DESCRIPTION, "include_deferred": True}
        for name, count in sorted(slots.items())
    }
