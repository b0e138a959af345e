"""Maps tables and tiers to pipelines: DAGs, their ids and schedules. Pure."""

from airflow_gddl.metadata.topology.pipelines import Arrangement, Pipeline, Placed, arrange, pipelines
from airflow_gddl.metadata.topology.placement import Placement
from airflow_gddl.metadata.topology.pools import CONTINUOUS_POOL, pools
from airflow_gddl.metadata.topology.schedules import Timing

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
