"""Removes rows from the change table."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from spark_jobs.engines.spark.tables import Tables
from spark_jobs.plan.table_schema import GDDL


def remove_changes(tables: Tables, path: str, changes: DataFrame, *, dry_run: bool = False) -> int:
    """Remove changes from the change table; returns their number.

    Args:
        changes: see `changes_in`.
    """
    found = tables.keep(changes)
    count = found.count()
    if count and not dry_run:
        t, s = f"{GDDL}__t", f"{GDDL}__s"
        same = f"{t}.{GDDL}.batch_id = {s}.b AND {t}.{GDDL}.position = {s}.p"
        tables.handle(path).alias(t).merge(found.alias(s), same).whenMatchedDelete().execute()
    return count


def changes_in(rows: DataFrame) -> DataFrame:
    """Rows of the change table by batch and position: columns `b` and `p`."""
    return rows.select(F.col(GDDL)["batch_id"].alias("b"), F.col(GDDL)["position"].alias("p")).distinct()
