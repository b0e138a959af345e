"""The columns a table has after a batch, and what that changes in it."""

from __future__ import annotations

from collections.abc import Collection

from airflow_gddl.contract.sql_types import ScalarType, SqlType, unsupported_part, without_void
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.columns import Column, LandedColumn, LandedGroup, Schema
from spark_jobs.plan.conversion import convertible
from spark_jobs.plan.merging import NOTHING, Addition, Allowed, Widening, extra_fields, merge, widenings

STRING = ScalarType("string")


def evolve(
    table: Schema | None,
    groups: tuple[LandedGroup, ...],
    policy: SchemaEvolution,
    texts: Collection[str] = (),
    fixed: Collection[str] = (),
    live: Schema | None = None,
) -> Schema:
    """The target, which a policy of `fail` leaves unchanged; `enforcement.refuse` checks the remaining differences.

    Args:
        texts: columns, in lower case, that the row declares to be text: they become it whatever the policy.
        fixed: columns, in lower case, that never become text: those that the replica is partitioned by.
        live: the columns that the table is to replace, with which policies compare what comes; null: there are none.
    """
    target = {column.name.lower(): column for column in table.columns} if table else {}
    old = frozenset(target)
    for column in (column for group in groups for column in group.columns):
        name = column.name.lower()
        if name in target:
            new = name not in old or _is_held(live, column)
            widen = new or policy.type_change in ("widen", "text")
            merged = merge(target[name].type, column.type, Allowed(add=new or policy.new_column == "add", widen=widen))
            asked = name not in fixed and (policy.type_change == "text" or name in texts or _is_text(live, name))
            if merged is None and asked and _may_become_text(target[name].type, column.type):
                merged = STRING
            target[name] = Column(target[name].name, merged or target[name].type)
        elif _is_taken(table, column, policy, live):
            kind = without_void(column.type)
            target |= {name: Column(column.name, kind)} if kind is not None else {}
    return Schema(tuple(target.values()))


def _may_become_text(stored: SqlType, incoming: SqlType) -> bool:
    """Whether text holds all values of both types. Bytes are no text."""
    return all(str(kind) != "binary" and convertible(kind, STRING) for kind in (stored, incoming))


def _is_held(live: Schema | None, column: LandedColumn) -> bool:
    """Whether a live table's column holds all values of one that comes, so that it is no change of the source."""
    known = None if live is None else live.column(column.name)
    return known is not None and merge(known.type, column.type, NOTHING) is not None


def _is_text(live: Schema | None, name: str) -> bool:
    known = None if live is None else live.column(name)
    return known is not None and known.type == STRING


def _is_taken(table: Schema | None, column: LandedColumn, policy: SchemaEvolution, live: Schema | None) -> bool:
    if live is not None:
        return live.column(column.name) is not None or policy.new_column == "add"
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
