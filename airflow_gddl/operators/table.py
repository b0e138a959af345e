"""The mapped task that shows one table of a pack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_gddl.operators.jobs import JobOperator


class GddlTableOperator(JobOperator):
    """Shows the outcome of one table in the pack's shared job: succeeds or fails with that table.

    When cleared or retried, it loads its table in a separate job.

    Args:
        outcome: a `TableOutcome` in plain data.
        sensor: task id of the pipeline's `GddlTablesSensor`.
    """

    execution = "airflow_gddl.operators.table_execution"
    ui_color = "#e3eefa"

    def __init__(self, *, outcome: Mapping[str, Any], sensor: str = "landed", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.outcome = outcome
        self.sensor = sensor

    @property
    def job_key(self) -> str:
        """Instances of the task load different tables."""
        return f"{self.task_id} {self.outcome['table']}"
