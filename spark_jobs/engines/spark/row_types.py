"""Spark types of the input and output rows of rules; each names the rule that documents its columns."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as T

from spark_jobs.engines import table_columns
from spark_jobs.engines.spark.tables import spark_type
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules.changes import change_columns, data_columns
from spark_jobs.rules.fold import (
    COLUMNS_BEFORE_DELETE,
    FIRST,
    FORCED,
    HAS_FORCED,
    LOWEST,
    LOWEST_FORCED,
    MOVE_DELETED,
    REPLACES_ROW,
    carried_names,
    refolds,
)
from spark_jobs.rules.merge import ACTION, IGNORED, LATE, MOVE_LOST, UNKNOWN_KEY
from spark_jobs.rules.order import MOVED
from spark_jobs.rules.redelivery import TIED

_TEXT, _FLAG = T.StringType(), T.BooleanType()


def struct(columns: Iterable[Column], **others: T.DataType) -> T.StructType:
    fields = [T.StructField(c.name, spark_type(str(c.type))) for c in columns]
    return T.StructType([*fields, *(T.StructField(n, kind) for n, kind in others.items())])


def key_types(table_schema: TableSchema) -> dict[str, T.DataType]:
    kinds = {c.name: c.type for c in table_schema.data}
    return {key: spark_type(str(kinds[key])) for key in table_schema.keys}


def column_types(table_schema: TableSchema) -> dict[str, T.DataType]:
    """Types of the replica's columns without `_gddl`."""
    return {c.name: spark_type(str(c.type)) for c in data_columns(table_schema)}


def change_rows(table_schema: TableSchema) -> T.StructType:
    return struct(change_columns(table_schema))


def new_change_rows(table_schema: TableSchema) -> T.StructType:
    """See `redelivery.new_changes`."""
    return struct(change_columns(table_schema), **{TIED: _FLAG})


def event_rows(table_schema: TableSchema) -> T.StructType:
    """See `order.events`."""
    return struct(data_columns(table_schema), **{GDDL: _gddl(table_schema), MOVED: _FLAG})


def net_rows(table_schema: TableSchema, *, partial: bool) -> T.StructType:
    """See `fold.net_changes`."""
    gddl = _gddl(table_schema)
    others: dict[str, T.DataType] = {GDDL: gddl, FIRST: _TEXT}
    if table_schema.before_of_key:
        others[MOVE_DELETED] = _TEXT
    if refolds(table_schema):
        others |= {FORCED: _FLAG, HAS_FORCED: _FLAG, LOWEST: gddl, LOWEST_FORCED: _FLAG}
    if partial:
        others |= dict.fromkeys((REPLACES_ROW, COLUMNS_BEFORE_DELETE, *carried_names(table_schema).values()), _FLAG)
    return struct(data_columns(table_schema), **others)


def decided_rows(table_schema: TableSchema, *, partial: bool) -> T.StructType:
    """See `merge.decide`."""
    others: dict[str, T.DataType] = {ACTION: _TEXT} | dict.fromkeys((LATE, IGNORED, MOVE_LOST, UNKNOWN_KEY), _FLAG)
    if partial:
        others |= dict.fromkeys(carried_names(table_schema).values(), _FLAG)
    return struct(table_columns.replica_columns(table_schema), **others)


def version_rows(table_schema: TableSchema) -> T.StructType:
    """See `history.versions`."""
    return struct(table_columns.history_columns(table_schema))


def version_actions(table_schema: TableSchema) -> T.StructType:
    """See `history.actions`."""
    return struct(table_columns.history_columns(table_schema), **{ACTION: _TEXT})


def replica_rows(table_schema: TableSchema) -> T.StructType:
    return struct(table_columns.replica_columns(table_schema))


def _gddl(table_schema: TableSchema) -> T.DataType:
    return spark_type(table_schema.gddl_type)
