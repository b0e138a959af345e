"""Evolve a table's columns to the plan's schema; idempotent, since it compares desired and actual columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from airflow_gddl.contract.sql_types import SqlType, StructField, StructType, parse_type
from spark_jobs.engines.delta_rs.data_files import has_sequences
from spark_jobs.engines.delta_rs.features import missing_features
from spark_jobs.engines.delta_rs.outputs import rewrite
from spark_jobs.engines.delta_rs.tables import Tables, TableSnapshot
from spark_jobs.engines.table_definition import TableDefinition
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import are_of_one_kind, grown
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.arrow_schema import DeltaSchema
from spark_jobs.rules.convert import with_texts
from spark_jobs.rules.history import retyped_bounds


def ensure(tables: Tables, definition: TableDefinition) -> None:
    """Create the table, or bring an existing one to the definition's columns."""
    if not tables.exists(definition.path):
        tables.create(definition)
        return
    stored = tables.existing(definition.path).schema.types
    new = [c for c in definition.columns if c.name not in stored]
    if new:
        tables.add_columns(definition.path, new)
    changed = {c.name: grown(stored[c.name], c.type) for c in definition.columns if c.name in stored}
    changed = {name: kind for name, kind in changed.items() if kind != stored[name]}
    left = tables.grow(definition.path, changed) if changed else {}
    if left:
        schema = tables.existing(definition.path).schema
        rewrite(tables, definition.path, schema.retyped(left), _Retyped(stored, left))


@dataclass(frozen=True)
class _Retyped:
    """Rows with the text of their values in columns that become text; sent to tasks."""

    stored: Mapping[str, SqlType]
    wanted: Mapping[str, SqlType]

    def __call__(self, rows: pa.Table) -> pa.Table:
        return with_texts(rows, self.stored, self.wanted)


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
    rewrite(tables, path, schema, _Resequenced(schema, bounds))


@dataclass(frozen=True)
class _Resequenced:
    """Rows whose sequence and bounds have the types of a schema; sent to tasks."""

    schema: DeltaSchema
    bounds: tuple[str, ...]

    def __call__(self, rows: pa.Table) -> pa.Table:
        for name in self.bounds:
            values = retyped_bounds(rows.column(name), self.schema.types[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        kind = self.schema.arrow.field(GDDL).type
        gddl = rows.column(GDDL).combine_chunks()
        parts = [pa.nulls(rows.num_rows, kind.field(0).type), *gddl.flatten()[1:]]
        emptied = pa.StructArray.from_arrays(parts, fields=list(kind), mask=gddl.is_null())
        return rows.set_column(rows.schema.get_field_index(GDDL), GDDL, emptied)


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
