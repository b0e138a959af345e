"""Maps tables and tiers to pipelines: DAGs, their ids and schedules. Pure."""

from airflow_gddl.topology.pipelines import Arrangement, Pipeline, Placed, Timing, arrange, pipelines
from airflow_gddl.topology.placement import Placement
from airflow_gddl.topology.pools import CONTINUOUS_POOL, pools

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
