"""Desired state of a Delta table: its columns, properties, and columns with statistics."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress

from airflow_gddl.contract.features import properties_of, with_properties
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import (
    DecimalType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    is_complex,
    parse_type,
    quoted,
)
from spark_jobs.plan.table_schema import EVENT_FIELDS, GDDL, Column, TableSchema
from spark_jobs.rules import quarantine
from spark_jobs.rules.fold import FORCED
from spark_jobs.rules.history import END, END_GENERATION, START, START_GENERATION, TIMES
from spark_jobs.rules.stored_columns import data_columns, event_columns, gddl_column

COLUMNS = "delta.dataSkippingStatsColumns"
COUNT = "delta.dataSkippingNumIndexedCols"
MOST = 32
"""Delta's default; more columns would lengthen the log and help few readers."""
_PLAIN_SCALE = 6
"""Java writes no decimal of this scale or a lower one with an exponent."""
ColumnPath = tuple[str, ...]

_EXACT = {"tinyint", "smallint", "int", "bigint", "date", "timestamp", "timestamp_ntz", "string"}
_PART = re.compile(r"\s*(?:`((?:[^`]|``)+)`|([^`.,]+))\s*")


def skipping_columns(columns: Sequence[Column], first: Sequence[str] = ()) -> str:
    """The property's value for a new table.

    Args:
        columns: of the table, in order.
        first: columns to index at any position of a wide table; `_gddl` is excluded unless listed here.
    """
    kinds = {c.name: c.type for c in columns}
    others = [c.name for c in columns if c.name != GDDL and c.name not in first]
    chosen: list[ColumnPath] = []
    for name in (*first, *others):
        leaves = _leaves([Column(name, kinds[name])])
        fits = name in first or len(chosen) + len(leaves) <= MOST
        if fits and (name == GDDL or all(_is_exact(kind) for _, kind in leaves)):
            chosen += (path for path, kind in leaves if not is_complex(kind))  # which Delta refuses
    return ",".join(_text(path) for path in dict.fromkeys(chosen))


def indexed_columns(columns: Sequence[Column], properties: Mapping[str, str | None]) -> tuple[ColumnPath, ...]:
    """Paths of the columns that a table's properties index, structs as their fields."""
    leaves = [leaf for leaf, _ in _leaves(columns)]
    named = properties.get(COLUMNS)
    if named is None:
        count = int(properties.get(COUNT) or MOST)
        return tuple(leaves if count < 0 else leaves[:count])
    wanted = names_of(named)
    return tuple(compress(leaves, (not wanted.isdisjoint(paths) for paths in _with_structs(leaves))))


@functools.lru_cache(maxsize=512)
def names_of(text: str) -> frozenset[ColumnPath]:
    """Columns that a value of the property names, in lower case."""
    return frozenset(_folded(path) for path in _paths(text))


def restricted(named: str, columns: Sequence[Column]) -> str:
    """A value of the property without unknown columns."""
    there = set(chain.from_iterable(_with_structs(leaf for leaf, _ in _leaves(columns))))
    return ",".join(_text(path) for path in _paths(named) if _folded(path) in there)


def readable(named: str, columns: Sequence[Column]) -> str:
    """A value of the property without columns whose bounds some reader can't read; `_gddl` stays whole."""
    bad = {
        column.name.lower()
        for column in columns
        if column.name != GDDL and not all(_is_exact(kind) for _, kind in _leaves([column]))
    }
    return ",".join(_text(path) for path in _paths(named) if path[0].lower() not in bad)


def _is_exact(kind: SqlType) -> bool:
    if isinstance(kind, DecimalType):
        return kind.scale <= _PLAIN_SCALE
    return isinstance(kind, ScalarType) and kind.name in _EXACT


def _leaves(columns: Sequence[Column | StructField], above: ColumnPath = ()) -> list[tuple[ColumnPath, SqlType]]:
    """Columns and, instead of structs, their fields, with their types."""
    leaves: list[tuple[ColumnPath, SqlType]] = []
    for column in columns:
        path, kind = (*above, column.name), column.type
        leaves += _leaves(kind.fields, path) if isinstance(kind, StructType) else [(path, kind)]
    return leaves


def _folded(path: ColumnPath) -> ColumnPath:
    """Names are compared without regard to case."""
    return tuple(part.lower() for part in path)


def _with_structs(leaves: Iterable[ColumnPath]) -> Iterator[list[ColumnPath]]:
    """Each leaf with all structs that it is in, without regard to case."""
    for leaf in leaves:
        path = tuple(map(str.lower, leaf))
        yield [path[:n] for n in range(1, len(path) + 1)]


def _text(path: ColumnPath) -> str:
    return ".".join(map(quoted, path))


def _paths(text: str) -> Iterator[ColumnPath]:
    """Names between commas, their parts between dots; either may be in backticks."""
    path: list[str] = []
    at = 0
    while match := _PART.match(text, at):
        path.append(match[1].replace("``", "`") if match[1] else match[2].strip())
        at = match.end()
        if text[at : at + 1] != ".":
            yield tuple(path)
            path = []
        at += 1


def replica_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    deleted = ",deleted:boolean" if table_schema.spec.delete == "soft" else ""
    return (*data_columns(table_schema), Column(GDDL, parse_type(table_schema.gddl_type[:-1] + deleted + ">")))


def tombstone_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    """Keys, the delete's `_gddl`, and under `force_update` whether it was forced."""
    columns = {c.name: c for c in table_schema.data}
    forced = (Column(FORCED, ScalarType("boolean")),) if table_schema.forces else ()
    return (*(columns[key] for key in table_schema.keys), gddl_column(table_schema), *forced)


def history_columns(table_schema: TableSchema) -> tuple[Column, ...]:
    kind, number = parse_type(table_schema.sequence_type), ScalarType("int")
    bounds = {START: kind, END: kind, START_GENERATION: number, END_GENERATION: number}
    bounds |= dict.fromkeys(TIMES, ScalarType("timestamp"))
    return (*data_columns(table_schema), gddl_column(table_schema), *(Column(n, k) for n, k in bounds.items()))


WITH_VECTORS = "delta.enableDeletionVectors"
CLUSTER_BY = "gddl.clusterBy"
"""JSON list of the columns by which the rows of each file are sorted with `tasks: one`; Spark has liquid clustering."""


@dataclass(frozen=True, kw_only=True)
class TableDefinition:
    """What a Delta table is created with.

    Attributes:
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
        return {**self.skipping, **self.fixed, **self.properties}

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
        names = {name.lower() for name in self.properties}
        if names & {COLUMNS.lower(), COUNT.lower()}:
            return {}
        kept = [
            column for column in self.columns if column.name not in self.partition_by
        ]  # Delta refuses other columns
        first = dict.fromkeys((*self.first, *self.cluster_by))
        return {COLUMNS: skipping_columns(kept, [n for n in first if n not in self.partition_by])}


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


def tells_events(columns: Sequence[Column]) -> bool:
    """Whether `_gddl` of a table's columns has `EVENT_FIELDS`."""
    kind = next((column.type for column in columns if column.name == GDDL), None)
    return isinstance(kind, StructType) and all(kind.field(name) is not None for name, _ in EVENT_FIELDS)


def definitions(schema: TableSchema, layout: Layout, tier: TierSpec) -> tuple[TableDefinition, ...]:
    """Change table, replica, and history if the table has one."""
    tables = [changes(schema, layout.changes, tier), replica(schema, layout.replica, tier)]
    return (*tables, history(schema, layout.history, tier)) if schema.spec.history else tuple(tables)


def changes(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = event_columns(schema)
    return TableDefinition(path=path, columns=columns, first=(*schema.keys, GDDL), fixed=_fixed(tier))


def replica(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    return TableDefinition(
        path=path,
        columns=replica_columns(schema),
        first=schema.keys,
        cluster_by=schema.named(schema.spec.cluster_by),
        partition_by=schema.named(schema.spec.partition_by),
        properties=with_properties(schema.spec).table_properties,
        fixed=_fixed(tier),
        description=schema.spec.description or "",
        descriptions=schema.spec.column_descriptions,
    )


def history(schema: TableSchema, path: str, tier: TierSpec) -> TableDefinition:
    columns = history_columns(schema)
    described = schema.spec.column_descriptions
    return TableDefinition(
        path=path, columns=columns, first=schema.keys, properties=properties_of(schema.spec, "history"),
        fixed=_fixed(tier), descriptions=described,
    )  # fmt: skip


def tombstones(schema: TableSchema, path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=tombstone_columns(schema), first=(*schema.keys, GDDL))


def errors(path: str) -> TableDefinition:
    return TableDefinition(path=path, columns=quarantine.TABLE)


def _fixed(tier: TierSpec) -> dict[str, str]:
    return {WITH_VECTORS: str(tier.deletion_vectors).lower()}
