"""Runs of Airflow's backfills, which Airflow 3.2 and newer refuses for these DAGs; before, their tasks are skipped."""

from __future__ import annotations

from typing import Any

from airflow_gddl.runtime.landing.run_request import is_of_backfill
from airflow_gddl.version_compat import AirflowSkipException


def skip_in_backfill(context: Any) -> None:
    """
    Raises:
        AirflowSkipException: the task's run is one of a backfill.
    """
    if is_of_backfill(context["run_id"]):
        what = "a backfill does nothing here, because each run looks at the tables as they are now, whatever its date"
        raise AirflowSkipException(f"{what}. Trigger the DAG to run it once.")
