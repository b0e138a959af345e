"""Evolve a table's columns to the plan's schema; idempotent, since it compares desired and actual columns."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql import types as T

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.engines.spark.columns import name, retyped
from spark_jobs.engines.spark.in_tasks import row_by_row
from spark_jobs.engines.spark.tables import Tables, spark_type, sql_text
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import Addition, Widening, are_of_one_kind, extra_fields, widenings
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.plan.widening import widens
from spark_jobs.rules.arrow_schema import arrow_type
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.history import before_changes

_LOWEST = f"{GDDL}__lowest"
_TEXT = T.StringType()


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
            found = widenings(stored.type, column.type, (column.name,))
            grown += [widening for widening in found if not widens(widening.after, widening.before)]
    if additions or grown:
        tables.allow(definition.path, definition.columns)
    if additions:
        new = ", ".join(f"{addition.name} {addition.type}" for addition in additions)
        tables.sql(definition.path, f"ALTER TABLE {{table}} ADD COLUMNS ({new})")
    becomes_text = any(str(widening.after) == "string" for widening in grown)  # no widening that Delta knows
    if becomes_text or (grown and rewrite and not definition.cluster_by):
        _rewrite(tables, definition)
    elif grown:
        _widen(tables, definition.path, grown)


def _widen(tables: Tables, path: str, grown: list[Widening]) -> None:
    tables.sql(path, "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableTypeWidening' = 'true')")
    for widening in grown:
        tables.sql(path, f"ALTER TABLE {{table}} CHANGE COLUMN {widening.name} TYPE {widening.after}")


def _rewrite(tables: Tables, definition: TableDefinition) -> None:
    rows, wanted = tables.read(definition.path), {c.name: spark_type(str(c.type)) for c in definition.columns}
    stored, types = (
        {c.name: c.type for c in tables.columns(definition.path)},
        {c.name: c.type for c in definition.columns},
    )
    if texts := [n for n, kind in types.items() if str(kind) == "string" and str(stored.get(n, kind)) != "string"]:
        fields = [T.StructField(f.name, _TEXT if f.name in texts else f.dataType) for f in rows.schema.fields]
        rows = row_by_row(rows, lambda part: with_texts(part, stored, types), T.StructType(fields))
    columns = []
    for field in tables.read(definition.path).schema.fields:
        kept = retyped(rows, field.name, wanted.get(field.name, field.dataType))
        columns.append(kept.alias(field.name, metadata=field.metadata))
    tables.rewrite(rows.select(*columns), definition.path)


def retype_sequence(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> None:
    """Give `_gddl.sequence` its type while all stored sequences are null, and `bounds` of the history with it.

    `ensure` widens it.
    """
    if not tables.exists(path):
        return
    rows = tables.read(path)
    stored, wanted = rows.schema[GDDL].dataType, parse_type(table_schema.sequence_type)
    if not isinstance(stored, T.StructType):
        return
    if are_of_one_kind(parse_type(sql_text(stored["sequence"].dataType)), wanted):
        return
    tables.allow(path, (Column(GDDL, wanted),))
    kind = spark_type(table_schema.sequence_type)
    columns = []
    if bounds:
        lowest = pa.array([before_changes(wanted)], arrow_type(wanted))
        rows = rows.crossJoin(tables.local(pa.table({_LOWEST: lowest}), T.StructType([T.StructField(_LOWEST, kind)])))
    for field in rows.drop(_LOWEST).schema.fields:
        if field.name == GDDL:
            fields = [F.lit(None).cast(kind).alias("sequence")]
            fields += [F.col(GDDL)[f.name].alias(f.name) for f in stored.fields if f.name != "sequence"]
            columns.append(F.struct(*fields).alias(GDDL))
        elif field.name in bounds:
            columns.append(F.when(name(field.name).isNotNull(), F.col(_LOWEST)).alias(field.name))
        else:
            columns.append(name(field.name).alias(field.name, metadata=field.metadata))
    tables.rewrite(rows.select(*columns), path)
