"""Expressions over Arrow columns: DuckDB, which knows nothing of this package, gives the same values."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import Expectation
from airflow_gddl.metadata.expression_text import parsed, with_expressions
from spark_jobs.rules.evaluate import Columns, of_table, outside_filter, tree_of
from tests.harness.examples import at_random
from tests.rules.changes import Change, in_file, table, table_schema

_ROWS = pa.table(
    {
        "i": pa.array([0, 1, -7, 5, None, 1000], pa.int32()),
        "l": pa.array([3, -1, 2**63 - 1, None, -(2**63), 10], pa.int64()),
        "d": pa.array([Decimal("1.50"), Decimal("-0.01"), None, Decimal("1234.25"), Decimal("0.00"), Decimal("2.5")],
                      pa.decimal128(12, 2)),
        "f": pa.array([0.5, -2.5, 1e300, None, 0.0, 3.0], pa.float64()),
        "s": pa.array(["DE", "", " at ", None, "Größe", "d%e"], pa.string()),
        "t": pa.array(["2024-02-29", "DE", "x", "b", None, "2023-12-31"], pa.string()),
        "b": pa.array([True, False, None, True, False, None], pa.bool_()),
        "day": pa.array([date(2024, 2, 29), date(1969, 12, 31), None, date(2024, 1, 1), date(9999, 1, 1),
                         date(1, 1, 1)]),
        "moment": pa.array(["2024-02-29 23:59:59.999999", "1969-12-31 23:00:00", None, "2024-01-01 00:00:00",
                            "2000-01-01 12:00:00", "1960-05-05 05:00:00"]).cast(pa.timestamp("us")),
    }
)  # fmt: skip


def _columns(rows: pa.Table = _ROWS) -> Columns:
    names = {name.lower(): name for name in rows.column_names}
    return of_table(rows, lambda name: names.get(name.lower()), "s.t, expect.ok")


def _of_duckdb(text: str) -> list[Any]:
    connection = duckdb.connect()
    connection.execute("set error_on_division_by_zero = false")
    connection.register("given", _ROWS)
    connection.execute("create table rows as select row_number() over () as n, * from given")
    text = text.replace("regexp_like(", "regexp_matches(")
    return [value for (value,) in connection.execute(f"select {text} from rows order by n").fetchall()]


def _plain(value: Any) -> Any:
    return float(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value


_SAME = (
    "i > 0", "i >= l", "d = 1.5", "d > i", "f < d", "l <> 3", "i between 0 and 5", "d between -0.01 and i",
    "i in (1, 5)", "s in ('DE', 'AT')", "d in (1.5, 2.50)", "not b", "b or i > 0", "b and i > 0", "not (b or i > 0)",
    "i is null", "b is null or not b", "s like 'D%'", "s like '%r_ß%'", "s not like '%E'", "regexp_like(s, '^[A-Z]+$')",
    "i + 1", "i + l > 0 or l is null", "d * d", "d - 0.5", "d + i", "i / 2", "d / 3 > 1", "mod(i, 3)", "mod(i, 0)",
    "mod(-7, i)", "-i", "- d", "abs(i)", "abs(d)", "abs(f)", "round(d)", "round(d, 1)", "round(f)", "round(i)",
    "lower(s)", "upper(t)", "trim(s)", "length(s)", "length(trim(s)) > 1", "substring(s, 2)", "substring(s, 1, 2)",
    "substring(s, 3, 100)", "s || t", "s || '-' || t", "coalesce(s, t)", "coalesce(i, l, 7)", "nullif(s, 'DE')",
    "nullif(i, 0)", "year(day)", "month(moment)", "day(day)", "hour(moment)", "date(moment)", "date(day)",
    "day = date '2024-02-29'", "moment >= timestamp '2000-01-01 12:00:00'", "day > moment", "day < '2024-01-01'",
    "moment > '2024-01-01 00:00:00'", "s > t", "s < 'E'", "b = true", "b <> false", "f = 0", "f * 2 > 1", "i * i",
    "i - 1000", "day between date '2024-01-01' and date '2024-12-31'",
)  # fmt: skip


@pytest.mark.parametrize("text", _SAME)
def test_values_are_those_of_duckdb(text: str) -> None:
    found = [_plain(value) for value in _columns().evaluate(parsed(text)).to_pylist()]
    assert (
        found == pytest.approx([_plain(value) for value in _of_duckdb(text)], nan_ok=True)
        if _is_real(found)
        else (found == [_plain(value) for value in _of_duckdb(text)])
    )


def _is_real(values: list[Any]) -> bool:
    return False if any(value is None for value in values) else all(isinstance(value, float) for value in values)


_ATOMS = (
    "i > 0",
    "b",
    "s = 'DE'",
    "d < 2",
    "i is null",
    "day >= '2024-01-01'",
    "s in ('DE', '')",
    "l between 0 and 10",
)
_CONDITIONS = st.recursive(
    st.sampled_from(_ATOMS),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(("and", "or")), inner).map(lambda parts: f"({' '.join(parts)})"),
        inner.map(lambda one: f"not ({one})"),
    ),
    max_leaves=12,
)


@given(_CONDITIONS)
@settings(max_examples=at_random(60))
def test_conditions_have_the_three_values_of_sql(text: str) -> None:
    assert _columns().condition(parsed(text)).to_pylist() == _of_duckdb(text)


def test_what_can_not_be_computed_is_null_and_no_error() -> None:
    assert _columns().evaluate(parsed("date(t)")).to_pylist() == [date(2024, 2, 29), *[None] * 4, date(2023, 12, 31)]
    assert _columns().evaluate(parsed("i / 0")).to_pylist() == [None] * 6
    assert _columns().evaluate(parsed("l + 1")).to_pylist()[2] == float(2**63)
    assert _columns().evaluate(parsed("abs(l)")).to_pylist()[4] == float(2**63)
    assert _columns().evaluate(parsed("l * l")).to_pylist()[2] == pytest.approx(float(2**63) ** 2)


_MISTYPED = (
    "i = 's'", "s > 1", "s + 1 > 0", "b > true", "not i", "i and b", "i", "lower(i) = 'x'", "length(i) = 1",
    "year(i) = 1", "hour(day) = 1", "day > 'soon'", "coalesce(s, i) = 1", "s between 1 and 2", "i in ('a')",
    "abs(s) = 1", "i < d < f",
)  # fmt: skip


@pytest.mark.parametrize("text", _MISTYPED)
def test_types_that_do_not_fit_are_refused_without_rows_too(text: str) -> None:
    for rows in (_ROWS, _ROWS.slice(0, 0)):
        with pytest.raises(FatalError) as caught:
            _columns(rows).condition(parsed(text))
        assert (caught.value.code, caught.value.where) == ("EXPRESSION_INVALID", "s.t, expect.ok")


def test_columns_that_the_table_lacks_are_named() -> None:
    assert _columns().condition(parsed("S = 'DE'")).to_pylist()[0] is True
    with pytest.raises(FatalError) as caught:
        _columns().condition(parsed("quantity > 0"))
    assert caught.value.code == "EXPRESSION_INVALID"
    assert "'quantity'" in caught.value.what


@pytest.mark.parametrize("pattern", ["((a{1000}){1000}){1000}", "(", "a**"])
def test_patterns_that_re2_refuses_are_no_fault_of_a_file(pattern: str) -> None:
    from airflow_gddl.contract.table_spec import COLUMN, Term  # noqa: PLC0415 - beside its only use

    tree = Term(op="regexp_like", args=(Term(op=COLUMN, value="s"), Term(op="text", value=pattern)))
    with pytest.raises(FatalError) as caught:
        _columns().condition(tree)
    assert caught.value.code == "EXPRESSION_INVALID"


def test_a_pattern_that_backtracks_elsewhere_takes_linear_time() -> None:
    rows = pa.table({"s": pa.array(["a" * 100_000 + "b"] * 3)})
    assert _columns(rows).condition(parsed("regexp_like(s, '^(a+)+$')")).to_pylist() == [False] * 3
    assert _columns(rows).condition(parsed(f"s like '{'%a' * 50}c'")).to_pylist() == [False] * 3


def test_a_specification_without_trees_is_refused() -> None:
    spec = TableSpec(table="s.t", keys=("id",), expect={"ok": Expectation(rule="a > 0")})
    with pytest.raises(FatalError) as caught:
        tree_of(spec, "a > 0")
    assert caught.value.code == "SPEC_INVALID"


@pytest.mark.parametrize(
    ("text", "what"), [("day > 'soon'", "'soon' is no date"), ("moment > 'soon'", "'soon' is no time")]
)
def test_text_beside_a_date_or_a_time_is_told_which_it_is_not(text: str, what: str) -> None:
    with pytest.raises(FatalError, match=what):
        _columns().condition(parsed(text))


def test_rest_of_whole_numbers_has_all_their_digits() -> None:
    assert _columns().evaluate(parsed("mod(l, 10)")).to_pylist() == [3, -1, 7, None, -8, 0]


def test_rows_with_an_error_are_not_taken_for_rows_outside_the_filter() -> None:
    """They go into the quarantine, and are decided when they come back."""
    schema = table_schema(where="v = 'in'")
    schema = replace(schema, spec=with_expressions(schema.spec))
    rows = table(in_file(Change(op="I", v="out"), Change(op="I", v="out"), Change(op="D", v="out")), schema)
    outside, _ = outside_filter(rows, schema, np.array([True, False, True]))
    assert outside.tolist() == [True, False, False]
