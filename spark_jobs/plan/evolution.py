"""The columns a table has after a batch, and what that changes in it."""

from __future__ import annotations

from airflow_gddl.contract.sql_types import unsupported_part, without_void
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.columns import Column, LandedColumn, LandedGroup, Schema
from spark_jobs.plan.merging import Addition, Allowed, Widening, extra_fields, merge, widenings


def evolve(table: Schema | None, groups: tuple[LandedGroup, ...], policy: SchemaEvolution) -> Schema:
    """The target, which a policy of `fail` leaves unchanged; `enforcement.refuse` checks the remaining differences."""
    target = {column.name.lower(): column for column in table.columns} if table else {}
    old = frozenset(target)
    for column in (column for group in groups for column in group.columns):
        name = column.name.lower()
        if name in target:
            new = name not in old
            allowed = Allowed(add=new or policy.new_column == "add", widen=new or policy.type_change == "widen")
            merged = merge(target[name].type, column.type, allowed)
            target[name] = Column(target[name].name, merged or target[name].type)
        elif _is_taken(table, column, policy):
            kind = without_void(column.type)
            target |= {name: Column(column.name, kind)} if kind is not None else {}
    return Schema(tuple(target.values()))


def _is_taken(table: Schema | None, column: LandedColumn, policy: SchemaEvolution) -> bool:
    if table is None and unsupported_part(column.type) is not None:
        return policy.new_column in ("add", "fail")
    return table is None or policy.new_column == "add"


def added(table: Schema, target: Schema) -> list[Addition]:
    """Columns and nested fields that the target has beyond the table, in the target's order."""
    found: list[Addition] = []
    for column in target.columns:
        before = table.column(column.name)
        if before is None:
            found.append(Addition((column.name,), column.type))
        else:
            found += extra_fields(before.type, column.type, (column.name,))
    return found


def widened(table: Schema, target: Schema) -> list[Widening]:
    """Columns and nested parts of the table that have another type in the target, in the table's order."""
    pairs = zip(table.columns, target.columns, strict=False)  # the target begins with the table's columns
    return [grown for before, after in pairs for grown in widenings(before.type, after.type, (before.name,))]
