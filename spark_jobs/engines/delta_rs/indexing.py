"""Indexed columns of a table: before and after each commit every file has statistics of the columns in its property."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.skipping import ColumnPath, indexed_columns
from spark_jobs.engines.table_definition import CURRENT, STATISTICS, TableDefinition
from spark_jobs.rules.arrow_schema import DeltaSchema


def indexed_after(tables: Tables, definition: TableDefinition, schema: DeltaSchema) -> tuple[ColumnPath, ...]:
    """Columns to index when all rows are rewritten: those of the current property, and of the next one."""
    stored = tables.properties(definition.path)
    now = indexed_columns(schema.columns, stored)
    following = indexed_columns(schema.columns, {**stored, **definition.skipping})
    return tuple(dict.fromkeys((*now, *following)))


def indexed_with(tables: Tables, path: str, properties: Mapping[str, str]) -> tuple[ColumnPath, ...]:
    """Columns indexed by the table's current properties, and with `properties` in addition."""
    columns, stored = tables.existing(path).schema.columns, tables.properties(path)
    both = (*indexed_columns(columns, stored), *indexed_columns(columns, {**stored, **properties}))
    return tuple(dict.fromkeys(both))


def index_as_defined(tables: Tables, definition: TableDefinition) -> None:
    """Set the property after the statistics of `indexed_after` are written."""
    tables.set_properties(definition.path, {**definition.skipping, **CURRENT})


def complete(tables: Tables, definition: TableDefinition) -> int:
    """Write missing statistics of a table of an earlier release; returns the number of files."""
    if tables.properties(definition.path).get(STATISTICS) == CURRENT[STATISTICS]:
        return 0
    schema = tables.existing(definition.path).schema
    files = tables.restate(definition.path, indexed_after(tables, definition, schema))
    tables.set_properties(definition.path, {**definition.skipping, STATISTICS: CURRENT[STATISTICS]})
    return files
