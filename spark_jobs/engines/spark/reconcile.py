"""Reconciles existing tables with the metadata row: see `delta_rs.reconcile`."""

from __future__ import annotations

from pyspark.sql import functions as F

from airflow_gddl.contract.sql_types import literal, quote, quoted
from spark_jobs.engines import skipping
from spark_jobs.engines.spark.indexing import name_indexed, prepare_overwrite
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.engines.table_definition import TableDefinition, marks_deletes, new_comments
from spark_jobs.plan.table_schema import GDDL

_DELETED = "deleted"


def settle_deletes(tables: Tables, definition: TableDefinition) -> None:
    """`_gddl.deleted` as the row asks: added, false in every row; or removed, with the rows that it marks."""
    wanted = next((c.type for c in definition.columns if c.name == GDDL), None)
    if not tables.exists(definition.path) or wanted is None:
        return
    rows = tables.read(definition.path)
    has = _DELETED in rows.select(f"{GDDL}.*").columns
    if has == marks_deletes(wanted):
        return
    gddl = F.col(GDDL)
    if has:
        rows = rows.where(~F.coalesce(gddl[_DELETED], F.lit(False))).withColumn(GDDL, gddl.dropFields(_DELETED))
    else:
        mark = F.when(gddl.isNotNull(), F.lit(False))  # a literal would be a non-nullable type
        rows = rows.withColumn(GDDL, gddl.withField(_DELETED, mark))
    prepare_overwrite(tables, definition)
    tables.rewrite(rows, definition.path)


def settle_comments(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's comments; others, also those that users wrote, are kept."""
    path = definition.path
    if not definition.description and not definition.descriptions:
        return
    stored = {field.name: str(field.metadata.get("comment", "")) for field in tables.read(path).schema.fields}
    for column, comment in new_comments(definition, stored).items():
        tables.sql(path, f"ALTER TABLE {{table}} ALTER COLUMN {quote(column)} COMMENT {literal(comment)}")
    if definition.description not in ("", tables.description(path)):
        # With a path, Spark accepts the table's comment only as a property.
        tables.sql(path, f"ALTER TABLE {{table}} SET TBLPROPERTIES ('comment' = {literal(definition.description)})")


def settle_properties(tables: Tables, definition: TableDefinition) -> None:
    """Set the row's properties and clustering; properties that it no longer names are kept."""
    path, stored = definition.path, tables.properties(definition.path)
    changed = {name: value for name, value in definition.properties.items() if stored.get(name) != value}
    clusters = tables.clustering(path)
    moved = tuple(definition.cluster_by) != clusters
    if skipping.COLUMNS not in stored or (moved and definition.cluster_by):
        name_indexed(tables, definition, complete=moved)
    if changed:
        tables.set_properties(path, changed)
    if moved:
        names = ", ".join(map(quoted, definition.cluster_by))
        tables.sql(path, f"ALTER TABLE {{table}} CLUSTER BY {f'({names})' if names else 'NONE'}")
