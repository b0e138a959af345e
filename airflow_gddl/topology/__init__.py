"""Maps tables and tiers to pipelines: DAGs, their ids and schedules. Pure."""

from airflow_gddl.topology.pipelines import (
    CONTINUOUS_POOL,
    Arrangement,
    Pipeline,
    Placed,
    Timing,
    arrange,
    pipelines,
    pools,
)
from airflow_gddl.topology.placement import Placement

__all__ = [
    "CONTINUOUS_POOL",
    "Arrangement",
    "Pipeline",
    "Placed",
    "Placement",
    "Timing",
    "arrange",
    "pipelines",
    "pools",
]
