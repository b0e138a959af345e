"""Rows of partitions."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rules.delta_values import split

VALUES = st.lists(st.tuples(st.sampled_from([None, "a", "b", "\u00e9"]), st.integers(1, 3)), max_size=30)


@given(VALUES)
def test_each_partition_has_its_rows_in_their_order(values: list[tuple[str | None, int]]) -> None:
    rows = pa.table({
        "p": pa.array([p for p, _ in values], pa.string()),
        "n": pa.array([n for _, n in values], pa.int64()),
        "at": pa.array(range(len(values)), pa.int64()),
    })  # fmt: skip
    expected: dict[tuple[str | None, str], list[int]] = {}
    for at, (p, n) in enumerate(values):
        expected.setdefault((p, str(n)), []).append(at)
    found = {tuple(text for _, text in partition): part for partition, part in split(rows, ("p", "n"))}
    assert {partition: part.column("at").to_pylist() for partition, part in found.items()} == expected
    assert all(part.column_names == ["at"] for part in found.values())


@pytest.mark.parametrize("count", [0, 2])
def test_rows_without_partitions_stay_as_they_are(count: int) -> None:
    rows = pa.table({"at": pa.array(range(count), pa.int64())})
    assert list(split(rows, ())) == [((), rows)]
