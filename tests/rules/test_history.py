"""The bound of a reload before any change, in each type that a sequence can have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.rules.arrays import arrow_type, ranks, sortable
from spark_jobs.rules.history import before_changes, retyped_bounds

OTHERS = {
    "string": "0", "bigint": -5, "int": -5, "smallint": -5, "tinyint": -5, "double": -1e300, "float": -1e30,
    "decimal(38,0)": -5, "decimal(38,10)": -5, "date": 1, "timestamp": 1, "timestamp_ntz": 1, "boolean": True,
    "struct<a:bigint,b:string>": {"a": -5, "b": "0"},
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_bound_is_below_every_sequence_and_not_null(kind: str) -> None:
    sql = parse_type(kind)
    both = pa.array([before_changes(sql), OTHERS[kind]], arrow_type(sql))
    assert both.null_count == 0
    assert list(ranks(sortable(both), 2)) == [1, 2]


def test_bounds_follow_the_type_of_the_first_changes() -> None:
    found = retyped_bounds(pa.array(["", None]), parse_type("bigint"))
    assert found.to_pylist() == [-(2**63), None]
