"""Columns of a table as they are stored: their types in SQL and in Arrow."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from airflow_gddl.contract.sql_types import ScalarType, parse_type
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, TableSchema
from spark_jobs.rules.arrays import DeltaSchema


def data_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """`TableSchema.columns` with their types."""
    rescued = (Column(RESCUED, ScalarType("string")),) if table_schema.rescues else ()
    return (*table_schema.data, *rescued)


def gddl_column(table_schema: TableSchema) -> Column:
    return Column(GDDL, parse_type(table_schema.gddl_type))


def change_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """`TableSchema.change_columns` with their types, and `_gddl`: what is decided by."""
    return (*data_columns(table_schema), *table_schema.before, gddl_column(table_schema))


def change_schema(table_schema: TableSchema) -> pa.Schema:
    """`change_columns` in Arrow."""
    return DeltaSchema(change_columns(table_schema)).arrow


def event_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """Columns of the change table as it stores them: `_gddl` may have `EVENT_FIELDS`."""
    return (*change_columns(table_schema)[:-1], Column(GDDL, parse_type(table_schema.event_type)))


def event_schema(table_schema: TableSchema) -> pa.Schema:
    """`event_columns` in Arrow."""
    return DeltaSchema(event_columns(table_schema)).arrow


def key_schema(table_schema: TableSchema) -> pa.Schema:
    """Key columns of changes, by which rows of one key belong together."""
    kinds = change_schema(table_schema)
    return pa.schema([kinds.field(name) for name in table_schema.keys])


def stored_schema(rows: pa.Table, names: Iterable[str], types: pa.Schema) -> pa.Schema:
    """Stored rows' columns `names` and `_gddl` in the types of `types`; `_gddl.deleted` where the rows have it."""
    kind = types.field(GDDL).type
    if rows.schema.field(GDDL).type.get_field_index("deleted") >= 0:
        kind = pa.struct([*kind, pa.field("deleted", pa.bool_())])
    return pa.schema([*(types.field(name) for name in names), pa.field(GDDL, kind)])
