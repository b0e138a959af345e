"""Which columns of a table have statistics: see `delta_rs.indexing`; here Delta itself writes them."""

from __future__ import annotations

from spark_jobs.engines import skipping
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.table_definition import CURRENT, TableDefinition


def prepare_overwrite(tables: Tables, definition: TableDefinition) -> None:
    """Before a table's schema is replaced: Delta refuses one that lacks an indexed column, or needs a table feature."""
    tables.allow(definition.path, definition.columns)
    named = tables.properties(definition.path).get(skipping.COLUMNS)
    if named is not None:
        left = skipping.restricted(named, definition.columns)
        if left != skipping.restricted(named, None):
            tables.set_properties(definition.path, {skipping.COLUMNS: left})


def index_as_defined(tables: Tables, definition: TableDefinition) -> None:
    """After it: statistics of the columns that the definition names; no file is of an earlier release any more."""
    before = tables.properties(definition.path).get(skipping.COLUMNS)
    wanted = definition.skipping
    tables.set_properties(definition.path, {**wanted, **CURRENT})
    if wanted and wanted[skipping.COLUMNS] != before:
        tables.restate(definition.path)
