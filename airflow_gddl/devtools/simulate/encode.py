"""Rows as files bring them: `Op`, the source's columns, the service's own columns, before images."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.types as pt

from airflow_gddl.devtools.simulate.changes import SimulatedChange
from airflow_gddl.devtools.simulate.columns import SimulatedColumn, SimulatedColumns
from airflow_gddl.devtools.simulate.source import TIMESTAMP
from airflow_gddl.devtools.simulate.spec import Delivery, TimeForm

NOT_A_VALUE = "not-a-value"
_OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


@dataclass(frozen=True)
class Encoder:
    """Turns rows into the table that a file holds.

    Attributes:
        columns: as of the round.
        unfit: column whose values are text that fits no other type; null: none.
    """

    delivery: Delivery
    columns: SimulatedColumns
    unfit: SimulatedColumn | None = None

    def changes(self, rows: Sequence[SimulatedChange]) -> pa.Table:
        named: dict[str, pa.Array] = {"Op": pa.array([row.op for row in rows], pa.string())}
        for column in self.columns.live:
            named[column.delivered] = self._source(column, [row.row.get(column.name) for row in rows])
        named |= self._service([(row.op, row.sequence, row.commit) for row in rows])
        if self.delivery.columns_to_update:
            named[self.delivery.columns_to_update] = pa.array([self._carried(row) for row in rows], pa.string())
        for column in self.columns.live if self.delivery.before_images else ():
            before = [row.before.get(column.name) if row.before else None for row in rows]
            named[f"{self.delivery.before_images}{column.delivered}"] = self._source(column, before)
        return pa.table(named)

    def load(self, rows: pa.Table, moment: datetime) -> pa.Table:
        """A full load: without sequences, every row committed at `moment`."""
        count = rows.num_rows
        operation = {"Op": pa.repeat(pa.scalar("I"), count)} if self.delivery.include_op_for_full_load else {}
        named: dict[str, pa.Array | pa.ChunkedArray] = {**operation}
        for column in self.columns.live:
            named[column.delivered] = self._written(rows[column.name], self.delivery.source_times)
        empty = "" if self.delivery.full_load_sequence == "empty" else None
        one = self._service([("I", empty, moment)])
        named |= {name: pa.repeat(values[0], count) for name, values in one.items()}
        if self.delivery.columns_to_update:
            named[self.delivery.columns_to_update] = pa.nulls(count, pa.string())
        for column in self.columns.live if self.delivery.before_images else ():
            kind = named[column.delivered].type
            named[f"{self.delivery.before_images}{column.delivered}"] = pa.nulls(count, kind)
        return pa.table(named)

    def _service(self, rows: Sequence[tuple[str, str | None, datetime]]) -> dict[str, pa.Array]:
        sequences = pa.array([sequence for _, sequence, _ in rows], pa.string())
        commits = pa.array([commit for _, _, commit in rows], TIMESTAMP)
        named = {
            self.delivery.sequence_column: sequences,
            self.delivery.timestamp_column: self._written(commits, self.delivery.commit_times),
        }
        if self.delivery.ar_h_columns:
            positions = [f"{int(commit.timestamp()):08x}.00000001" for _, _, commit in rows]
            named["AR_H_CHANGE_SEQ"] = sequences
            named["AR_H_OPERATION"] = pa.array([_OPERATIONS.get(op, op) for op, _, _ in rows], pa.string())
            named["AR_H_STREAM_POSITION"] = pa.array(positions, pa.string())
            named["AR_H_COMMIT_TIMESTAMP"] = named[self.delivery.timestamp_column]
        return named

    def _carried(self, row: SimulatedChange) -> str | None:
        by_name = {column.name: column.delivered for column in self.columns.live}
        return None if row.carried is None else ",".join(by_name[name] for name in row.carried)

    def _source(self, column: SimulatedColumn, values: list[object]) -> pa.Array:
        if self.unfit is not None and column.name == self.unfit.name:
            return pa.array([None if value is None else NOT_A_VALUE for value in values], pa.string())
        return self._written(pa.array(values, column.type), self.delivery.source_times)

    def _written(self, values: pa.Array, times: TimeForm) -> pa.Array:
        csv = self.delivery.format.startswith("csv")
        if pt.is_timestamp(values.type):
            return _time(values, "string" if csv and times == "us" else times, csv=csv)
        if pt.is_boolean(values.type) and self.delivery.booleans_as_strings:
            return values.cast(pa.string())
        return _as_text(values) if csv and (pt.is_nested(values.type) or pt.is_binary(values.type)) else values


def _time(values: pa.Array, form: TimeForm, *, csv: bool) -> pa.Array:
    if form == "us":
        return values
    # Without its zone a time is written as `2024-01-31 12:00:00.000000`, the way the service does.
    if form == "string":
        return values.cast(pa.timestamp("us")).cast(pa.string())
    rounded = values.cast(pa.timestamp("ms", "UTC"), safe=False)
    return rounded.cast(pa.timestamp("ms")).cast(pa.string()) if csv else rounded


def _as_text(values: pa.Array) -> pa.Array:
    def one(value: object) -> str | None:
        if value is None:
            return None
        return value.hex() if isinstance(value, bytes) else json.dumps(value, default=str, ensure_ascii=False)

    return pa.array([one(value) for value in values.to_pylist()], pa.string())
