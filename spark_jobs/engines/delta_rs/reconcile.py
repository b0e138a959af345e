"""Reconciles existing tables with the metadata row (rule 14)."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import StructType
from spark_jobs.engines import skipping
from spark_jobs.engines.delta_rs.outputs import rewrite
from spark_jobs.engines.delta_rs.tables import Tables
from spark_jobs.engines.table_definition import TableDefinition, marks_deletes, new_comments
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.sweep import undeleted, unmarked


def settle_deletes(tables: Tables, definition: TableDefinition) -> None:
    """`_gddl.deleted` as the row asks: added, false in every row; or removed, with the rows that it marks."""
    wanted = next((c.type for c in definition.columns if c.name == GDDL), None)
    if not tables.exists(definition.path) or not isinstance(wanted, StructType):
        return
    snapshot = tables.existing(definition.path)
    stored = snapshot.schema.types[GDDL]
    if marks_deletes(stored) == marks_deletes(wanted):
        return
    schema = snapshot.schema.retyped({GDDL: wanted})
    rewrite(tables, definition.path, schema, unmarked if marks_deletes(stored) else undeleted)


def settle_comments(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's comments; others, also those that users wrote, are kept."""
    if not definition.description and not definition.descriptions:
        return
    table = tables.existing(definition.path)
    comments = new_comments(definition, table.comments)
    if comments or definition.description not in ("", table.delta.metadata().description):
        tables.set_comments(definition.path, definition.description, comments)


def settle_properties(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's properties and order of rows; properties that it no longer names are kept.

    Raises:
        DeclinedError: one of them requires more than this engine supports.
    """
    path, stored = definition.path, tables.properties(definition.path)
    changed = {name: value for name, value in definition.properties.items() if stored.get(name) != value}
    names = tables.existing(path).schema.names
    moved = definition.cluster_by != tables.clustering(path) and set(definition.cluster_by) <= set(names)
    if moved and definition.cluster_by and stored.get(skipping.COLUMNS):
        changed |= definition.skipping
    if {name.lower() for name in changed} & {skipping.COLUMNS.lower(), skipping.COUNT.lower()}:
        tables.reindex(path, changed)
    elif changed:
        tables.set_properties(path, changed)
    if moved:
        tables.cluster(path, definition.cluster_by)


def prepare_replacement(tables: Tables, definition: TableDefinition) -> None:
    """Create the table, or prepare an existing one for new rows, columns and partitions."""
    tables.create(definition)
    settle_properties(tables, definition)
    tables.prepare_replacement(definition)
