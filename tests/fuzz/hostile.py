"""Files and rows as somebody hostile would write them; the same seed gives the same input."""

from __future__ import annotations

import gzip
import io
import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from airflow_gddl.contract.spec import TableSpec
from tests.fuzz.landed_forms import damaged

CANARY = "canary4711s3cr3t"
"""Of values that a row masks or leaves out, and of variables of the process; nothing may show it."""
_MOST_DIGITS = 20_000
_WORDS = (
    "", " ", "\0", "a\0b", "\ufeff", "\u202etxt", "\x1b[31mred\x1b[0m", "null", "NaN", "-0", "1e999", "0x",
    "../../etc/passwd", "/etc/passwd", "s3://other/x", "${env:GDDL_CANARY}", "{{ var.value.x }}", "'; DROP TABLE t; --",
    "`x`", "<script>alert(1)</script>", "=cmd()",
    "_gddl", "Op", "op", "_rescued_data", "__start_at", "_source", "id", "ID", "a" * 300, "\u0130", "e\u0301", "\ud7ff",
    "9999-12-31", "0000-00-00", "1970-01-01T00:00:00+99:99", "20240230", "[" * 500, "{" * 500,
    '"', "\\", ",", "\n", "\r\n", "%s%n", "(a+)+$",
)  # fmt: skip
_NUMBERS = (0, -1, 2**31, 2**63 - 1, -(2**63), 1.5, float("inf"), float("-inf"), float("nan"), 5e-324)


def word(rng: random.Random) -> str:
    """A text that readers of text, numbers, times, names or sequences may stumble over."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.choice("123456789") * rng.randrange(1, _MOST_DIGITS) + rng.choice(["", "x", ".", "e", "e9999", "-"])
    if kind == 1:
        return (rng.choice(["1:", "a.", "-", "00", " ", "0/", "é", "[{"]) * rng.randrange(1, _MOST_DIGITS // 2))[
            :_MOST_DIGITS
        ]
    if kind == 2:
        return "".join(chr(rng.choice([*range(1, 128), 0xE9, 0x3000, 0x1F600])) for _ in range(rng.randrange(40)))
    return rng.choice(_WORDS)


def value(rng: random.Random, depth: int = 0) -> Any:
    """A value of JSON."""
    kind = rng.randrange(8)
    if kind == 0 and depth < 4:
        return {word(rng)[:50]: value(rng, depth + 1) for _ in range(rng.randrange(4))}
    if kind == 1 and depth < 4:
        return [value(rng, depth + 1) for _ in range(rng.randrange(4))]
    if kind == 2:
        return rng.choice(_NUMBERS)
    return rng.choice([None, True, word(rng), word(rng)])


def _column(rng: random.Random, count: int) -> pa.Array:
    kinds: tuple[Callable[[], pa.Array], ...] = (
        lambda: pa.array([word(rng) for _ in range(count)]),
        lambda: pa.array([rng.choice([None, *_NUMBERS[5:]]) for _ in range(count)], pa.float64()),
        lambda: pa.array([rng.choice([None, *_NUMBERS[:5]]) for _ in range(count)], pa.int64()),
        lambda: pa.array([rng.randbytes(rng.randrange(20)) for _ in range(count)]),
        lambda: pa.array([rng.choice([None, 10**37, -1]) for _ in range(count)], pa.decimal128(38, 0)),
        lambda: pa.array(
            [rng.choice([None, -(2**53), 2**53, 0]) for _ in range(count)],
            pa.timestamp(rng.choice(["s", "ms", "us", "ns"])),
        ),
        lambda: pa.array([rng.choice([None, -(2**31), 2**31 - 1]) for _ in range(count)], pa.date32()),
        lambda: pa.array([[word(rng)[:9]] * rng.randrange(3) for _ in range(count)]),
        lambda: pa.array([{"a": 1, "A": word(rng)[:9]} for _ in range(count)]),
        lambda: pa.array([[("k", 1), ("k", 2)]] * count, pa.map_(pa.string(), pa.int8())),
        lambda: pa.nulls(count),
        lambda: pa.array([True, None] * count)[:count],
        lambda: pa.array([0] * count, pa.time64("us")),
        lambda: pa.array([0] * count, pa.duration("s")),
        lambda: pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int8()), [word(rng)]),
    )  # fmt: skip
    return rng.choice(kinds)()


def _parquet(rng: random.Random) -> bytes:
    count = rng.choice([0, 1, 3, 20])
    names = [
        rng.choice(["Op", "seq", "id", "v", "secret", "left_out", word(rng)[:200]]) for _ in range(rng.randrange(1, 9))
    ]
    columns = {name: _column(rng, count) for name in dict.fromkeys(names)}
    if rng.random() < 0.7:
        columns |= {"Op": pa.array(["I", "U", "D", "I"] * count)[:count], "id": pa.array(range(count), pa.int32())}
        columns |= {"seq": pa.array(range(count), pa.int64()), "secret": pa.array([CANARY] * count)}
        columns["left_out"] = pa.array([CANARY] * count)
    fields_ = [pa.field(name, found.type) for name, found in columns.items()]
    table = pa.Table.from_arrays(list(columns.values()), schema=pa.schema(fields_))
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression=rng.choice(["none", "snappy", "zstd", "gzip"]),
        store_schema=rng.random() < 0.5,
        use_dictionary=rng.random() < 0.5,
        row_group_size=rng.choice([1, 1000]),
    )
    return sink.getvalue()


def _csv(rng: random.Random) -> bytes:
    """Each cell is quoted, so that none moves into another column; `secret` and `left_out` come last."""

    def line() -> str:
        cells = [
            rng.choice(["I", "U", "D", word(rng)]),
            rng.choice([word(rng), str(rng.randrange(99)), "7"]),
            rng.choice([word(rng), str(rng.randrange(99)), "7"]),
            word(rng),
        ]
        return ",".join('"' + cell.replace('"', '""') + '"' for cell in [*cells, CANARY, CANARY])

    return rng.choice(["\n", "\r\n"]).join(line() for _ in range(rng.randrange(30))).encode("utf-8", "surrogatepass")


def _events(rng: random.Random) -> bytes:
    def event(number: int) -> dict[str, Any]:
        source = {
            "connector": rng.choice(["mysql", "postgresql", word(rng)]),
            "file": "b.000001",
            "pos": number,
            "ts_ms": value(rng),
        }
        source |= {word(rng)[:30]: value(rng)} if rng.random() < 0.3 else {}
        after = {"id": rng.choice([number, value(rng)]), "v": value(rng), "secret": CANARY, "left_out": CANARY}
        found = {
            "op": rng.choice(["c", "u", "d", "r", "t", value(rng)]),
            "before": None,
            "after": after,
            "source": source,
        }
        if rng.random() < 0.2:
            found[rng.choice([*found, "schema", "payload", "transaction"])] = value(rng)
        return found

    lines = [json.dumps(event(number)) for number in range(rng.randrange(1, 20))]
    return rng.choice([b"\n".join, b"".join])([line.encode("utf-8", "surrogatepass") for line in lines])


_CSV_COLUMNS = ["id", "seq", "v", "secret", "left_out"]
_DMS = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",))


def _of_csv(**types: str) -> TableSpec:
    return replace(_DMS, options={"csv_columns": _CSV_COLUMNS, "types": types})


_SPECS: Mapping[str, tuple[TableSpec, str, Callable[[random.Random], bytes]]] = {
    "parquet": (_DMS, "parquet", _parquet),
    "csv": (_of_csv(id="int", seq="bigint", v="double"), "csv", _csv),
    "csv of times": (_of_csv(v="timestamp", seq="decimal(38,0)"), "csv", _csv),
    "events": (TableSpec(table="s.t", keys=("id",), dialect="debezium"), "json", _events),
}
FORMS = tuple(_SPECS)


def hostile_file(form: str, seed: int) -> tuple[TableSpec, str, bytes, bool]:
    """A row that masks `secret` and leaves out `left_out`, a file's name and content, and whether its bytes are whole.

    Damage can move a masked value into another column, so that only whole files tell whether one is shown.
    """
    rng = random.Random(f"{form} {seed}")  # noqa: S311 - no secret
    spec, ending, make = _SPECS[form]
    own: dict[str, Any] = {"mask": {"secret": rng.choice(["hmac", "null"])}, "exclude_columns": ("left_out",)}
    content, whole = make(rng), True
    if rng.random() < 0.3:
        content, whole = damaged(content, seed), False
    name = f"20240101-{seed % 10**9:09d}.{ending}"
    if rng.random() < 0.3:
        content = gzip.compress(content, 1, mtime=0)
        content = content[: rng.randrange(len(content))] if rng.random() < 0.2 else content
        name += ".gz"
    return replace(spec, **own), name, content, whole


_ROW = tuple(
    f
    for f in fields(TableSpec)
    if f.name not in {"source_table", "landing", "shard_landings", "shard_origins", "mask_key_id"}
)


def hostile_row(seed: int) -> dict[str, Any]:
    """A row of metadata in which one to three fields hold anything."""
    rng = random.Random(f"row {seed}")  # noqa: S311 - no secret
    row: dict[str, Any] = {"table": "s.t", "keys": ["id"], "sequence_by": ["seq"]}
    for field in rng.sample(_ROW, rng.randrange(1, 4)):
        row[field.name] = _of_the_form(rng, str(field.type)) if rng.random() < 0.8 else value(rng)
    if rng.random() < 0.1:
        row[word(rng)[:40]] = value(rng)
    return row


def _of_the_form(rng: random.Random, kind: str) -> Any:
    """A value of a field's type with hostile parts."""
    choices = re.findall(r'"([^"]+)"', kind)
    if choices:
        return rng.choice(choices)
    if kind.startswith("tuple"):
        return [rng.choice(["id", "v", word(rng)[:200]]) for _ in range(rng.randrange(4))]
    if kind.startswith("Mapping"):
        return {rng.choice(["id", "v", word(rng)[:60]]): rng.choice([word(rng)[:200], "hash", "null", "string"])}
    if kind == "bool":
        return rng.random() < 0.5
    return rng.choice([word(rng), word(rng)[:60], "1d", "s.t"])


def rows_as_json(rows: Sequence[Mapping[str, Any]]) -> str:
    return json.dumps({"tables": list(rows)})
