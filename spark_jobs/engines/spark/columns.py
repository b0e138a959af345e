"""Columns of Spark frames by their very names."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F


def quoted(column: str) -> str:
    return f"`{column.replace('`', '``')}`"


def name(column: str) -> Column:
    """A column by its very name, dots and spaces included."""
    return F.col(quoted(column))


def at(side: str, column: str) -> Column:
    """A column of one side of a join or merge."""
    return F.col(f"{side}.{quoted(column)}")
