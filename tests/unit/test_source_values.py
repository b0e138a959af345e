"""Values of both sides as one text, and types that don't compare."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from airflow_gddl.contract.sql_types import parse_type
from spark_jobs.source_tables import SourceType
from spark_jobs.verification import MOST_RANGES, comparison, digest, range_of, ranges_of

NAIVE = datetime.fromisoformat("2024-03-31 02:30:00.000001")


@pytest.mark.parametrize(
    ("source", "lake", "one", "other"),
    [
        (SourceType(kind="whole"), "bigint", 5, Decimal(5)),
        (SourceType(kind="decimal", scale=0), "int", Decimal(5), 5),
        (SourceType(kind="whole"), "decimal(10,2)", 5, Decimal("5.00")),
        (SourceType(kind="decimal", scale=2), "decimal(38,10)", Decimal("1.50"), Decimal("1.5000000000")),
        (SourceType(kind="decimal", scale=2), "decimal(10,2)", Decimal("-0.00"), Decimal(0)),
        (SourceType(kind="decimal", scale=0), "decimal(10,0)", Decimal(100), Decimal("1E+2")),
        (SourceType(kind="double"), "double", -0.0, 0.0),
        (SourceType(kind="single"), "float", 0.1, 0.10000000149011612),
        (SourceType(kind="naive"), "timestamp_ntz", NAIVE, "2024-03-31T02:30:00.000001"),
        (SourceType(kind="aware"), "timestamp", NAIVE.replace(tzinfo=timezone(timedelta(hours=2))),
         "2024-03-31T00:30:00.000001+00:00"),
        (SourceType(kind="date"), "date", date(2024, 1, 1), date(2024, 1, 1)),
        (SourceType(kind="binary"), "binary", memoryview(b"\x00a"), bytearray(b"\x00a")),
        (SourceType(kind="boolean"), "boolean", 1, True),
        (SourceType(kind="decimal"), "decimal(38,10)", Decimal("1.5"), Decimal("1.5000000000")),
        (SourceType(kind="decimal"), "string", Decimal("1.50"), "1.5"),
        (SourceType(kind="UUID"), "string", UUID(int=10), "00000000-0000-0000-0000-00000000000A"),
        (SourceType(kind="JSONB"), "string", '{"b": [1.0, null], "a": "é"}', '{"a":"\\u00e9","b":[1,null]}'),
    ],
)  # fmt: skip
def test_the_same_value_is_the_same_text(source: SourceType, lake: str, one: Any, other: Any) -> None:
    how = comparison(source, parse_type(lake))
    assert how is not None
    assert how(one) == how(other)


@pytest.mark.parametrize(
    ("source", "lake", "one", "other"),
    [
        (SourceType(kind="text"), "string", "a", "a "),
        (SourceType(kind="text"), "string", "é", "e\u0301"),
        (SourceType(kind="decimal", scale=10), "decimal(38,10)", Decimal("9" * 28 + ".1"), Decimal("9" * 28 + ".2")),
        (SourceType(kind="double"), "double", 0.1, 0.1 + 2**-56),
        (SourceType(kind="decimal"), "decimal(38,2)", Decimal("1.505"), Decimal("1.50")),
        (SourceType(kind="decimal"), "string", Decimal(1), "one"),
        (SourceType(kind="JSON"), "string", '{"a": 0.10000000000000000001}', '{"a": 0.1}'),
        (SourceType(kind="JSON"), "string", '{"a": 1}', '{"a": "1"}'),
        (SourceType(kind="JSON"), "string", "{}", "{"),
        (SourceType(kind="aware"), "timestamp", NAIVE.replace(tzinfo=UTC), NAIVE.replace(tzinfo=UTC, microsecond=2)),
    ],
)
def test_different_values_are_different_texts(source: SourceType, lake: str, one: Any, other: Any) -> None:
    how = comparison(source, parse_type(lake))
    assert how is not None
    assert how(one) != how(other)


@pytest.mark.parametrize(
    ("source", "lake"),
    [
        (SourceType(kind="decimal", scale=4), "decimal(10,2)"),
        (SourceType(kind="naive"), "timestamp"), (SourceType(kind="aware"), "timestamp_ntz"),
        (SourceType(kind="text"), "int"), (SourceType(kind="whole"), "string"), (SourceType(kind="CHAR(5)"), "string"),
        (SourceType(kind="boolean"), "string"), (SourceType(kind="double"), "float"),
        (SourceType(kind="decimal", scale=2), "int"), (SourceType(kind="JSONB"), "binary"),
        (SourceType(kind="UUID"), "binary"), (SourceType(kind="ARRAY"), "string"),
    ],
)  # fmt: skip
def test_types_that_leave_a_choice_do_not_compare(source: SourceType, lake: str) -> None:
    assert comparison(source, parse_type(lake)) is None


def test_a_null_is_no_text_and_columns_don_t_run_into_each_other() -> None:
    rows = [(None, "a"), ("", "a"), ("-", "a"), ("a", ""), ("a", None), ("1:a", ""), ("a1:", "")]
    assert len({digest(row, (str, str)) for row in rows}) == len(rows)


def test_ranges_hold_every_key_once() -> None:
    ranges = ranges_of(45_000, -7, 44_992)
    assert len(ranges) == 5
    assert (ranges[0][0], ranges[-1][1]) == (None, None)
    for key in (*range(-50, 45_050, 37), *(end for _, end in ranges if end is not None)):
        (mine,) = [i for i, (a, b) in enumerate(ranges) if (a is None or key >= a) and (b is None or key < b)]
        assert range_of(ranges, key) == mine


@pytest.mark.parametrize(
    ("count", "low", "high"), [(10, 1, 10), (50_000, "a", "z"), (50_000, None, None), (0, None, None)]
)
def test_one_range_where_there_is_little_or_no_number(count: int, low: Any, high: Any) -> None:
    assert ranges_of(count, low, high) == [(None, None)]


def test_ranges_are_bounded() -> None:
    assert len(ranges_of(10**9, 0, 10**9)) == MOST_RANGES
    assert len(ranges_of(50_000, 1, 2)) == 2
