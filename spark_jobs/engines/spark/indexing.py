"""Indexed columns of a table: see `delta_rs.indexing`; here Delta writes the statistics."""

from __future__ import annotations

from collections.abc import Mapping

from spark_jobs.engines import skipping
from spark_jobs.engines.spark.tables import Tables, spark_type
from spark_jobs.engines.table_definition import CURRENT, TableDefinition
from spark_jobs.plan.columns import Column


def prepare_overwrite(tables: Tables, definition: TableDefinition) -> None:
    """Before a schema is replaced: Delta refuses one that lacks an indexed column, or needs a table feature.

    Delta can't rewrite statistics of tables with deletion vectors: there the columns are named now that get
    statistics and that the table has already. Elsewhere that would mislead readers until the files are replaced.
    """
    tables.allow(definition.path, definition.columns)
    properties = tables.properties(definition.path)
    named = properties.get(skipping.COLUMNS)
    if named is not None and _has_deletion_vectors(properties):
        left = skipping.restricted(definition.skipping[skipping.COLUMNS], _columns_that_stay(tables, definition))
        tables.set_properties(definition.path, {skipping.COLUMNS: left})
    elif named is not None:
        left = skipping.restricted(named, [c for c in definition.columns if c.name not in definition.partition_by])
        if left != skipping.restricted(named, None):
            tables.set_properties(definition.path, {skipping.COLUMNS: left})


def index_as_defined(tables: Tables, definition: TableDefinition) -> None:
    """After a schema is replaced: index the definition's columns; no file of an earlier release remains."""
    before = tables.properties(definition.path)
    wanted = definition.skipping
    tables.set_properties(definition.path, {**wanted, **CURRENT})
    if wanted and wanted[skipping.COLUMNS] != before.get(skipping.COLUMNS) and not _has_deletion_vectors(before):
        tables.restate(definition.path)


def name_indexed(tables: Tables, definition: TableDefinition, *, complete: bool) -> None:
    """Set the indexed columns of a table that has none, or others.

    Args:
        complete: all of the definition's, with rewritten statistics; else Delta's default columns.
    """
    wanted = definition.skipping
    if not wanted:
        return
    if not complete:
        wanted = {skipping.COLUMNS: skipping.usual(wanted[skipping.COLUMNS], tables.columns(definition.path))}
    tables.set_properties(definition.path, wanted)
    if complete and not _has_deletion_vectors(tables.properties(definition.path)):
        tables.restate(definition.path)


def keep_readable(tables: Tables, path: str) -> bool:
    """Drop columns from the indexed ones whose bounds some reader can't read; returns whether there were any.

    Readers ignore what the log has of columns that the property doesn't name, so no file's statistics change.
    """
    left = skipping.left_readable(tables.properties(path).get(skipping.COLUMNS), tables.columns(path))
    if left is None:
        return False
    tables.set_properties(path, {skipping.COLUMNS: left})
    return True


def _columns_that_stay(tables: Tables, definition: TableDefinition) -> list[Column]:
    """Columns that the table has now, with their type in the definition."""
    stored = {f.name: f.dataType for f in tables.read(definition.path).schema.fields}
    return [c for c in definition.columns if stored.get(c.name) == spark_type(str(c.type))]


def _has_deletion_vectors(properties: Mapping[str, str]) -> bool:
    return properties.get("delta.enableDeletionVectors", "").lower() == "true"
