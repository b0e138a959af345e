"""Columns of a table's Delta tables but the change table's, for all engines."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import ScalarType, parse_type
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.changes import data_columns, gddl_column
from spark_jobs.rules.fold import FORCED
from spark_jobs.rules.history import END, END_GENERATION, START, START_GENERATION


def replica_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    deleted = ",deleted:boolean" if table_schema.spec.delete == "soft" else ""
    return (*data_columns(table_schema), Column(GDDL, parse_type(table_schema.gddl_type[:-1] + deleted + ">")))


def tombstone_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """Keys, the delete's `_gddl`, and under `force_update` whether it was forced."""
    columns = {c.name: c for c in table_schema.data}
    forced = (Column(FORCED, ScalarType("boolean")),) if table_schema.forces else ()
    return (*(columns[key] for key in table_schema.keys), gddl_column(table_schema), *forced)


def history_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    kind, number = parse_type(table_schema.sequence_type), ScalarType("int")
    bounds = {START: kind, END: kind, START_GENERATION: number, END_GENERATION: number}
    return (*data_columns(table_schema), gddl_column(table_schema), *(Column(n, k) for n, k in bounds.items()))
