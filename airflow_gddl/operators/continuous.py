"""The task of a continuous pipeline: keeps one job running that loads files as they land."""

from __future__ import annotations

from airflow_gddl.operators.jobs import JobOperator


class GddlContinuousOperator(JobOperator):
    """Runs a continuous job until its time limit; the next run of its DAG starts a new job immediately.

    Rows that are added, changed or removed reach the job while it runs. When the task is stopped, the job finishes its
    current batch. A run with params (the form's fields) runs only that request, in an ordinary job.
    """

    execution = "airflow_gddl.operators.continuous_execution"
    ui_color = "#d6ecec"
