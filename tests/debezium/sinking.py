"""What a sink makes of a topic: partitions by key, files of some records each, in several forms, some of them twice."""

from __future__ import annotations

import gzip
import io
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.debezium.probing import text, wrapped
from tests.debezium.source import Record

Files = dict[str, bytes]
"""Path below the table's folder to content."""

_TYPES = {"id": "int64", "name": "string", "big": "string", "extra": "int64"}
_ARROW = {"id": pa.int64(), "name": pa.string(), "big": pa.string(), "extra": pa.int64()}
_SOURCE = pa.struct([
    ("connector", pa.string()), ("lsn", pa.int64()), ("sequence", pa.string()), ("ts_ms", pa.int64()),
    ("snapshot", pa.string()),
])  # fmt: skip


def sunk(records: Sequence[Record], rng: Random, partitions: int = 3) -> Files:
    """Every record in a file at least; in so many partitions at most."""
    files: Files = {}
    partitions = rng.randint(1, partitions)
    for partition in range(partitions):
        mine = [record for record in records if record[0] % partitions == partition]
        if not mine:
            continue
        starts = sorted({0, *(rng.randrange(len(mine)) for _ in range(rng.randint(0, 4)))})
        for start, end in zip(starts, [*starts[1:], len(mine)], strict=True):
            files |= _file(partition, start, mine[start:end], rng)
        for _ in range(rng.randint(0, 2)):  # a sink that lost its place writes other files with the same records
            if (start := rng.randrange(len(mine))) not in starts:
                files |= _file(partition, start, mine[start : start + rng.randint(1, 9)], rng)
    return files


def _file(partition: int, offset: int, records: Sequence[Record], rng: Random) -> Files:
    values = [value for _, value in records]
    events = [value for value in values if value is not None]
    form = rng.choice(("wrapped", "wrapped", "bare", "gzip", "parquet", "parquet with keys")) if events else "bare"
    if form == "parquet":
        return {_name(partition, offset, "snappy.parquet"): _parquet(events, _envelope(events))}
    if form == "parquet with keys":  # `format.output.fields=key,value`, with tombstones
        schema = pa.schema([("key", pa.struct([("id", pa.int64())])), ("value", pa.struct(_envelope(events)))])
        rows = [{"key": {"id": key}, "value": value} for key, value in records]
        return {_name(partition, offset, "snappy.parquet"): _parquet(rows, schema)}
    if form == "wrapped":
        return {_name(partition, offset, "json"): "".join(map(_wrapped, values)).encode()}
    content = text(*values).encode()
    if form == "gzip":
        return {_name(partition, offset, "json.gz"): gzip.compress(content, mtime=0)}
    return {_name(partition, offset, "json"): content}


def _name(partition: int, offset: int, ending: str) -> str:
    return f"partition={partition}/t+{partition}+{offset:010d}.{ending}"


def _wrapped(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return text({"schema": None, "payload": None})
    row = value["before"] or value["after"]
    return wrapped({name: {"type": _TYPES[name], "optional": True} for name in row}, value)


def _envelope(events: Sequence[Mapping[str, Any]]) -> pa.Schema:
    names = dict.fromkeys(name for value in events for name in (value["before"] or value["after"]))
    row = pa.struct([(name, _ARROW[name]) for name in names])
    return pa.schema([("before", row), ("after", row), ("source", _SOURCE), ("op", pa.string())])


def _parquet(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema), sink)
    return sink.getvalue()
