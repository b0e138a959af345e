"""The printed refusal of a schema: what differs, both schemas in full, and which policy would let it pass."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.sql_types import SqlType
from spark_jobs.plan.columns import Column, IncomingSchema, Schema
from spark_jobs.plan.merging import Path, dotted

Policy = Literal["new_column", "type_change", "dropped_column"]
_REMEDIES: dict[Policy, str] = {
    "new_column": "add, rescue or ignore",
    "type_change": "widen or rescue",
    "dropped_column": "keep or null",
}


@dataclass(frozen=True)
class FieldDifference:
    """A field that a policy of `fail` refuses.

    Attributes:
        policy: the field of `schema_evolution` that refuses it.
        table: type in the table, or of a new column by another file of the batch; null when the table lacks the field.
        incoming: type in the file; null when the file lacks it.
    """

    policy: Policy
    group: IncomingSchema
    path: Path
    table: SqlType | None
    incoming: SqlType | None

    def __str__(self) -> str:
        table, incoming = self.table or "missing", self.incoming or "missing"
        return f"{dotted(self.path)}: table {table}, file {incoming} ({self.policy}: fail)"


def refusal(table: Schema | None, differences: tuple[FieldDifference, ...]) -> FatalError:
    """`SCHEMA_REFUSED` for one or more differences; `table` is the schema before the batch, null when there is none."""
    groups = list(dict.fromkeys(d.group for d in differences))
    blocks = [_block("schema of the table", table.columns if table else None)]
    for group in groups:
        blocks.append(_block(f"schema of {group.label}", group.columns))
        blocks.append("differing fields:\n" + _lines(d for d in differences if d.group == group))
    policies = dict.fromkeys(d.policy for d in differences)
    settings = "; ".join(f"set schema_evolution.{policy} to {_REMEDIES[policy]}" for policy in policies)
    return FatalError(
        "SCHEMA_REFUSED",
        "the schema of the files is not the table's\n" + "\n".join(blocks) + "\nnothing was written",
        where=", ".join(group.label for group in groups),
        remedy=f"{settings}; or correct the source",
    )


def _block(title: str, columns: tuple[Column, ...] | None) -> str:
    return f"{title}:\n" + (_lines(columns) if columns else "  (no table yet)" if columns is None else "  (no columns)")


def _lines(items: Iterable[object]) -> str:
    return "\n".join(f"  {item}" for item in items)
