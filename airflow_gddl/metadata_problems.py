"""Kept for DAG files written for 0.1: `tell` is `airflow_gddl.dags.problems.raise_problems`."""

from airflow_gddl.dags.problems import raise_problems as tell

__all__ = ["tell"]
