"""Which columns of a table have statistics: what its property names, every file has, before and after each commit."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.skipping import ColumnPath, indexed_columns
from spark_jobs.engines.table_definition import CURRENT, STATISTICS, TableDefinition
from spark_jobs.rules.arrow_schema import DeltaSchema


def indexed_after(tables: Tables, definition: TableDefinition, schema: DeltaSchema) -> tuple[ColumnPath, ...]:
    """Columns to write statistics of when all rows are written anew: those named now, and those named next."""
    stored = tables.properties(definition.path)
    now = indexed_columns(schema.columns, stored)
    following = indexed_columns(schema.columns, {**stored, **definition.skipping})
    return tuple(dict.fromkeys((*now, *following)))


def indexed_with(tables: Tables, path: str, properties: Mapping[str, str]) -> tuple[ColumnPath, ...]:
    """Columns that the table's properties name now, and those that they name with others."""
    columns, stored = tables.existing(path).schema.columns, tables.properties(path)
    both = (*indexed_columns(columns, stored), *indexed_columns(columns, {**stored, **properties}))
    return tuple(dict.fromkeys(both))


def index_as_defined(tables: Tables, definition: TableDefinition) -> None:
    """Name the columns that `indexed_after` told, once they are written."""
    tables.set_properties(definition.path, {**definition.skipping, **CURRENT})


def complete(tables: Tables, definition: TableDefinition) -> int:
    """Give a table of an earlier release the statistics that its property names; how many files it concerned."""
    if tables.properties(definition.path).get(STATISTICS) == CURRENT[STATISTICS]:
        return 0
    schema = tables.existing(definition.path).schema
    files = tables.restate(definition.path, indexed_after(tables, definition, schema))
    tables.set_properties(definition.path, {**definition.skipping, STATISTICS: CURRENT[STATISTICS]})
    return files
