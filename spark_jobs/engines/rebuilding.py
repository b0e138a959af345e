"""The swap of a full refresh in every engine: the order of its steps, and which change tables it can keep."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from airflow_gddl.contract.sql_types import StructType
from spark_jobs.engines.base import RebuildRequest, RebuildWork
from spark_jobs.plan.columns import Column
from spark_jobs.plan.merging import NOTHING, merge
from spark_jobs.plan.table_schema import GDDL
from spark_jobs.rules.changes import change_columns
from spark_jobs.rules.figures import Rebuilt, Replaced

S = TypeVar("S")
_COMPARED = 5_000_000
"""Rows of the replica up to which keys are compared in the memory of the job."""


class RebuildSteps(Protocol[S]):
    """Steps of a swap, one Delta commit each. `S`: type of the changes from which tables are derived."""

    @property
    def order(self) -> RebuildRequest: ...

    def changes(self) -> int:
        """Update the change table from the files; returns the number of added changes."""
        ...

    def source(self) -> S:
        """Changes from which tables are derived; called after `changes`."""
        ...

    def tombstones(self, source: S) -> None: ...

    def replica(self, source: S) -> int:
        """Replace the replica; returns its number of rows."""
        ...

    def history(self, source: S) -> None: ...

    def errors(self) -> None:
        """Replace the quarantined rows of the files by the current ones."""
        ...


def swap(steps: RebuildSteps[S], report: Callable[[str], None]) -> Rebuilt:
    """See `Engine.swap`."""
    schema = steps.order.table_schema
    added = steps.changes()
    report("append")
    source = steps.source()
    if schema.keys:
        steps.tombstones(source)
        report("tombstones")
    rows = steps.replica(source)
    report("merge")
    if schema.spec.history and schema.keys:
        steps.history(source)
        report("history")
    steps.errors()
    report("quarantine")
    return Rebuilt(rows=rows, changes_added=added)


def compared(work: RebuildWork, order: RebuildRequest, columns: Sequence[str] | None) -> Replaced:
    """See `RebuildWork.compared`: by hashes of all rows in this process, and keys up to `_COMPARED` rows."""
    first, keys = order.table_schema.columns[:1], order.table_schema.keys
    if columns is None:
        return Replaced(rows=sum(1 for _ in work.rows(first)))
    live = order.live
    before = sum(1 for _ in live.engine.live_rows(live, columns[:1]))
    if not keys or before > _COMPARED:
        return Replaced(rows=sum(1 for _ in work.rows(first)), rows_before=before)
    old, new = _hashed(live.engine.live_rows(live, columns), len(keys)), _hashed(work.rows(columns), len(keys))
    return Replaced(
        rows=len(new), rows_before=before, appear=len(new.keys() - old.keys()),
        vanish=len(old.keys() - new.keys()), change=sum(old[k] != new[k] for k in old.keys() & new.keys()),
    )  # fmt: skip


def _hashed(rows: Iterable[Sequence[Any]], keys: int) -> dict[tuple[Any, ...], bytes]:
    return {tuple(row[:keys]): hashlib.blake2b(repr(row[keys:]).encode(), digest_size=8).digest() for row in rows}


def keeps_changes(order: RebuildRequest, stored: Sequence[Column]) -> bool:
    """Whether a change table with these columns, `_gddl` included, can also hold the rebuilt changes."""
    if order.resequenced or order.reselected:
        return False
    kept = {column.name.lower(): column.type for column in stored}
    for column in change_columns(order.table_schema):
        kind = kept.get(column.name.lower())
        if kind is None:
            continue
        if column.name == GDDL and isinstance(kind, StructType) and isinstance(column.type, StructType):
            if kind.field("sequence") != column.type.field("sequence"):
                return False
        elif merge(column.type, kind, NOTHING) is None:
            return False
    return True
