"""Creates, evolves and reconciles the tables of a row by Spark's Delta."""

from __future__ import annotations

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines import table_definition
from spark_jobs.engines.spark import evolve, reconcile
from spark_jobs.engines.spark.indexing import keep_readable
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.plan.table_schema import TableSchema


def ensure_tables(tables: Tables, schema: TableSchema, layout: Layout, tier: TierSpec) -> None:
    """See `TableWork`."""
    for definition in table_definition.definitions(schema, layout, tier):
        evolve.retype_sequence(tables, definition.path, schema, definition.bounds)
        reconcile.settle_deletes(tables, definition)
        evolve.ensure(tables, definition, rewrite=not tier.deletion_vectors)
        reconcile.settle_properties(tables, definition)
        reconcile.settle_comments(tables, definition)
        keep_readable(tables, definition.path)
    tombstones = table_definition.tombstones(schema, layout.tombstones)
    if tables.exists(tombstones.path):  # its keys and sequences are compared with the others'
        evolve.ensure(tables, tombstones, rewrite=True)
        keep_readable(tables, tombstones.path)
