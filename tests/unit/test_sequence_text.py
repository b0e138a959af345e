"""Numbers in text have the order of numbers, and the form that the oracle gives them."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from spark_jobs.plan.sequence import have_one_type, require_one_width, sort_key, widths_of
from spark_jobs.rules.sequence_text import normal_form, normal_json, width
from tests.oracle.casting import normal_text

TEXTS = [
    "0/9FFFFFF", "0/10000000", "ff/FF", "123456789/0", "ff", "0xFf", "0X", "0x", "100", "9", "007", "9.5", "10.50",
    "1.0", "1.", ".5", "1.2.3", "-1", "", " 1", "1 ", "1\n", "log-9", "x", "1e5", "0/", "2024-01-01", "\u017f",
    "A" * 30, "9" * 35,
]  # fmt: skip
_DIGITS = st.integers(0, 10**25)


def normal(*texts: str) -> list[str]:
    found: list[str] = normal_form(pa.array(texts, pa.string())).to_pylist()
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_the_oracle_has_the_same_form(text: str) -> None:
    assert normal(text) == [normal_text(text)]


@given(_DIGITS, _DIGITS)
def test_digits_compare_as_numbers(one: int, other: int) -> None:
    if max(one, other) < 10**20:
        low, high = normal(str(one), str(other))
        assert (low < high) == (one < other)
        low, high = normal(f"{one:x}", f"0x{other:X}")
        assert (low < high) == (one < other)


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_log_sequence_numbers_compare_as_numbers(one: int, other: int) -> None:
    low, high = normal(*(f"{n >> 32:X}/{n & 0xFFFFFFFF:X}" for n in (one, other)))
    assert (low < high) == (one < other)


@given(*[st.decimals(0, 10**12, places=6, allow_nan=False)] * 2)
def test_decimal_numbers_compare_as_numbers(one: Decimal, other: Decimal) -> None:
    low, high = normal(f"{one:f}", f"{other:f}")
    assert (low < high) == (one < other)


def test_null_stays_null() -> None:
    assert normal_form(pa.array([None, "1"], pa.string())).to_pylist() == [None, "0" * 19 + "1"]


def test_normal_forms_are_stable() -> None:
    assert normal(*normal(*TEXTS)) == normal(*TEXTS)


def test_the_ledgers_sequences_take_the_same_form() -> None:
    assert normal_json('"0/A"', ("seq",)) == '"00000000/0000000A"'
    assert normal_json('{"lsn": "0/A", "n": 7, "t": "9"}', ("lsn",)) == '{"lsn": "00000000/0000000A", "n": 7, "t": "9"}'
    assert (normal_json(None, ("seq",)), normal_json("7", ("seq",))) == (None, "7")


def test_digits_after_the_point_have_no_width() -> None:
    assert width(pa.array(["10.25", "10", "1.2.3", None])).to_pylist() == [2, 2, 5, None]
    assert widths_of('{"a": "10.25", "n": 7}', ("a", "n")) == {"a": 2}
    assert widths_of('"log-9"', ("seq",)) == {"seq": 5}
    assert widths_of(None, ("seq",)) == {}


def test_text_of_varying_width_is_refused_with_examples() -> None:
    require_one_width({"seq": (5, 5)}, {"seq": 5}, {'"log-9"': ""}, "")
    with pytest.raises(
        FatalError, match=r"seq: sequences are text of 5 to 6 characters.*log-9\", \"log-10\" in a.csv"
    ) as raised:
        require_one_width({"seq": (6, 6)}, {"seq": 5}, {'"log-10"': "a.csv", '"log-9"': ""}, "name another column")
    assert raised.value.code == "SEQUENCE_WIDTH"


def test_ledgers_numbers_without_digits_have_the_order_of_delta() -> None:
    ordered = ['"-Infinity"', "-1.5", "0", "1.0E308", '"Infinity"', '"NaN"']
    assert sorted(sorted(ordered), key=sort_key) == ordered
    assert min('{"a": "NaN", "b": 1}', '{"a": 2, "b": 3}', key=sort_key) == '{"a": 2, "b": 3}'
    assert have_one_type("1", '"NaN"')
    assert not have_one_type("1", '"text"')
