"""Kept for DAG files written for 0.1: the operator is in `airflow_gddl.operators.maintenance`."""

from airflow_gddl.operators.maintenance import GddlUpkeepOperator

__all__ = ["GddlUpkeepOperator"]
