"""A group of a batch's files with equal columns: which of these reach a table, of what types, and how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from airflow_gddl.contract.names import before_image_name, is_before_image, landed_name
from airflow_gddl.contract.spec import SubMicrosecondPolicy
from airflow_gddl.contract.sql_types import VOID, SqlType, parse_type
from airflow_gddl.contract.table_spec import HASHED, MaskMethod, lowered
from spark_jobs.plan.schema_evolution import STRING, ColumnAction, GroupPlan
from spark_jobs.plan.table_schema import Column, ColumnSelection, select_columns
from spark_jobs.rooms.dialects.protocol import Dialect, declared_types, match

_UNPLANNED = GroupPlan(actions=())


@dataclass(frozen=True, kw_only=True)
class FileGroup:
    """Files with equal columns, or records of the quarantine; planned, all that turns their rows into changes.

    Attributes:
        kind: `load` or `change`; `export`: a file of a snapshot, which has no column of operations.
        columns: (name, SQL type) of the files' columns.
        label: path of one of the files, for messages.
        only_deletes: see `LandedGroup`; `is_blank`, `stated`, `prepared`, `unavailable`: see `Probed`.
        plan: how delivered columns reach the table; `before` the same for before images.
        schema_id: index into the ledger's schemas.
        withheld: columns of the file that no table may hold, the errors table included.
    """

    kind: str
    columns: tuple[tuple[str, str], ...]
    label: str
    dialect: Dialect
    only_deletes: bool = False
    is_blank: bool = False
    stated: tuple[tuple[str, str], ...] = ()
    prepared: bool = False
    unavailable: tuple[str, ...] = ()
    plan: GroupPlan = _UNPLANNED
    before: GroupPlan = _UNPLANNED
    schema_id: int = 0
    withheld: frozenset[str] = frozenset()

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(name for name, _ in self.columns)

    @cached_property
    def types(self) -> Mapping[str, SqlType]:
        return {name: parse_type(kind) for name, kind in self.columns}

    @cached_property
    def declared(self) -> Mapping[str, str]:
        """Columns whose values have another type than the file's, by its own schema or by the row."""
        return dict(self.stated) | declared_types(dict(self.columns), self.dialect)

    @cached_property
    def operations(self) -> str | None:
        """The column of operations; null when there is none. Where files may lack it (full loads, changes that are all
        inserts), it comes first if it has a name of another case: elsewhere that is a column of the source.
        """
        found = None if self.kind == "export" else match(self.names, self.dialect.op_column)
        may_lack = self.kind == "load" or self.dialect.missing_op == "insert"
        is_data = may_lack and found not in (self.dialect.op_column, *self.names[:1])
        return None if is_data else found

    @cached_property
    def selectable(self) -> tuple[str, ...]:
        """Columns that the row's selection concerns: all but that of operations."""
        return tuple(name for name in self.names if name != self.operations)

    @cached_property
    def selection(self) -> ColumnSelection:
        """Columns that reach the lake, and their masks, which are applied before anything is written."""
        return select_columns(self.selectable, self.dialect.spec)

    @cached_property
    def masks(self) -> Mapping[str, MaskMethod]:
        return self.selection.masks

    @cached_property
    def images(self) -> tuple[Column, ...]:
        """Columns of before images that reach the lake, as `type_of` says."""
        prefix = self.dialect.spec.before_image_prefix
        return tuple(Column(n, self.type_of(n)) for n in self.selection.kept if prefix and is_before_image(n, prefix))

    @cached_property
    def data(self) -> tuple[Column, ...]:
        """The others that do."""
        images = {column.name for column in self.images}
        return tuple(Column(name, self.type_of(name)) for name in self.selection.kept if name not in images)

    def type_of(self, name: str) -> SqlType:
        """The type of a column after declarations and masks."""
        kind = self.types[name]
        if self.masks.get(name) in HASHED and kind != VOID:
            return STRING
        return parse_type(self.declared[name]) if name in self.declared else kind

    @property
    def sub_microseconds(self) -> SubMicrosecondPolicy:
        return self.dialect.spec.sub_microseconds

    @cached_property
    def used(self) -> frozenset[str]:
        """Columns of the file that reach a table or order its changes."""
        actions = (*self.plan.actions, *self.before.actions)
        return frozenset({a.source for a in actions if a.source is not None} | {*self.plan.rescued} | self.needed)

    @cached_property
    def needed(self) -> frozenset[str]:
        """Columns of the file that a delete can't do without: key, operation, sequence."""
        spec = self.dialect.spec
        keys = {landed_name(key).lower() for key in spec.keys}
        sources = {a.source for a in self.plan.actions if a.target.name.lower() in keys}
        order = spec.sequence_by or self.dialect.total_order
        technical = {self.operations, *(match(self.names, name) for name in order)}
        return frozenset(name for name in sources | technical if name is not None)

    @cached_property
    def exact(self) -> frozenset[str]:
        """Columns of the table, in lower case, whose values identify rows: keys and their images before."""
        prefix = self.dialect.spec.before_image_prefix
        keys = [landed_name(key) for key in self.dialect.spec.keys]
        images = [] if prefix is None else [before_image_name(prefix, key) for key in keys]
        return lowered([*keys, *images])

    def rescues_text(self, action: ColumnAction) -> bool:
        """Whether texts that are no values of the type that the file's schema states are rescued."""
        column = action.source
        stated = column in dict(self.stated) and column not in declared_types(dict(self.columns), self.dialect)
        return stated and action.misfit == "rescue" and column not in self.masks
