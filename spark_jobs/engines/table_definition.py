"""What a Delta table should be, the same whichever engine makes it so."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import RunWarning
from airflow_gddl.contract.spec import TierSpec
from spark_jobs.engines import skipping, table_columns
from spark_jobs.plan.columns import Column
from spark_jobs.plan.table_schema import GDDL, TableSchema
from spark_jobs.plan.types import SqlType, StructType, parse_type, parts
from spark_jobs.rules.errors_table import COLUMNS

STATISTICS = "gddl.statistics"
"""`complete`: the log has statistics of each indexed column for every file. Tables of earlier releases lack it."""
TIMESTAMPS = "gddl.timestamps"
"""`microseconds`: no file holds timestamps as INT96."""
CURRENT: Mapping[str, str] = {STATISTICS: "complete", TIMESTAMPS: "microseconds"}


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """Attributes:
    first: columns whose statistics are wanted wherever they stand in a wide table.
    properties: those that the metadata asks for.
    fixed: those that hold from the creation on.
    """

    path: str
    columns: tuple[Column, ...]
    first: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def created_with(self) -> dict[str, str]:
        return {**self.skipping, **CURRENT, **self.fixed, **self.properties}

    @property
    def skipping(self) -> dict[str, str]:
        """The property that names the indexed columns; empty where the metadata itself says which they are."""
        asked = {name.lower() for name in self.properties}
        if asked & {skipping.COLUMNS.lower(), skipping.COUNT.lower()}:
            return {}
        return {skipping.COLUMNS: skipping.skipping_columns(self.columns, (*self.first, *self.cluster_by))}


def in_stored_order(definition: TableDefinition, stored: Sequence[str]) -> tuple[Column, ...]:
    """The definition's columns in the order that a table has; new ones at the end."""
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
    """Change table, replica, and history where the table keeps one."""
    found = [changes(schema, layout.changes, tier), replica(schema, layout.replica, tier)]
    return (*found, history(schema, layout.history, tier)) if schema.spec.history else tuple(found)


def changes(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = table_columns.change_columns(schema)
    return TableDefinition(path=path, columns=columns, first=(*schema.keys, GDDL), fixed=_fixed(tier))


def replica(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    return TableDefinition(
        path=path,
        columns=table_columns.replica_columns(schema),
        first=schema.keys,
        cluster_by=schema.spec.cluster_by,
        properties=schema.spec.table_properties,
        fixed=_fixed(tier),
    )


def history(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = table_columns.history_columns(schema)
    return TableDefinition(path=path, columns=columns, first=schema.keys, fixed=_fixed(tier))


def tombstones(schema: TableSchema, path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=table_columns.tombstone_columns(schema), first=(*schema.keys, GDDL))


def errors(path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=tuple(Column(n, parse_type(k)) for n, k in COLUMNS.items()))


def completed(files: int) -> RunWarning:
    message = "files of an earlier release lacked statistics that filtered reads need; they have them now"
    return RunWarning(code="STATISTICS_COMPLETED", message=message, count=files)


def _fixed(tier: TierSpec) -> dict[str, str]:
    return {"delta.enableDeletionVectors": str(tier.deletion_vectors).lower()}
