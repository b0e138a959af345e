"""Kept for DAG files written for 0.1: `tell` is in `airflow_gddl.dags.problems`."""

from airflow_gddl.dags.problems import tell

__all__ = ["tell"]
