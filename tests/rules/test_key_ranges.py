"""Ranges of keys: all rows of a key are in one, ranges follow the keys' order, and none is much larger than others."""

from __future__ import annotations

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rules.arrays import cuts_of, range_of, sample_of

VALUES = {
    "integers": (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    "few integers": (pa.int32(), st.integers(0, 3)),
    "text": (pa.string(), st.text(max_size=3)),
    "bytes": (pa.binary(), st.binary(max_size=2)),
    "decimals": (pa.decimal128(9, 2), st.decimals(-999, 999, places=2)),
    "floats": (pa.float64(), st.floats(width=64)),
    "flags": (pa.bool_(), st.booleans()),
}


@pytest.mark.parametrize("sort", VALUES)
@given(data=st.data())
def test_each_key_has_one_range_and_ranges_follow_keys(sort: str, data: st.DataObject) -> None:
    kind, values = VALUES[sort]
    pairs = st.tuples(st.one_of(st.none(), values), st.integers(0, 2))
    rows = data.draw(st.lists(pairs, max_size=40))
    table = pa.table({"k": pa.array([k for k, _ in rows], kind), "n": pa.array([n for _, n in rows], pa.int32())})
    half = table.num_rows // 2
    samples = [sample_of(part, table.schema) for part in (table.slice(0, half), table.slice(half))]
    cuts = cuts_of(samples, table.schema, data.draw(st.integers(1, 9)))
    found = range_of(table, cuts)
    assert len(found) == table.num_rows
    assert found.min(initial=0) >= 0
    assert found.max(initial=0) <= cuts.num_rows
    keys = [_comparable(row) for row in table.to_pylist()]
    for (first, one), (second, other) in zip(
        sorted(zip(keys, found, strict=True)), sorted(zip(keys, found, strict=True))[1:], strict=False
    ):
        assert one == other if first == second else one <= other


def _comparable(row: dict[str, object]) -> tuple[object, ...]:
    """Nulls first, then numbers, NaN last; -0.0 is 0.0; text by code point."""
    value = row["k"]
    if value is None:
        return (0, 0, row["n"])
    if isinstance(value, float) and np.isnan(value):
        return (2, 0, row["n"])
    if isinstance(value, str):
        return (1, value.encode("utf-8", "surrogatepass"), row["n"])
    return (1, value + 0.0 if isinstance(value, float) else value, row["n"])


def test_ranges_are_of_one_size_where_keys_are_many() -> None:
    keys = pa.schema([pa.field("k", pa.int64())])
    drawn = np.random.default_rng(7).permutation(100_000)
    files = [pa.table({"k": drawn[start : start + 9_000]}) for start in range(0, len(drawn), 9_000)]
    cuts = cuts_of([sample_of(file, keys) for file in files], keys, 8)
    sizes = np.bincount(np.concatenate([range_of(file, cuts) for file in files]))
    assert len(sizes) == 8
    assert sizes.max() < 2 * sizes.min()


def test_a_file_of_many_rows_counts_more_than_one_of_few() -> None:
    keys = pa.schema([pa.field("k", pa.int64())])
    large, small = pa.table({"k": np.arange(100_000)}), pa.table({"k": np.arange(10**9, 10**9 + 300)})
    cuts = cuts_of([sample_of(large, keys), sample_of(small, keys)], keys, 4)
    assert cuts.column("k")[0].as_py() < 30_000


def test_rows_of_another_type_go_to_the_range_of_their_value() -> None:
    keys = pa.schema([pa.field("k", pa.decimal128(20, 2))])
    cuts = pa.table({"k": pa.array([Decimal("5.00")], pa.decimal128(20, 2))})
    assert range_of(pa.table({"k": pa.array([4, 5, 6], pa.int32())}), cuts).tolist() == [0, 1, 1]
    assert range_of(pa.table({"x": [1]}).cast(pa.schema([("x", pa.int64())])), cuts).tolist() == [0]
    assert cuts_of([], keys, 4).num_rows == 0
