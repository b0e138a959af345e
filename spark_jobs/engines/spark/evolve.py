"""Evolve a table's columns to the plan's schema; idempotent, since it compares desired and actual columns."""

from __future__ import annotations

from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.engines.spark.columns import name, retyped
from spark_jobs.engines.spark.tables import Tables, spark_type, sql_text
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import Addition, Widening, extra_fields, widenings
from spark_jobs.plan.table_schema import GDDL, TableSchema


def ensure(tables: Tables, definition: TableDefinition, *, rewrite: bool) -> None:
    """Create the table, or bring an existing one to the definition's columns.

    Args:
        rewrite: widen by rewriting the table, for readers without support of Delta's type widening.
    """
    if not tables.exists(definition.path):
        tables.create(definition)
        return
    actual = {column.name: column for column in tables.columns(definition.path)}
    additions: list[Addition] = []
    grown: list[Widening] = []
    for column in definition.columns:
        stored = actual.get(column.name)
        if stored is None:
            additions.append(Addition((column.name,), column.type))
        elif stored.type != column.type:
            additions += extra_fields(stored.type, column.type, (column.name,))
            grown += widenings(stored.type, column.type, (column.name,))
    if additions or grown:
        tables.allow(definition.path, definition.columns)
    for addition in additions:
        tables.sql(definition.path, f"ALTER TABLE {{table}} ADD COLUMNS ({addition.name} {addition.type})")
    if grown and rewrite and not definition.cluster_by:
        _rewrite(tables, definition)
    elif grown:
        _widen(tables, definition.path, grown)


def _widen(tables: Tables, path: str, grown: list[Widening]) -> None:
    tables.sql(path, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for widening in grown:
        tables.sql(path, f"ALTER TABLE {{table}} CHANGE COLUMN {widening.name} TYPE {widening.after}")


def _rewrite(tables: Tables, definition: TableDefinition) -> None:
    rows = tables.read(definition.path)
    wanted = {c.name: spark_type(str(c.type)) for c in definition.columns}
    columns = []
    for field in rows.schema.fields:
        kept = retyped(rows, field.name, wanted.get(field.name, field.dataType))
        columns.append(kept.alias(field.name, metadata=field.metadata))
    tables.rewrite(rows.select(*columns), definition.path)


def retype_sequence(tables: Tables, path: str, table_schema: TableSchema, extra: tuple[str, ...] = ()) -> None:
    """Give `_gddl.sequence` (and `extra` columns) its type while all stored sequences are null."""
    if not tables.exists(path):
        return
    rows = tables.read(path)
    stored, wanted = rows.schema[GDDL].dataType, parse_type(table_schema.sequence_type)
    if not isinstance(stored, T.StructType) or parse_type(sql_text(stored["sequence"].dataType)) == wanted:
        return
    tables.allow(path, (Column(GDDL, wanted),))
    kind = spark_type(table_schema.sequence_type)
    columns = []
    for field in rows.schema.fields:
        if field.name == GDDL:
            fields = [F.lit(None).cast(kind).alias("sequence")]
            fields += [F.col(GDDL)[f.name].alias(f.name) for f in stored.fields if f.name != "sequence"]
            columns.append(F.struct(*fields).alias(GDDL))
        elif field.name in extra:
            columns.append(F.lit(None).cast(kind).alias(field.name))
        else:
            columns.append(name(field.name).alias(field.name, metadata=field.metadata))
    tables.rewrite(rows.select(*columns), path)
