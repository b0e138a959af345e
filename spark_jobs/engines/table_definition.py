"""Desired state of a Delta table, for all engines."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import SqlType, StructType, parts
from spark_jobs.engines import skipping, table_columns
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.rules import error_rows
from spark_jobs.rules.changes import change_columns
from spark_jobs.rules.history import END, START

CLUSTER_BY = "gddl.clusterBy"
"""JSON list of the columns by which engine `delta_rs` sorts the rows of each file; Spark has liquid clustering."""
STATISTICS = "gddl.statistics"
"""`complete`: the log has statistics of each indexed column for every file. Tables of earlier releases lack it."""
TIMESTAMPS = "gddl.timestamps"
"""`microseconds`: no file holds timestamps as INT96."""
CURRENT: Mapping[str, str] = {STATISTICS: "complete", TIMESTAMPS: "microseconds"}


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """Attributes:
    first: columns to index at any position of a wide table.
    partition_by: partition columns; set at creation only.
    properties: properties set in the metadata.
    fixed: properties set at creation only.
    description: of the table; empty: keep the current one.
    descriptions: column, ignoring case, to its comment; others keep theirs.
    """

    path: str
    columns: tuple[Column, ...]
    first: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)
    description: str = ""
    descriptions: Mapping[str, str] = field(default_factory=dict)

    @property
    def created_with(self) -> dict[str, str]:
        return {**self.skipping, **CURRENT, **self.fixed, **self.properties}

    @property
    def bounds(self) -> tuple[str, ...]:
        """Columns of a history that are typed like the sequence; empty for other tables."""
        return tuple(column.name for column in self.columns if column.name in (START, END))

    @property
    def ordering(self) -> dict[str, str]:
        """The property of the columns to order rows by; empty without any."""
        return {CLUSTER_BY: json.dumps(self.cluster_by)} if self.cluster_by else {}

    @property
    def skipping(self) -> dict[str, str]:
        """The property of the indexed columns; empty if the metadata sets it."""
        asked = {name.lower() for name in self.properties}
        if asked & {skipping.COLUMNS.lower(), skipping.COUNT.lower()}:
            return {}
        kept = [
            column for column in self.columns if column.name not in self.partition_by
        ]  # Delta refuses other columns
        first = dict.fromkeys((*self.first, *self.cluster_by))
        return {skipping.COLUMNS: skipping.skipping_columns(kept, [n for n in first if n not in self.partition_by])}


def new_comments(definition: TableDefinition, stored: Mapping[str, str]) -> dict[str, str]:
    """Comments of columns that differ from the definition.

    Args:
        stored: every column of the table to its comment; empty: none.
    """
    wanted = {name.lower(): text for name, text in definition.descriptions.items() if text}
    return {name: wanted[name.lower()] for name, has in stored.items() if wanted.get(name.lower(), has) != has}


def in_stored_order(definition: TableDefinition, stored: Sequence[str]) -> tuple[Column, ...]:
    """The definition's columns in a table's order; new ones at the end."""
    wanted = {c.name: c for c in definition.columns}
    return tuple(wanted[n] for n in (*(n for n in stored if n in wanted), *(n for n in wanted if n not in stored)))


def marks_deletes(kind: SqlType | None) -> bool:
    """Whether a type of `_gddl` has the mark of deleted rows."""
    return isinstance(kind, StructType) and kind.field("deleted") is not None


def has_microseconds(properties: Mapping[str, str | None], columns: Sequence[Column]) -> bool:
    """Whether no file of the table can hold timestamps as INT96."""
    kinds = {str(part) for column in columns for part in parts(column.type)}
    return properties.get(TIMESTAMPS) == CURRENT[TIMESTAMPS] or not kinds & {"timestamp", "timestamp_ntz"}


def definitions(schema: TableSchema, layout: Layout, tier: TierSpec) -> tuple[TableDefinition, ...]:
    """Change table, replica, and history if the table has one."""
    found = [changes(schema, layout.changes, tier), replica(schema, layout.replica, tier)]
    return (*found, history(schema, layout.history, tier)) if schema.spec.history else tuple(found)


def changes(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = change_columns(schema)
    return TableDefinition(path=path, columns=columns, first=(*schema.keys, GDDL), fixed=_fixed(tier))


def replica(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    return TableDefinition(
        path=path,
        columns=table_columns.replica_columns(schema),
        first=schema.keys,
        cluster_by=schema.named(schema.spec.cluster_by),
        partition_by=schema.named(schema.spec.partition_by),
        properties=schema.spec.table_properties,
        fixed=_fixed(tier),
        description=schema.spec.description or "",
        descriptions=schema.spec.column_descriptions,
    )


def history(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = table_columns.history_columns(schema)
    described = schema.spec.column_descriptions
    return TableDefinition(path=path, columns=columns, first=schema.keys, fixed=_fixed(tier), descriptions=described)


def tombstones(schema: TableSchema, path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=table_columns.tombstone_columns(schema), first=(*schema.keys, GDDL))


def errors(path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=error_rows.TABLE)


def completed(files: int) -> RunWarning:
    message = "files of an earlier release lacked statistics that filtered reads need; they were added"
    return RunWarning(code="STATISTICS_COMPLETED", message=message, count=files)


def _fixed(tier: TierSpec) -> dict[str, str]:
    return {"delta.enableDeletionVectors": str(tier.deletion_vectors).lower()}
