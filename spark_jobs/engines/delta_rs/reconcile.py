"""Reconciles existing tables with the metadata row (rule 14)."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import StructType
from spark_jobs.engines import skipping
from spark_jobs.engines.delta_rs.features import require_settable
from spark_jobs.engines.delta_rs.indexing import indexed_with
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.table_definition import CLUSTER_BY, TableDefinition, marks_deletes, new_comments
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
    rows = tables.read(definition.path)
    rows = unmarked(rows) if marks_deletes(stored) else undeleted(rows)
    schema = snapshot.schema.retyped({GDDL: wanted})
    tables.commit(definition.path, Write(added=[rows], removed=None, schema=schema))


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
    stored = tables.properties(definition.path)
    wanted = {**definition.properties, **definition.ordering}
    if stored.get(CLUSTER_BY) and not definition.cluster_by:
        wanted[CLUSTER_BY] = "[]"
    changed = {name: value for name, value in wanted.items() if stored.get(name) != value}
    if not changed:
        return
    require_settable(changed)
    if {name.lower() for name in changed} & {skipping.COLUMNS.lower(), skipping.COUNT.lower()}:
        columns = tables.existing(definition.path).schema.columns
        tables.restate(definition.path, indexed_with(tables, definition.path, columns, changed))
    tables.set_properties(definition.path, changed)
