"""Estimates the load of the metadata before deployment: starts, slots, triggers and quotas; pure."""

from airflow_gddl.planning.day import Metadata
from airflow_gddl.planning.figures import AIRFLOW, MWAA, PlatformLimits
from airflow_gddl.planning.plan import Plan, make_plan

__all__ = ["AIRFLOW", "MWAA", "Metadata", "Plan", "PlatformLimits", "make_plan"]
