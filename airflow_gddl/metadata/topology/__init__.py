"""Tables and tiers to pipelines: what becomes a DAG, what it is called and when it runs. Pure."""

from airflow_gddl.metadata.topology.pipelines import Pipeline, pipelines
from airflow_gddl.metadata.topology.pools import CONTINUOUS_POOL, pools
from airflow_gddl.metadata.topology.schedules import Timing

__all__ = ["CONTINUOUS_POOL", "Pipeline", "Timing", "pipelines", "pools"]
