"""Kept for DAG files written for 0.1: `build_upkeep_dags` is in `airflow_gddl.dags.maintenance`."""

from airflow_gddl.dags.maintenance import build_upkeep_dags

__all__ = ["build_upkeep_dags"]
