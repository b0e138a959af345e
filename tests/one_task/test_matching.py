"""Stored rows of a batch's keys are found by the equality of the rules, not by that of pyarrow."""

from __future__ import annotations

import struct

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.rules.arrays import shared_codes
from spark_jobs.tables.table_rows import matching

NEGATIVE_NAN = struct.unpack("<d", struct.pack("<Q", 0xFFF8000000000000))[0]
FLOATS = st.sampled_from([0.0, -0.0, 1.5, -1.5, float("inf"), -float("inf"), float("nan"), NEGATIVE_NAN, None])
OF_TYPE = {
    "float64": FLOATS,
    "float32": FLOATS,
    "int64": st.sampled_from([0, 1, -(2**63), 2**63 - 1, None]),
    "string": st.sampled_from(["", "a", "A", "a ", "\u00e9", "e\u0301", None]),
    "binary": st.sampled_from([b"", b"\0", b"a", None]),
    "bool": st.sampled_from([True, False, None]),
}


@pytest.mark.parametrize("kind", OF_TYPE)
def test_rows_with_equal_codes_are_found(kind: str) -> None:
    of_type = pa.type_for_alias(kind)

    @given(st.lists(OF_TYPE[kind], max_size=6), st.lists(OF_TYPE[kind], min_size=1, max_size=4))
    def check(rows: list[object], keys: list[object]) -> None:
        stored, wanted = pa.table({"id": pa.array(rows, of_type)}), pa.table({"id": pa.array(keys, of_type)})
        have, asked = shared_codes([[stored["id"]], [wanted["id"]]], [len(rows), len(keys)])
        expected = [number for number, code in enumerate(have) if code in set(asked)]
        assert matching(stored, wanted, ("id",)).tolist() == expected

    check()
