"""The Spark application of a session: its id, and where its pages are."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
