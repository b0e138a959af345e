"""Columns of a table's Delta tables, for all engines."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import ScalarType, parse_type
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, RESCUED, TableSchema
from spark_jobs.rules.history import END, START

_FORCED = f"{GDDL}__forced"


def replica_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    deleted = ",deleted:boolean" if table_schema.spec.delete == "soft" else ""
    return (*data_columns(table_schema), Column(GDDL, parse_type(table_schema.gddl_type[:-1] + deleted + ">")))


def change_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    return (*data_columns(table_schema), *table_schema.before, _gddl(table_schema))


def tombstone_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """Keys, the delete's `_gddl`, and under `force_update` whether it was forced."""
    columns = {c.name: c for c in table_schema.data}
    forced = (Column(_FORCED, ScalarType("boolean")),) if table_schema.spec.force_update else ()
    return (*(columns[key] for key in table_schema.keys), _gddl(table_schema), *forced)


def history_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    kind = parse_type(table_schema.sequence_type)
    return (*data_columns(table_schema), _gddl(table_schema), Column(START, kind), Column(END, kind))


def data_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    return (*table_schema.data, Column(RESCUED, ScalarType("string"))) if table_schema.rescues else table_schema.data


def _gddl(table_schema: TableSchema) -> Column:
    return Column(GDDL, parse_type(table_schema.gddl_type))
