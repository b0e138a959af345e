"""The columns of the change table in Arrow."""

from __future__ import annotations

import pyarrow as pa

from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.plan.types import parse_type
from spark_jobs.rules.arrow_schema import arrow_type


def change_schema(table_schema: TableSchema) -> pa.Schema:
    """The columns of the change table in the order of `TableSchema.change_columns`, and `_gddl`."""
    kinds = {c.name: arrow_type(c.type) for c in (*table_schema.data, *table_schema.before)}
    fields = [pa.field(n, kinds.get(n, pa.string())) for n in table_schema.change_columns]
    return pa.schema([*fields, pa.field(GDDL, arrow_type(parse_type(table_schema.gddl_type)))])
