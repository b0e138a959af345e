"""Rows with an operation each as Debezium's change events, a line of JSON each."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

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


SNAPSHOT, FIRST = 1, 1000
"""Places in the log of a snapshot, and of what comes after it."""
_OPS = {"I": "c", "U": "u", "D": "d", "R": "r", None: "m"}
_EPOCH_MS = 1_700_000_000_000


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


def lines(events: Envelopes) -> list[str]:
    """With Connect's schema around each event. A delete is followed by its tombstone."""
    row = [{"field": f.name, **schema_of(f.type)} for f in events.rows.schema]
    sides = [{"type": "struct", "fields": row, "optional": True, "field": side} for side in ("before", "after")]
    schema = {"type": "struct", "fields": [*sides, {"type": "string", "optional": False, "field": "op"}]}
    texts: list[str] = []
    for payload in payloads(events):
        texts.append(_terse({"schema": schema, "payload": payload}))
        if payload["op"] == "d":
            texts.append(_terse({"schema": None, "payload": None}))
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
    return "".join(f"{line}\n" for line in lines(events)).encode()


def _terse(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
