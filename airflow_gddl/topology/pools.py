"""The Airflow pools that pipelines need."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_gddl.topology.pipelines import Pipeline

CONTINUOUS_POOL = "gddl_continuous"
"""Pool of continuous jobs, which would permanently hold the slots of their tiers; has slots for all of them."""
_CONTINUOUS_SLOTS = 128
_DESCRIPTION = "Loads of airflow-gddl; slots come from the tier."


def pool_of_instances(pool: str) -> str:
    """Pool of the instances that show a table each: showing takes no slot from loads. A cleared instance is a load;
    the pool has as many slots as that of the loads, so that these are bounded, too.
    """
    return f"{pool}_tables"


def pools(pipelines: Iterable[Pipeline]) -> dict[str, dict[str, Any]]:
    """Pools by name, in the form that `airflow pools import` reads.

    Deferred tasks count: a load whose job runs elsewhere holds its slot. Where tiers share a pool, the most slots win.
    The pool of continuous pipelines is always created, so that a row can become continuous at any time.
    """
    slots: dict[str, int] = {}
    for pipeline in pipelines:
        mapped = [pool_of_instances(pipeline.pool)] if pipeline.view == "mapped" else []
        for name in (pipeline.pool, *mapped):
            slots[name] = max(pipeline.slots, slots.get(name, 0))
    if slots:
        slots[CONTINUOUS_POOL] = _CONTINUOUS_SLOTS
    return {
        name: {"slots": count, "description": _DESCRIPTION, "include_deferred": True}
        for name, count in sorted(slots.items())
    }
