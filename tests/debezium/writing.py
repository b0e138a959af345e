"""Writes events as files, in each of the forms that the dialect knows."""

from __future__ import annotations

import gzip
import io
from typing import Literal

import pyarrow as pa
import pyarrow.parquet as pq

from tests.debezium.envelopes import Envelopes, json_bytes

Form = Literal["json", "json.gz", "parquet"]
_SOURCE = pa.struct([("connector", pa.string()), ("lsn", pa.int64()), ("ts_ms", pa.int64()), ("table", pa.string())])


def written(events: Envelopes, form: Form) -> bytes:
    """The content of a file."""
    if form == "parquet":
        return _parquet(events)
    return gzip.compress(json_bytes(events), mtime=0) if form == "json.gz" else json_bytes(events)


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
