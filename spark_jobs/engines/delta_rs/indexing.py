"""Indexed columns of a table: before and after each commit every file has statistics of the columns in its property."""

from __future__ import annotations

from spark_jobs.engines import skipping
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.table_definition import CURRENT, STATISTICS, TableDefinition


def keep_readable(tables: Tables, path: str) -> bool:
    """Drop columns from the indexed ones whose bounds some reader can't read; returns whether there were any.

    Spark may have written such bounds, and may again. Readers ignore what the log has of columns that the property
    doesn't name, so no file's statistics change.
    """
    left = skipping.left_readable(tables.properties(path).get(skipping.COLUMNS), tables.existing(path).schema.columns)
    if left is None:
        return False
    tables.set_properties(path, {skipping.COLUMNS: left})
    return True


def complete(tables: Tables, definition: TableDefinition) -> int:
    """Write missing statistics of a table of an earlier release; returns the number of files."""
    if tables.properties(definition.path).get(STATISTICS) == CURRENT[STATISTICS]:
        return 0
    return tables.reindex(definition.path, {**definition.skipping, STATISTICS: CURRENT[STATISTICS]})
