"""Differences between a replica and the truth."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.tools.simulate.table import Differences, differences

TRUTH = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "text": ["a", None, "c"],
        "amount": pa.array([1.5, float("nan"), None]),
        "at": pa.array([datetime(2024, 1, 1, tzinfo=UTC), None, None], pa.timestamp("us", "UTC")),
        "more": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())])),
    }
)


def replica(**columns: Any) -> pa.Table:
    table = TRUTH
    for name, values in columns.items():
        table = table.set_column(table.schema.get_field_index(name), name, pa.array(values))
    return table


def test_order_other_columns_case_and_spelling_of_types_do_not_matter() -> None:
    same = replica(id=[Decimal(1), Decimal(2), Decimal(3)], at=["2024-01-01 00:00:00.000000", None, None])
    same = same.append_column("_gddl", pa.array([1, 2, 3])).take([2, 0, 1])
    same = same.rename_columns(["ID", *same.schema.names[1:]])
    assert not differences(TRUTH, same, ("id",))


def test_changed_values_are_named() -> None:
    found = differences(TRUTH, replica(text=["a", "b", "c"], amount=[1.5, 2.0, None]), ("id",))
    assert (found.missing, found.unexpected, found.different, found.columns) == (0, 0, 2, ())
    assert found.samples[0] == ((2,), "text", None, "b")


def test_nested_values_are_compared() -> None:
    found = differences(TRUTH, replica(more=[{"x": 1}, None, {"x": 3}]), ("id",))
    assert found == Differences(different=1, samples=(((3,), "more", {"x": None}, {"x": 3}),))


def test_missing_and_unexpected_keys() -> None:
    found = differences(TRUTH, replica(id=[1, 2, 4]), ("id",))
    assert found == Differences(missing=1, unexpected=1, samples=((3,), (4,)))


def test_a_key_that_comes_twice_is_unexpected() -> None:
    found = differences(TRUTH, pa.concat_tables([TRUTH, TRUTH.slice(0, 1)]), ("id",))
    assert found == Differences(unexpected=1, samples=((1,),))


@pytest.mark.parametrize("lacking", [TRUTH.drop_columns(["text"]), replica(at=["yesterday", None, None])])
def test_columns_that_lack_or_do_not_convert(lacking: pa.Table) -> None:
    found = differences(TRUTH, lacking, ("id",))
    assert found.columns in (("text",), ("at",))
    assert (found.missing, found.unexpected, found.different) == (0, 0, 0)


def test_without_keys_rows_are_counted() -> None:
    twice = pa.table({"a": [1, 1, 2]})
    assert not differences(twice, pa.table({"a": [2, 1, 1]}), ())
    found = differences(twice, pa.table({"a": [1, 2, 2]}), ())
    assert found == Differences(missing=1, unexpected=1, samples=("{'a': 1}", "{'a': 2}"))
