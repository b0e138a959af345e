"""Maintenance and verification of all tables, a task for each tier."""

from airflow_gddl.upkeep_dags import build_upkeep_dags

globals().update(build_upkeep_dags(beside=__file__))
