"""Schemas of plans from names and SQL types, and back."""

from __future__ import annotations

from collections.abc import Mapping

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import Column, Schema


def schema_of(types: Mapping[str, str]) -> Schema:
    return Schema(tuple(Column(name, parse_type(text)) for name, text in types.items()))


def types_of(schema: Schema) -> dict[str, str]:
    return {column.name: str(column.type) for column in schema.columns}
