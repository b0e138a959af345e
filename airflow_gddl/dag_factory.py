"""Kept for DAG files written for 0.1: `build_dags` is in `airflow_gddl.dags.factory`."""

from airflow_gddl.dags.factory import build_dags

__all__ = ["build_dags"]
