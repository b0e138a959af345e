"""What a task raises that defers, from where this Airflow has it."""

from __future__ import annotations

try:
    from airflow.sdk.exceptions import TaskDeferred
except ImportError:  # Airflow 3.0
    from airflow.exceptions import TaskDeferred

__all__ = ["TaskDeferred"]
