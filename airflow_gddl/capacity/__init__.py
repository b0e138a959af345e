"""Counts the load of the metadata before deployment: starts, slots, triggers and quotas; pure."""

from airflow_gddl.capacity.day import Metadata
from airflow_gddl.capacity.plan import Plan, make_plan
from airflow_gddl.capacity.rules import AIRFLOW, MWAA, PlatformLimits

__all__ = ["AIRFLOW", "MWAA", "Metadata", "Plan", "PlatformLimits", "make_plan"]
