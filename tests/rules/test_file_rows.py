"""Values of types that no table holds, as text in records: the same wherever a job runs, and for every value."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.rules.file_rows import described

CASES: list[tuple[str, pa.DataType, Any, str]] = [
    ("duration", pa.duration("ns"), 1_000_000_001, "1000000001"),
    ("longest duration", pa.duration("s"), 2**62, str(2**62)),
    ("list of durations", pa.list_(pa.duration("us")), [5, None], "[5, None]"),
    ("list of fixed size", pa.list_(pa.duration("ns"), 1), [5], "[5]"),
    (
        "times beside a duration",
        pa.struct([("a", pa.timestamp("ns")), ("b", pa.time64("ns")), ("d", pa.duration("ms"))]),
        {"a": 1, "b": 1, "d": 2},
        "{'a': '1970-01-01 00:00:00.000000001', 'b': '00:00:00.000000001', 'd': 2}",
    ),
    ("map to durations", pa.map_(pa.string(), pa.duration("ns")), [("k", 7)], "[('k', 7)]"),
]


def values(kind: pa.DataType, value: Any) -> pa.Array:
    """The value and a null; temporal ones are given as numbers."""
    if pa.types.is_nested(kind):
        return pa.array([value, None], kind)
    return pa.array([value, None], pa.int64()).cast(kind)


@pytest.mark.parametrize(("kind", "value", "text"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_values_are_written_exactly(kind: pa.DataType, value: Any, text: str) -> None:
    assert described(values(kind, value)).to_pylist() == [text, None]


def test_a_process_without_pandas_writes_them_alike() -> None:
    program = (
        "import json; from spark_jobs.spark.tasks import leave_pandas_out; leave_pandas_out()\n"
        "import sys; from tests.rules.test_file_rows import CASES, described, values\n"
        "print(json.dumps([described(values(kind, value)).to_pylist() for _, kind, value, _ in CASES]))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == [[case[3], None] for case in CASES]
