"""Evolve a table's columns to the plan's schema; idempotent, since it compares desired and actual columns."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from airflow_gddl.contract.sql_types import SqlType, StructField, StructType, parse_type
from spark_jobs.engines.delta_rs.data_files import has_sequences
from spark_jobs.engines.delta_rs.features import missing_features
from spark_jobs.engines.delta_rs.tables import Tables, TableSnapshot, Write
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import are_of_one_kind, grown
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.history import retyped_bounds


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
        rows = with_texts(tables.read(definition.path), stored, changed)
        tables.commit(definition.path, Write(added=[rows], removed=None, schema=schema))
    elif new:
        tables.add_columns(definition.path, new)


def retype_sequence(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> None:
    """Give `_gddl.sequence` its type while all stored sequences are null, and `bounds` of the history with it.

    `ensure` widens it.
    """
    if not tables.exists(path) or retype_without_rows(tables, path, table_schema, bounds):
        return
    snapshot = tables.existing(path)
    changed: dict[str, SqlType] = {GDDL: _wanted(snapshot, table_schema)}
    changed |= dict.fromkeys(bounds, parse_type(table_schema.sequence_type))
    schema = snapshot.schema.retyped(changed)
    rows = tables.read(path)
    for name in bounds:
        values = retyped_bounds(rows.column(name), changed[name])
        rows = rows.set_column(rows.schema.get_field_index(name), name, values)
    gddl = rows.column(GDDL).combine_chunks()
    parts = [pa.nulls(rows.num_rows, schema.arrow.field(GDDL).type.field(0).type), *gddl.flatten()[1:]]
    emptied = pa.StructArray.from_arrays(parts, fields=list(schema.arrow.field(GDDL).type))
    rows = rows.set_column(rows.schema.get_field_index(GDDL), GDDL, emptied)
    tables.commit(path, Write(added=[rows], removed=None, schema=schema))


def retype_without_rows(tables: Tables, path: str, table_schema: TableSchema, bounds: tuple[str, ...] = ()) -> bool:
    """Do what `retype_sequence` does where no row has to be written for it; returns whether nothing is left to do.

    That is so where no file has the field, since `data_files` leaves it out, and the type needs no table feature.
    """
    snapshot = tables.existing(path)
    wanted = _wanted(snapshot, table_schema)
    if wanted == snapshot.schema.types[GDDL]:
        return True
    if not tables.arranges_files or missing_features(snapshot.delta, [Column(GDDL, wanted)]):
        return False
    if bounds or any(has_sequences(tables.storage, path, file) for file in snapshot.files):
        return False
    tables.retype(path, {GDDL: wanted})
    return True


def _wanted(snapshot: TableSnapshot, table_schema: TableSchema) -> SqlType:
    """The type of `_gddl` with a sequence of the schema's kind."""
    kind, stored = parse_type(table_schema.sequence_type), snapshot.schema.types[GDDL]
    if not isinstance(stored, StructType) or are_of_one_kind(stored.fields[0].type, kind):
        return stored
    return StructType((StructField("sequence", kind), *stored.fields[1:]))
