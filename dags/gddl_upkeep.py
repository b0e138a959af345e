"""Maintenance and verification of all tables, a task for each tier."""

from airflow_gddl.dags.maintenance import build_upkeep_dags

globals().update(build_upkeep_dags(beside=__file__))
