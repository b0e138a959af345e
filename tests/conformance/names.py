"""Names of tables and columns that meet those of the tools' own parts, of a reader or of Delta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Literal

from tests.conformance.history import Change, Column, History, Row, Step

Names = Literal["plain", "envelope", "technical"]
NAMES: tuple[Names, ...] = ("plain", "envelope", "technical")
_TABLES = ("message", "heartbeat", "transaction", "schema_changes")
_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "envelope": (
        "op", "before", "after", "source", "payload", "schema", "ts_ms", "ts_us", "ts_ns", "transaction", "value",
        "key", "offset", "message", "heartbeat", "topic", "partition", "timestamp", "headers", "snapshot", "lsn",
        "table",
    ),
    "technical": (
        "_gddl", "_rescued_data", "_metadata", "_change_type", "_commit_version", "_commit_timestamp", "__debezium",
        "__v", "__debezium_unavailable_value", "_dbz_ops", "__index_level_0__", "_c0", "_gddl_seq", "__heartbeat",
        "__message", "__topic", "__key", "__offset", "__gddl", "deleted", "generation", "seq",
    ),
}  # fmt: skip
"""Without `__op`, `__deleted` and `__source_…`: the transform that adds them fails where a column has such a name."""
_TAKEN: Mapping[str, tuple[str, ...]] = {"dms": ("op",)}
"""No page of DMS says what it writes beside its own column `Op`."""
_KEPT = ("id", "code", "part", "note")
"""The key, and the large text that some settings name."""


def with_names(history: History, names: Names, writer: str, seed: str) -> History:
    """The history of a table whose name, and those of its columns, are drawn from such names."""
    if names == "plain":
        return history
    random = Random(seed)  # noqa: S311 - no secret
    old = dict.fromkeys(column.name for columns in (history.columns, history.last_columns) for column in columns)
    free = [name for name in _COLUMNS[names] if name not in _TAKEN.get(writer, ())]
    renamed = [name for name in old if name not in _KEPT]
    after = dict(zip(renamed, random.sample(free, len(renamed)), strict=True))
    found = _Renamed(after)
    return replace(
        history, columns=found.columns(history.columns), loaded=tuple(map(found.row, history.loaded)),
        steps=tuple(map(found.step, history.steps)), table=random.choice(_TABLES),
    )  # fmt: skip


class _Renamed:
    def __init__(self, after: Mapping[str, str]) -> None:
        self.after = after

    def columns(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(replace(column, name=self.after.get(column.name, column.name)) for column in columns)

    def row(self, row: Row) -> Row:
        return {self.after.get(name, name): value for name, value in row.items()}

    def step(self, step: Step) -> Step:
        rows, changes = tuple(map(self.row, step.rows)), tuple(map(self.change, step.changes))
        return replace(step, columns=self.columns(step.columns), rows=rows, changes=changes)

    def change(self, change: Change) -> Change:
        before = None if change.before is None else self.row(change.before)
        return replace(change, before=before, after=None if change.after is None else self.row(change.after))
