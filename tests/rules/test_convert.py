"""Which values of one type another holds without loss."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.rules.arrays import arrow_type
from spark_jobs.rules.convert import converter, fit
from spark_jobs.rules.texts import python_values


@pytest.mark.parametrize(("source", "target", "value", "expected"), [
    ("bigint", "double", 2**53, float(2**53)), ("bigint", "double", 2**53 + 1, None),
    ("bigint", "double", -(2**63), -float(2**63)), ("bigint", "double", 2**63 - 1, None),
    ("bigint", "double", 2**62, float(2**62)), ("bigint", "float", 2**24 + 1, None),
    ("bigint", "float", 2**24, 2.0**24),
    ("double", "bigint", -float(2**63), -(2**63)), ("double", "bigint", float(2**63), None),
    ("double", "int", float("nan"), None), ("double", "float", 0.1, None), ("double", "float", 0.5, 0.5),
    ("decimal(4,2)", "double", Decimal("0.10"), 0.1), ("boolean", "decimal(1,1)", True, None),
    ("boolean", "decimal(2,1)", True, Decimal("1.0")), ("int", "boolean", 1, True), ("int", "boolean", 2, None),
])  # fmt: skip
def test_a_value_is_taken_if_it_is_the_same(source: str, target: str, value: Any, expected: Any) -> None:
    kinds = parse_type(source), parse_type(target)
    found = fit(pa.array([value, None], arrow_type(kinds[0])), *kinds)
    misfits = [False, False] if found.misfit is None else found.misfit.tolist()
    assert (found.values.to_pylist(), misfits) == ([expected, None], [expected is None, False])


@pytest.mark.parametrize(("target", "expected"), [
    ("decimal(2,1)", Decimal(1)), ("decimal(1,1)", None), ("int", 1), ("double", 1),
])  # fmt: skip
def test_one_truth_becomes_a_number_of_the_type(target: str, expected: Any) -> None:
    found = converter(parse_type("boolean"), parse_type(target))(True)
    assert (found, type(found)) == (expected, type(expected))


def test_times_that_python_lacks_are_numbers() -> None:
    times = pa.array([10**18, None], pa.timestamp("us"))
    assert python_values(times) == [10**18, None]
    assert python_values(pa.array([[10**18], None], pa.list_(pa.timestamp("us")))) == [[10**18], None]
    assert python_values(pa.array([0], pa.timestamp("us"))) == [datetime(1970, 1, 1)]  # noqa: DTZ001 - without a zone
