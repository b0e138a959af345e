"""Digests of rows: the same for equal rows, whatever their order and width, and for other rows another one."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from spark_jobs.rules.row_digest import rows_digest, together

_STRUCT = pa.struct([("x", pa.int32()), ("at", pa.timestamp("us", "UTC"))])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": ["x"], "b": ["y\x1fvz"]}, {"a": ["x\x1fvy"], "b": ["z"]}),
        ({"a": ["x", None]}, {"a": ["x", "n"]}),
        ({"a": ["", "x"]}, {"a": [None, "x"]}),
        ({"a": ["x"], "b": [None]}, {"a": [None], "b": ["x"]}),
        ({"a": ["1:b1:x"]}, {"a": ["1"], "b": ["x"]}),
        ({"a": [float("nan")]}, {"a": [float("inf")]}),
        ({"a": [["x", None]]}, {"a": [["x"]]}),
        ({"a": ["x", "x"]}, {"a": ["x"]}),
    ],
)
def test_other_rows_have_another_digest(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert rows_digest(pa.table(one)) != rows_digest(pa.table(other))


def test_equal_rows_have_one_digest() -> None:
    """Columns and fields that came later, and are null in all rows, make no difference, and neither does NaN."""
    moment = datetime(2024, 1, 1, tzinfo=UTC)
    one = {"a": [1, 2], "f": [float("nan"), 0.5], "s": pa.array([{"x": 1, "at": moment}, None], _STRUCT)}
    wider = pa.struct([("at", pa.timestamp("us", "+00:00")), ("new", pa.string()), ("x", pa.int64())])
    other = {
        "f": [0.5, float("nan")], "new": pa.nulls(2, pa.string()), "a": pa.array([2, 1], pa.int64()),
        "s": pa.array([None, {"at": moment, "x": 1}], wider),
    }  # fmt: skip
    assert rows_digest(pa.table(one)) == rows_digest(pa.table(other))


def test_the_sign_of_zero_makes_no_difference() -> None:
    """To the history, and to SQL, -0.0 is 0.0, so that a version may show the one, and later the other."""
    kinds = (pa.float64(), pa.float32(), pa.struct([("x", pa.float64())]), pa.list_(pa.float64()))
    for kind, one, other in zip(kinds, (0.0, 0.0, {"x": 0.0}, [0.0]), (-0.0, -0.0, {"x": -0.0}, [-0.0]), strict=True):
        digests = {rows_digest(pa.table({"a": pa.array([value, None], kind)})) for value in (one, other)}
        assert len(digests) == 1, kind


def test_the_digest_of_all_rows_is_that_of_their_parts_together() -> None:
    rows = pa.table({"a": list(range(200)), "b": ["x", None] * 100})
    assert together(rows_digest(rows.slice(*part)) for part in ((0, 50), (50, 150))) == rows_digest(rows)
    assert together(["0" * 32, rows_digest(rows)]) == rows_digest(rows)
