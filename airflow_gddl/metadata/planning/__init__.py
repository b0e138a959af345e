"""What metadata will cost, before it is deployed: starts, slots, triggers and quotas; pure."""

from airflow_gddl.metadata.planning.day import Metadata
from airflow_gddl.metadata.planning.limits import AIRFLOW, MWAA, PlatformLimits
from airflow_gddl.metadata.planning.plan import Plan, make_plan

__all__ = ["AIRFLOW", "MWAA", "Metadata", "Plan", "PlatformLimits", "make_plan"]
