"""Columns of Spark frames by exact name."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F

from airflow_gddl.contract.sql_types import quoted

_ISO = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"


def name(column: str) -> Column:
    """A column by its exact name, which may have dots and spaces."""
    return F.col(quoted(column))


def at(side: str, column: str) -> Column:
    """A column of one side of a join or merge."""
    return F.col(f"{side}.{quoted(column)}")
