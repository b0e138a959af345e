"""Times as parquet has them, down to the nanosecond, against whole numbers."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rules.arrays import count_past_micros, past_micros, whole_micros

_NANOSECONDS = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(10**20), 3 * 10**20),
    st.sampled_from([0, -1, 999, -1000]),
)


def _of_64_bits(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


@given(st.lists(_NANOSECONDS, min_size=1))
def test_int96_of_any_year(times: list[int | None]) -> None:
    """What a file's INT96 column is in microseconds and, with 64 bits, in nanoseconds."""
    coarse = pa.array([None if t is None else t // 1000 for t in times], pa.int64()).cast(pa.timestamp("us"))
    fine = pa.array([None if t is None else _of_64_bits(t) for t in times], pa.int64()).cast(pa.timestamp("ns"))
    assert past_micros(coarse, fine).to_pylist() == [None if t is None else t % 1000 for t in times]
    inside = (pa.StructArray.from_arrays([each], ["at"]) for each in (coarse, fine))
    assert count_past_micros(*inside) == sum(t is not None and t % 1000 != 0 for t in times)


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), min_size=1))
def test_nanoseconds_are_whole_microseconds_and_a_rest(times: list[int | None]) -> None:
    values = pa.array(times, pa.int64()).cast(pa.timestamp("ns"))
    assert past_micros(values).to_pylist() == [None if t is None else t % 1000 for t in times]
    assert whole_micros(values).cast(pa.int64()).to_pylist() == [None if t is None else t // 1000 for t in times]
