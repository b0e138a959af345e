"""One sound file of each form that lands, and ways to damage its bytes."""

from __future__ import annotations

import gzip
import io
import json
import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.spec import TableSpec

DMS = TableSpec(table="s.t", keys=("id",), options={"csv_columns": ["id", "v", "t"], "types": {"id": "int"}})
DEBEZIUM = TableSpec(table="s.t", keys=("id",), dialect="debezium")
_ROWS = 100


def _parquet(**how: Any) -> bytes:
    table = pa.table({
        "Op": ["I", "U"] * (_ROWS // 2),
        "id": pa.array(range(_ROWS), pa.int32()),
        "v": [f"text {i} \u00e9" for i in range(_ROWS)],
        "price": pa.array(range(_ROWS), pa.decimal128(20, 2)),
        "at": pa.array(range(_ROWS), pa.timestamp("us")),
        "list": [[1, 2, None]] * _ROWS,
        "struct": [{"a": 1, "b": "x"}] * _ROWS,
    })  # fmt: skip
    return _bytes(table, **how)


def _bytes(table: pa.Table, **how: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **how)
    return sink.getvalue()


def _event(number: int) -> dict[str, Any]:
    source = {"connector": "mysql", "file": "b.000001", "pos": number, "ts_ms": 1}
    return {"op": "u", "before": None, "after": {"id": number, "v": "x" * 20, "n": 1.5}, "source": source}


def _wrapped() -> str:
    """As Connect's JSON converter writes events with their schema."""
    row = [("id", "int32"), ("v", "string"), ("n", "double")]
    after = {"field": "after", "type": "struct", "fields": [{"field": name, "type": kind} for name, kind in row]}
    schema = {"type": "struct", "fields": [after]}
    lines = ({"schema": schema, "payload": _event(i)} for i in range(_ROWS))
    return "\n".join(json.dumps(line, separators=(",", ":")) for line in lines)


_CSV = "".join(f'I,{i},"te""xt, {i}",2020-01-01 00:00:00\n' for i in range(_ROWS))
_EVENTS = [json.dumps(_event(i)) for i in range(_ROWS)]

FORMS: dict[str, tuple[TableSpec, str, Callable[[], bytes]]] = {
    "parquet": (DMS, "parquet", _parquet),
    "parquet plain": (DMS, "parquet", lambda: _parquet(use_dictionary=False, compression="none")),
    "parquet zstd": (DMS, "parquet", lambda: _parquet(compression="zstd", data_page_version="2.0")),
    "parquet gzip": (DMS, "parquet", lambda: gzip.compress(_parquet(), mtime=0)),
    "csv": (DMS, "csv", _CSV.encode),
    "csv gzip": (DMS, "csv", lambda: gzip.compress(_CSV.encode(), mtime=0)),
    "json lines": (DEBEZIUM, "json", "\n".join(_EVENTS).encode),
    "json lines gzip": (DEBEZIUM, "json", lambda: gzip.compress("\n".join(_EVENTS).encode(), mtime=0)),
    "json concatenated": (DEBEZIUM, "json", "".join(_EVENTS).encode),
    "json array": (DEBEZIUM, "json", f"[{','.join(_EVENTS)}]".encode),
    "json wrapped": (DEBEZIUM, "json", _wrapped().encode),
    "debezium parquet": (DEBEZIUM, "parquet", lambda: _bytes(pa.Table.from_pylist([_event(i) for i in range(_ROWS)]))),
}
"""Name to row, format of its files, and the content of a sound one."""


def damaged(content: bytes, seed: int) -> bytes:
    """The content after one to ten random edits; the same seed gives the same bytes."""
    rng, data = random.Random(seed), bytearray(content)  # noqa: S311 - damage, not a secret
    for _ in range(rng.choice([1, 1, 1, 2, 3, 10])):
        rng.choice(_EDITS)(rng, data)
    return bytes(data)


def _flip(rng: random.Random, data: bytearray) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.randrange(256)


def _flip_near_the_end(rng: random.Random, data: bytearray) -> None:
    if data:  # where parquet has its footer, and gzip its sum
        data[max(0, len(data) - rng.randrange(1, 400))] = rng.randrange(256)


def _drop(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    del data[at : at + rng.randrange(1, 64)]


def _insert(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at:at] = rng.randbytes(rng.randrange(1, 64))


def _cut(rng: random.Random, data: bytearray) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _blank(rng: random.Random, data: bytearray) -> None:
    at = rng.randrange(len(data) + 1)
    data[at : at + 16] = rng.choice([b"\0", b"\xff", b"[", b'"', b"\n"]) * 16


_EDITS = (_flip, _flip_near_the_end, _drop, _insert, _cut, _blank)
