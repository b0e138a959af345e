"""The columns of the change table in Arrow, and stored rows in their types."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrow_schema import arrow_type


def change_schema(table_schema: TableSchema) -> pa.Schema:
    """The columns of the change table in the order of `TableSchema.change_columns`, and `_gddl`."""
    kinds = {c.name: arrow_type(c.type) for c in (*table_schema.data, *table_schema.before)}
    fields = [pa.field(n, kinds.get(n, pa.string())) for n in table_schema.change_columns]
    return pa.schema([*fields, pa.field(GDDL, arrow_type(parse_type(table_schema.gddl_type)))])


def stored_schema(rows: pa.Table, names: Iterable[str], types: pa.Schema) -> pa.Schema:
    """Stored rows' columns `names` and `_gddl` in the types of `types`; `_gddl.deleted` where the rows have it."""
    kind = types.field(GDDL).type
    if rows.schema.field(GDDL).type.get_field_index("deleted") >= 0:
        kind = pa.struct([*kind, pa.field("deleted", pa.bool_())])
    return pa.schema([*(types.field(name) for name in names), pa.field(GDDL, kind)])
