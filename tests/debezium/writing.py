"""Writes rows with an operation each as files of Debezium events."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.debezium.connect import schema_of, value_of

Form = Literal["json", "json.gz", "parquet"]
_OPS = {"I": "c", "U": "u", "D": "d", "R": "r", None: "m"}
_SOURCE = pa.struct([("connector", pa.string()), ("lsn", pa.int64()), ("ts_ms", pa.int64()), ("table", pa.string())])


@dataclass(frozen=True)
class Envelopes:
    """What a file is to hold.

    Attributes:
        rows: data columns.
        ops: `I`, `U`, `D`, `R` or whatever else, a row.
        lsns: where the change is in the log; null: the connector does not tell.
    """

    rows: pa.Table
    ops: Sequence[str | None]
    lsns: Sequence[int | None]

    @property
    def codes(self) -> list[str]:
        return [_OPS.get(op, str(op).lower()) for op in self.ops]

    @property
    def sources(self) -> list[dict[str, Any]]:
        return [
            {"connector": "postgresql", "lsn": lsn, "ts_ms": 1_700_000_000_000 + (lsn or 0), "table": "t"}
            for lsn in self.lsns
        ]


def written(events: Envelopes, form: Form) -> bytes:
    """The content of a file; of JSON, a delete is followed by its tombstone."""
    if form == "parquet":
        return _parquet(events)
    text = "".join(f"{line}\n" for line in lines(events, wrapped=True)).encode()
    return gzip.compress(text, mtime=0) if form == "json.gz" else text


def lines(events: Envelopes, *, wrapped: bool) -> list[str]:
    """With Connect's schema around each event, or bare."""
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
    columns = {name: events.rows.column(name) for name in events.rows.column_names}
    found = []
    for at, (op, source) in enumerate(zip(events.codes, events.sources, strict=True)):
        row: Mapping[str, Any] = {name: value_of(values[at]) for name, values in columns.items()}
        sides = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
        found.append({**sides, "source": source, "op": op, "ts_ms": source["ts_ms"], "transaction": None})
    return found


def _terse(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _parquet(events: Envelopes) -> bytes:
    rows = events.rows.combine_chunks()
    kind = pa.struct(list(rows.schema))
    parts = [column.combine_chunks() if column.num_chunks != 1 else column.chunk(0) for column in rows.columns]
    deleted = pa.array([code == "d" for code in events.codes], pa.bool_())
    there = pa.array([code != "d" for code in events.codes], pa.bool_())
    table = pa.table({
        "before": pa.StructArray.from_arrays(parts, fields=list(kind), mask=there),
        "after": pa.StructArray.from_arrays(parts, fields=list(kind), mask=deleted),
        "source": pa.array(events.sources, _SOURCE),
        "op": pa.array(events.codes, pa.string()),
        "ts_ms": pa.array([source["ts_ms"] for source in events.sources], pa.int64()),
    })  # fmt: skip
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()
