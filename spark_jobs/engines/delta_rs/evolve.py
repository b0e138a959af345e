"""Evolve a table's columns to the plan's schema; idempotent, since it compares desired and actual columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from airflow_gddl.contract.sql_types import SqlType, StructField, StructType, parse_type
from spark_jobs.engines.delta_rs.tables import Tables, Write
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.merging import grown
from spark_jobs.plan.table_schema import GDDL, TableSchema


def ensure(tables: Tables, definition: TableDefinition) -> None:
    """Create the table, or bring an existing one to the definition's columns; types are widened by rewriting."""
    if not tables.exists(definition.path):
        tables.create(definition)
        return
    snapshot = tables.existing(definition.path)
    stored = snapshot.schema.types
    new = [c for c in definition.columns if c.name not in stored]
    changed = {c.name: grown(stored[c.name], c.type) for c in definition.columns if c.name in stored}
    changed = {name: kind for name, kind in changed.items() if kind != stored[name]}
    if changed:
        schema = snapshot.schema.retyped(changed)
        schema = replace(schema, columns=(*schema.columns, *new))
        tables.commit(definition.path, Write(added=[tables.read(definition.path)], removed=None, schema=schema))
    elif new:
        tables.add_columns(definition.path, new)


def retype_sequence(tables: Tables, path: str, table_schema: TableSchema, extra: tuple[str, ...] = ()) -> None:
    """Give `_gddl.sequence` (and `extra` columns) its type while all stored sequences are null."""
    if not tables.exists(path):
        return
    snapshot = tables.existing(path)
    kind = parse_type(table_schema.sequence_type)
    stored = snapshot.schema.types[GDDL]
    if not isinstance(stored, StructType) or stored.fields[0].type == kind:
        return
    struct = StructType((StructField("sequence", kind), *stored.fields[1:]))
    changed: dict[str, SqlType] = {GDDL: struct, **dict.fromkeys(extra, kind)}
    schema = snapshot.schema.retyped(changed)
    rows = tables.read(path)
    for name in extra:
        rows = rows.drop_columns([name])
    gddl = rows.column(GDDL).combine_chunks()
    parts = [pa.nulls(rows.num_rows, schema.arrow.field(GDDL).type.field(0).type), *gddl.flatten()[1:]]
    emptied = pa.StructArray.from_arrays(parts, fields=list(schema.arrow.field(GDDL).type))
    rows = rows.set_column(rows.schema.get_field_index(GDDL), GDDL, emptied)
    tables.commit(path, Write(added=[rows], removed=None, schema=schema))
