"""Columns of a table as they are stored: their types in SQL and in Arrow, and what the change table tells of an event.

The latter, the origin of its source and the columns that it carried, decide nothing: neither folds nor comparisons of
changes read them (`EVENT_FIELDS`).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.sql_types import ScalarType, parse_type
from airflow_gddl.contract.table_spec import lowered
from spark_jobs.plan.table_schema import GDDL, RESCUED, Column, TableSchema
from spark_jobs.rules.arrays import DeltaSchema, all_true, changes, fields_of, flat, row_codes
from spark_jobs.rules.carried import carried, delivered
from spark_jobs.rules.order import gddl_fields, with_gddl


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
    return fields_of(kinds, table_schema.keys)


def stored_schema(rows: pa.Table, names: Iterable[str], types: pa.Schema) -> pa.Schema:
    """Stored rows' columns `names` and `_gddl` in the types of `types`; `_gddl.deleted` where the rows have it."""
    kind = types.field(GDDL).type
    if rows.schema.field(GDDL).type.get_field_index("deleted") >= 0:
        kind = pa.struct([*kind, pa.field("deleted", pa.bool_())])
    return pa.schema([*(types.field(name) for name in names), pa.field(GDDL, kind)])


_NAMES = pa.list_(pa.string())


def told(rows: pa.Table, schema: TableSchema) -> pa.Table:
    """New changes with `EVENT_FIELDS` in `_gddl`, where the change table has them."""
    if not schema.tells_events:
        return rows
    spec, count = schema.spec, rows.num_rows
    origin = {
        name: pa.repeat(pa.scalar(value, pa.string()), count)
        for name, value in (("source_type", spec.source_type), ("region", spec.region))
    }
    return with_gddl(rows, **origin, columns=names_of_parts(rows, schema))


def names_of_parts(rows: pa.Table, schema: TableSchema) -> pa.Array:
    """Names of the columns that each change carries, in the table's order; None: it carries all.

    Columns that the CDC service adds are not named; keys always are, and columns of the row that order changes. A
    delete whose other columns are all null carries these alone.
    """
    named = _source_columns(schema)
    if not rows.num_rows or not named:
        return pa.nulls(rows.num_rows, _NAMES)
    kinds, firsts = _kinds(rows, schema, named)
    some = rows.take(firsts)
    masks = np.stack([_carries(some, schema, name) for name in named], axis=1)
    masks &= ~(_of_key_alone(some, schema, named)[:, None] & np.isin(named, _beside_key(schema, named)))
    patterns, numbers = np.unique(masks, axis=0, return_inverse=True)
    lists = [None if all(one) else [name for name, has in zip(named, one, strict=True) if has] for one in patterns]
    return pa.array(lists, _NAMES).take(numbers.reshape(-1)[kinds])


def _source_columns(schema: TableSchema) -> list[str]:
    """The table's columns but those that the service adds to a change, unless the row orders changes by them."""
    added = lowered(map(landed_name, schema.technical)) - lowered(schema.named(schema.spec.sequence_by))
    left_out = added | lowered((*schema.controls, *schema.file_columns))
    return [column.name for column in schema.data if column.name.lower() not in left_out]


def _kinds(rows: pa.Table, schema: TableSchema, named: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """Number of the kind of each change, and the first one of each kind: those of a kind carry the same columns."""
    if schema.ignores_nulls:  # then each value decides
        every = np.arange(rows.num_rows)
        return every, every
    gddl = gddl_fields(rows)
    listings = [flat(rows.column(name)) for name in schema.controls if name in rows.column_names]
    alone = pa.array(_of_key_alone(rows, schema, named))
    codes = row_codes([gddl["schema"], gddl["op"], alone, *listings], rows.num_rows)
    at = np.argsort(codes, kind="stable")
    firsts = at[changes(codes[at])]
    return np.searchsorted(codes[firsts], codes), firsts


def _carries(rows: pa.Table, schema: TableSchema, name: str) -> np.ndarray:
    if name in schema.keys:
        return all_true(rows.num_rows)
    are_updates = np.asarray(pc.equal(gddl_fields(rows)["op"], "U"))
    return np.where(are_updates, carried(rows, schema, name), delivered(rows, schema, name))


def _of_key_alone(rows: pa.Table, schema: TableSchema, named: list[str]) -> np.ndarray:
    """Which changes are deletes without a value outside of their key and of what orders them."""
    alone = np.asarray(pc.equal(gddl_fields(rows)["op"], "D")).copy()
    for name in _beside_key(schema, named):
        if alone.any():
            alone &= np.asarray(flat(rows.column(name)).is_null())
    return alone


def _beside_key(schema: TableSchema, named: list[str]) -> list[str]:
    return [name for name in named if name not in schema.keys and not schema.is_technical(name)]
