"""Rows with an operation each as Debezium's change events, a line of JSON each."""

from __future__ import annotations

import base64
import gzip
import io
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pyarrow.types as pt

from airflow_gddl.contract.extensions import date_folder
from airflow_gddl.simulate.source import TIMESTAMP, SimulatedChange
from airflow_gddl.simulate.spec import Delivery, TimeForm
from airflow_gddl.simulate.values import SimulatedColumn, SimulatedColumns

_SCALARS = {
    pa.bool_(): "boolean", pa.int8(): "int8", pa.int16(): "int16", pa.int32(): "int32", pa.int64(): "int64",
    pa.float32(): "float", pa.float64(): "double", pa.string(): "string", pa.binary(): "bytes", pa.null(): "string",
}  # fmt: skip
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def schema_of(kind: pa.DataType) -> dict[str, Any]:
    """As PostgreSQL's connector would describe it."""
    kind = _SIGNED.get(kind, kind)
    if kind in _SCALARS:
        schema: dict[str, Any] = {"type": _SCALARS[kind]}
    elif pt.is_date(kind):
        schema = {"type": "int32", "name": "io.debezium.time.Date", "version": 1}
    elif pt.is_timestamp(kind):
        zoned = {"type": "string", "name": "io.debezium.time.ZonedTimestamp"}
        schema = {**(zoned if kind.tz else _LOCAL[kind.unit]), "version": 1}
    elif pt.is_decimal(kind):
        digits = {"scale": str(kind.scale), "connect.decimal.precision": str(kind.precision)}
        name = "org.apache.kafka.connect.data.Decimal"
        schema = {"type": "bytes", "name": name, "version": 1, "parameters": digits}
    elif pt.is_list(kind):
        schema = {"type": "array", "items": schema_of(kind.value_type)}
    else:
        schema = {"type": "struct", "fields": [{"field": f.name, **schema_of(f.type)} for f in kind]}
    return {**schema, "optional": True}


_SIGNED = {pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0)}
_LOCAL: Mapping[str, dict[str, Any]] = {
    "s": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "ms": {"type": "int64", "name": "io.debezium.time.Timestamp"},
    "us": {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
    "ns": {"type": "int64", "name": "io.debezium.time.NanoTimestamp"},
}


def value_of(scalar: pa.Scalar) -> Any:
    """A value as the converter writes it under `schema_of` its type."""
    kind = scalar.type
    if not scalar.is_valid:
        return None
    if pt.is_timestamp(kind):
        return scalar.as_py().isoformat().replace("+00:00", "Z") if kind.tz else _ticks(scalar)
    if pt.is_struct(kind):
        return {name: value_of(part) for name, part in scalar.items()}
    if pt.is_uint64(kind):
        return _plain(Decimal(scalar.as_py()))
    if pt.is_list(kind):
        return [value_of(part) for part in scalar.values]
    return _plain(scalar.as_py())


def _ticks(scalar: pa.Scalar) -> int:
    ticks: int = scalar.value
    return ticks * 1000 if scalar.type.unit == "s" else ticks


def _plain(value: Any) -> Any:
    if isinstance(value, date):
        return (value - _EPOCH.date()).days
    if isinstance(value, Decimal):
        sign, digits, _ = value.as_tuple()
        unscaled = int("".join(map(str, digits))) * (-1 if sign else 1)
        length = (unscaled.bit_length() + 8) // 8
        return base64.b64encode(unscaled.to_bytes(length, "big", signed=True)).decode()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


NOT_A_VALUE = "not-a-value"
_OPERATIONS = {"I": "INSERT", "U": "UPDATE", "D": "DELETE"}


@dataclass(frozen=True)
class Encoder:
    """Turns rows into the table that a file holds.

    Attributes:
        columns: as of the round.
        unfit: column whose values are text that fits no other type; None: none.
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


SNAPSHOT, FIRST = 1, 1000
"""Places in the log of a snapshot, and of what comes after it."""
_OPS = {"I": "c", "U": "u", "D": "d", "R": "r", None: "m"}
_EPOCH_MS = 1_700_000_000_000
_COUNTER_DIGITS = 19


@dataclass(frozen=True)
class Envelopes:
    """What a file is to hold.

    Attributes:
        rows: data columns.
        ops: `I`, `U`, `D`, `R` (of a snapshot) or whatever else, a row.
        lsns: where the change is in the log; None: the connector does not say.
        times: when it was committed, milliseconds; empty: at some time.
    """

    rows: pa.Table
    ops: Sequence[str | None]
    lsns: Sequence[int | None]
    times: Sequence[int] = ()

    @classmethod
    def of(cls, delivered: pa.Table, delivery: Delivery) -> Envelopes:
        """From rows as DMS would bring them; without an operation they are a full load's."""
        service = ("Op", delivery.sequence_column, delivery.timestamp_column)
        times = delivered.column(delivery.timestamp_column).cast(pa.timestamp("ms", "UTC"), safe=False)
        rows = delivered.drop_columns([name for name in service if name in delivered.column_names])
        stamps = times.cast(pa.int64()).to_pylist()
        if "Op" not in delivered.column_names:
            return cls(rows, ["R"] * rows.num_rows, [SNAPSHOT] * rows.num_rows, stamps)
        lsns = [_lsn(text) for text in delivered.column(delivery.sequence_column).to_pylist()]
        return cls(rows, delivered.column("Op").to_pylist(), lsns, stamps)

    @property
    def codes(self) -> list[str]:
        return [_OPS.get(op, str(op).lower()) for op in self.ops]

    @property
    def sources(self) -> list[dict[str, Any]]:
        times = self.times or [_EPOCH_MS + (lsn or 0) for lsn in self.lsns]
        return [
            {"connector": "postgresql", "lsn": lsn, "ts_ms": time, "table": "t"}
            for lsn, time in zip(self.lsns, times, strict=True)
        ]


def lines(events: Envelopes, *, wrapped: bool) -> list[str]:
    """With Connect's schema around each event, or bare. A delete is followed by its tombstone."""
    row = [{"field": f.name, **schema_of(f.type)} for f in events.rows.schema]
    sides = [{"type": "struct", "fields": row, "optional": True, "field": side} for side in ("before", "after")]
    schema = {"type": "struct", "fields": [*sides, {"type": "string", "optional": False, "field": "op"}]}
    texts: list[str] = []
    for payload in payloads(events):
        texts.append(_terse({"schema": schema, "payload": payload} if wrapped else payload))
        if payload["op"] == "d":
            texts.append(_terse({"schema": None, "payload": None} if wrapped else None))
    return texts or [_terse(None)]


def payloads(events: Envelopes) -> list[dict[str, Any]]:
    """The events without a wrapper."""
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    bare_events = []
    for at, (op, source) in enumerate(zip(events.codes, events.sources, strict=True)):
        row: Mapping[str, Any] = {name: value_of(values[at]) for name, values in columns.items()}
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        bare_events.append({**sides, "source": source, "op": op, "ts_ms": source["ts_ms"], "transaction": None})
    return bare_events


def json_bytes(events: Envelopes) -> bytes:
    """A file's content, in Connect's wrapper."""
    return "".join(f"{line}\n" for line in lines(events, wrapped=True)).encode()


def _lsn(sequence: str | None) -> int | None:
    """The counter at the end of a change's sequence; null for what is none."""
    counter = (sequence or "")[-_COUNTER_DIGITS:]
    return FIRST + int(counter) if counter.isdigit() else None


def _terse(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


_MARKS = (",", '"', "\n", "\r")


@dataclass(frozen=True)
class Namer:
    """Names below a table's folder."""

    delivery: Delivery

    def load(self, index: int, count: int) -> str:
        """Name of full-load file `index` of `count`, from 0; with segments they take turns in runs of equal length."""
        if self.delivery.debezium:
            return self._of_offset(index)
        if self.delivery.segments == 0:
            return f"LOAD{index + 1:08X}.{self.delivery.format}"
        run = -(-count // self.delivery.segments)
        segment, within = index // run + 1, index % run + 1
        mark = f"SEGMENT{segment}" + ("_" if self.delivery.segment_style == "name" else "/")
        return f"{mark}LOAD{within:08X}.{self.delivery.format}"

    def change(self, moment: datetime) -> str:
        if self.delivery.debezium:
            return self._of_offset(int(moment.timestamp() * 1000))
        name = f"{moment:%Y%m%d-%H%M%S}{moment.microsecond // 1000:03d}.{self.delivery.format}"
        folder = date_folder(self.delivery.date_partition, self.delivery.date_delimiter, moment)
        return f"{folder}/{name}" if folder else name

    def _of_offset(self, offset: int) -> str:
        """As Confluent's sink: offsets only have to grow."""
        return f"partition=0/events+0+{offset:013d}.{self.delivery.format}"


def to_bytes(table: pa.Table, delivery: Delivery) -> bytes:
    """The file's content."""
    if delivery.debezium:
        data = json_bytes(Envelopes.of(table, delivery))
    else:
        data = _csv(table, delivery) if delivery.format.startswith("csv") else parquet_bytes(table)
    return gzip.compress(data, compresslevel=6, mtime=0) if delivery.format.endswith(".gz") else data


def parquet_bytes(table: pa.Table) -> bytes:
    """Settings spelt out, and no Arrow schema inside, which the service doesn't write either."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="snappy", version="2.6", store_schema=False, row_group_size=1 << 20)
    return sink.getvalue()


def write(path: Path, data: bytes) -> None:
    """Whole or not at all, as an object store does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.part")
    partial.write_bytes(data)
    os.replace(partial, path)  # noqa: PTH105 - same file system, one step


def _csv(table: pa.Table, delivery: Delivery) -> bytes:
    if table.num_rows == 0 and not delivery.csv_header:
        return b""
    cells = [_cells(column, delivery.csv_null) for column in table.columns]
    lines = pc.binary_join_element_wise(*cells, ",")
    head = [",".join(_quoted_name(name) for name in table.schema.names)] if delivery.csv_header else []
    return ("\n".join([*head, *lines.to_pylist()]) + "\n").encode()


def _cells(values: pa.ChunkedArray, null: str) -> pa.ChunkedArray:
    """Text of each cell, quoted where it must be or could be taken for a null."""
    if not pt.is_string(values.type):
        return values.cast(pa.string()).fill_null(null)
    quoted = pc.binary_join_element_wise('"', pc.replace_substring(values, '"', '""'), '"', "")
    special = pc.match_substring_regex(values, '[,"\\r\\n]|^\\s|\\s$|^$')
    doubtful = pc.or_(special, pc.equal(values, null))
    return pc.if_else(doubtful, quoted, values).fill_null(null)


def _quoted_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(mark in name for mark in _MARKS) else name
