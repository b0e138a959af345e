"""The tasks that load: new tables, increments, one table of a mapped pipeline, and continuous pipelines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from airflow_gddl.operators.jobs import JobOperator


class LoadOperator(JobOperator):
    """Loads its part of the sensor's work in one job, and fails at the end if a table failed.

    A retry loads only the remaining tables; a cleared task that had succeeded loads all of its tables again. The ledger
    ensures that no file is loaded twice. At the end, tables that `depends_on` held back are loaded, if they can be: by
    the load of increments, or by the other where there are none.

    Args:
        sensor: task id of the pipeline's `GddlTablesSensor`.
        by_table: a mapped task shows each table: the last try succeeds though tables failed, and the result is a
            `TableOutcome` in plain data for each table, instead of counts.
    """

    stage: ClassVar[Literal["initial", "increments"]]
    execution = "airflow_gddl.operators.execution"

    def __init__(self, *, sensor: str = "landed", by_table: bool = False, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.sensor = sensor
        self.by_table = by_table


class GddlInitialLoadOperator(LoadOperator):
    """Loads tables that have no replica yet, and does full refreshes; skips itself when there are none."""

    stage = "initial"
    ui_color = "#c7e0f4"


class GddlIncrementalLoadOperator(LoadOperator):
    """Brings tables that have a replica up to date."""

    stage = "increments"
    ui_color = "#e3eefa"


class GddlContinuousOperator(JobOperator):
    """Runs a continuous job until its time limit; the next run of its DAG starts a new job immediately.

    Rows that are added, changed or removed reach the job while it runs. When the task is stopped, the job finishes its
    current batch. A run with params (the form's fields) runs only that request, in an ordinary job.
    """

    execution = "airflow_gddl.operators.continuous_execution"
    ui_color = "#d6ecec"


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
