"""Indexed columns of a table: before and after each commit every file has statistics of the columns in its property."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from spark_jobs.engines import skipping
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.skipping import ColumnPath, indexed_columns
from spark_jobs.engines.table_definition import CURRENT, STATISTICS, TableDefinition
from spark_jobs.plan.columns import Column


def indexed_with(
    tables: Tables, path: str, columns: Sequence[Column], properties: Mapping[str, str]
) -> tuple[ColumnPath, ...]:
    """Which of these columns are indexed by the table's current properties, and with `properties` in addition."""
    stored = tables.properties(path)
    both = (*indexed_columns(columns, stored), *indexed_columns(columns, {**stored, **properties}))
    return tuple(dict.fromkeys(both))


def keep_readable(tables: Tables, path: str) -> bool:
    """See `spark.indexing`: Spark may have written the statistics, and may again."""
    left = skipping.left_readable(tables.properties(path).get(skipping.COLUMNS), tables.existing(path).schema.columns)
    if left is None:
        return False
    tables.set_properties(path, {skipping.COLUMNS: left})
    return True


def complete(tables: Tables, definition: TableDefinition) -> int:
    """Write missing statistics of a table of an earlier release; returns the number of files."""
    if tables.properties(definition.path).get(STATISTICS) == CURRENT[STATISTICS]:
        return 0
    columns = tables.existing(definition.path).schema.columns
    files = tables.restate(definition.path, indexed_with(tables, definition.path, columns, definition.skipping))
    tables.set_properties(definition.path, {**definition.skipping, STATISTICS: CURRENT[STATISTICS]})
    return files
