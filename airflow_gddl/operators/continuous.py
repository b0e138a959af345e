"""The task of a continuous pipeline: keeps one job alive that takes what lands, as it lands."""

from __future__ import annotations

from airflow_gddl.operators.jobs import JobOperator


class GddlContinuousOperator(JobOperator):
    """Runs a continuous job, until its hours are over; the next run of its DAG starts another one at once.

    Rows that are added, changed or removed reach the job while it runs. Stopping the task has the job finish the batch
    that it is at. A run that asks for something (the form's fields) does that alone, in an ordinary job.
    """

    execution = "airflow_gddl.operators.continuous_execution"
    ui_color = "#d6ecec"
