"""The Spark application of a session: its id, where its pages are, and the jobs that it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.result import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def application_of(session: SparkSession) -> str:
    """Its id; empty where the session can't be asked, as one of Spark Connect."""
    try:
        return session.sparkContext.applicationId
    except Exception:  # noqa: BLE001 - Connect raises various errors for missing methods
        return ""


def place_of(session: SparkSession) -> str:
    """`JobResult.place` of tables that are worked on in it."""
    parts = [SPARK, application_of(session), _pages_of(session)]
    return " ".join(part for part in parts if part)


def _pages_of(session: SparkSession) -> str:
    try:
        return session.sparkContext.uiWebUrl or ""
    except Exception:  # noqa: BLE001 - as above
        return ""


_ENDING_BY_ITSELF = "gddl: ends by itself"


def let_end_by_itself(session: SparkSession) -> None:
    """Exempt Spark jobs that this thread starts from `cancel_jobs`: their tasks see that the job was asked to end."""
    session.sparkContext.setJobGroup(_ENDING_BY_ITSELF, "tables in one task each")


def cancel_jobs(session: SparkSession) -> None:
    """Cancel all Spark jobs but those of `let_end_by_itself`."""
    context: Any = session.sparkContext
    tracker = context.statusTracker()
    kept = set(tracker.getJobIdsForGroup(_ENDING_BY_ITSELF))
    for number in tracker.getActiveJobsIds():
        if number not in kept:
            context._jsc.sc().cancelJob(number)  # noqa: SLF001 - PySpark cancels all, or those of a group
