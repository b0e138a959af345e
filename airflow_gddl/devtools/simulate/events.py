"""Rows with an operation each as Debezium's change events, a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from airflow_gddl.devtools.simulate.connect import schema_of, value_of
from airflow_gddl.devtools.simulate.spec import Delivery

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
        lsns: where the change is in the log; null: the connector does not say.
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
    found: list[str] = []
    for payload in payloads(events):
        found.append(_terse({"schema": schema, "payload": payload} if wrapped else payload))
        if payload["op"] == "d":
            found.append(_terse({"schema": None, "payload": None} if wrapped else None))
    return found or [_terse(None)]


def payloads(events: Envelopes) -> list[dict[str, Any]]:
    """The events without a wrapper."""
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    found = []
    for at, (op, source) in enumerate(zip(events.codes, events.sources, strict=True)):
        row: Mapping[str, Any] = {name: value_of(values[at]) for name, values in columns.items()}
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        found.append({**sides, "source": source, "op": op, "ts_ms": source["ts_ms"], "transaction": None})
    return found


def json_bytes(events: Envelopes) -> bytes:
    """A file's content, in Connect's wrapper."""
    return "".join(f"{line}\n" for line in lines(events, wrapped=True)).encode()


def _lsn(sequence: str | None) -> int | None:
    """The counter at the end of a change's sequence; null for what is none."""
    counter = (sequence or "")[-_COUNTER_DIGITS:]
    return FIRST + int(counter) if counter.isdigit() else None


def _terse(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
