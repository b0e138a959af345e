"""The Spark application of a session: its id, where its pages are, and the jobs that it runs."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_gddl.contract.result import SPARK

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def application_of(session: SparkSession) -> str:
    """Its id; empty where the session can't be asked, as one of Spark Connect."""
    return _of_context(session, "applicationId")


def place_of(session: SparkSession) -> str:
    """`JobResult.place` of tables that are worked on in it."""
    return " ".join(filter(None, (SPARK, application_of(session), _of_context(session, "uiWebUrl"))))


def _of_context(session: SparkSession, name: str) -> str:
    with suppress(Exception):  # Connect raises various errors for missing methods
        return getattr(session.sparkContext, name) or ""
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
