"""Numbers in text have the order of numbers, and the form that the oracle gives them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from spark_jobs.plan.sequence import fit_together, have_one_type, require_one_width, sort_key, widths_of
from spark_jobs.rules.texts import forms, nano_text, normal_form, width
from tests.oracle.casting import normal_text

TEXTS = [
    "0/9FFFFFF", "0/10000000", "ff/FF", "123456789/0", "ff", "0xFf", "0X", "0x", "100", "9", "007", "9.5", "10.50",
    "1.0", "1.", ".5", "1.2.3", "-1", "", " 1", "1 ", "1\n", "log-9", "x", "1e5", "0/", "2024-01-01", "\u017f",
    "2025-09-09T02:30:00+02:00", "2025-09-09 02:10:00.5 -0130", "2025-09-09t02:10z", "2025-09-09T02:10:00.123456789Z",
    "2025-02-30", "2025-13-01", "2025-09-09T24:00:00", "2025-09-09T02:10:00.1234567891", "2025-09-09T02:10:00+18:00",
    "2025-09-09T02:10.5", "09-SEP-25", "2025-09-09T02:10:00 Europe/Berlin", "1969-12-31T23:59:59.999999999Z",
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


_TIMES = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31))  # noqa: DTZ001 - as a text without a zone states it
_ZONES = st.one_of(
    st.just(""), st.just("Z"), st.just(" UTC"),
    st.integers(-17 * 60, 17 * 60).map(lambda m: f"{'-' if m < 0 else '+'}{abs(m) // 60:02}:{abs(m) % 60:02}"),
)  # fmt: skip
_PRECISE = st.tuples(_TIMES, st.integers(0, 999), _ZONES, st.sampled_from("T "), st.integers(0, 9))


def _time(at: datetime, nanos: int, zone: str, mark: str, digits: int) -> tuple[str, int]:
    """A time as text, and the nanoseconds that it means."""
    fraction = f"{at.microsecond:06}{nanos:03}"[:digits]
    text = f"{at.isoformat(mark, 'seconds')}{'.' if fraction else ''}{fraction}{zone}"
    whole = int((at.replace(microsecond=0, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
    size = 60 * int(zone[1:3]) + int(zone[4:]) if zone[:1] in ("+", "-") else 0
    ahead = -size if zone[:1] == "-" else size
    return text, (whole - 60 * ahead) * 10**9 + int(fraction.ljust(9, "0"))


@given(_PRECISE, _PRECISE)
def test_times_compare_as_instants(one: Any, other: Any) -> None:
    (first, early), (second, late) = _time(*one), _time(*other)
    low, high = normal(first, second)
    assert forms(pa.array([first, second])).to_pylist() == ["time", "time"]
    assert ((low < high), (low == high)) == ((early < late), (early == late))


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_nanoseconds_compare_as_numbers(one: int, other: int) -> None:
    micros = pa.array([one // 1000, other // 1000], pa.timestamp("us"))
    low, high = nano_text(micros, pa.array([one % 1000, other % 1000], pa.int64())).to_pylist()
    assert ((low < high), (low == high)) == ((one < other), (one == other))
    assert normal(low, high) == [low, high]


def _of_pattern(pattern: str) -> st.SearchStrategy[str]:
    return st.from_regex(re.compile(pattern, re.ASCII), fullmatch=True)


_VALUES: dict[str, tuple[st.SearchStrategy[str], Callable[[str], Any]]] = {
    "digits": (_of_pattern("[0-9]{1,20}"), int),
    "hexadecimal": (_of_pattern("(0[xX])?[0-9a-fA-F]{0,8}[a-dA-D]"), lambda text: int(text, 16)),
    "decimal": (_of_pattern("[0-9]{1,10}([.][0-9]{1,10})?"), Decimal),
    "log sequence number": (_of_pattern("[0-9A-F]{1,8}/[0-9A-F]{1,8}"), lambda text: _parts(text, 16)),
    "groups": (_of_pattern("log-[0-9]{4}[.][0-9]{3}"), lambda text: _parts(text.removeprefix("log-"), 10)),
    "groups of hexadecimal digits": (
        _of_pattern("[0-9a-f]{8}:[0-9a-f]{8}:[0-9a-f]{4}"), lambda text: _parts(text, 16)),
    "signed": (_of_pattern("[+-]?[0-9]{1,3}"), int),
    "exponent": (_of_pattern("[1-9](e[0-9])?"), float),
    "exponent with a point": (_of_pattern("[0-9]([.][0-9])?(e[+-]?[0-9])?"), float),
    "day first": (
        _of_pattern("(0[1-9]|1[0-9]|2[0-8])-(SEP|DEC|FEB)-(24|25)"),
        lambda text: (text[-2:], ("FEB", "SEP", "DEC").index(text[3:6]), text[:2])),
    "day first in digits": (
        _of_pattern("(0[1-9]|1[0-9]|2[0-8])[.](0[1-9]|1[0-2])[.]202[0-9]"), lambda text: text.split(".")[::-1]),
    "month and year": (_of_pattern("(0[1-9]|1[0-2])-202[0-9]"), lambda text: text.split("-")[::-1]),
    "month by name first": (
        _of_pattern("Sep-(0[1-9]|1[0-9])-202[0-9]"), lambda text: text.split("-")[::-1]),
    "groups with a zone": (
        _of_pattern("2025-09-09-02[.][0-5][0-9][.]00-0[45]:00"),
        lambda text: 60 * int(text[-5:-3]) + int(text[14:16])),
    "digits with a zone": (
        _of_pattern("2025090902[0-5][0-9]00-0[45]00"), lambda text: 60 * int(text[-4:-2]) + int(text[10:12])),
    "groups with hours of a zone": (
        _of_pattern("2025-09-09-02[.][0-5][0-9][.]00-0[45]"), lambda text: 60 * int(text[-2:]) + int(text[14:16])),
    "days with a zone": (_of_pattern("2025-09-09-0[45]:00"), lambda text: int(text[-5:-3])),
    "month and year by a slash": (
        _of_pattern("(0[1-9]|1[0-2])/20[12][0-9]"), lambda text: text.split("/")[::-1]),
    "month and year by a point": (
        _of_pattern("(0[1-9]|1[0-2])[.]20[12][0-9]"), lambda text: text.split(".")[::-1]),
    "day and month": (_of_pattern("(0[1-9]|1[0-9])/(0[1-9]|1[0-2])"), lambda text: text.split("/")[::-1]),
    "quarter and year": (_of_pattern("Q[1-4]-202[0-9]"), lambda text: text[1:].split("-")[::-1]),
    "time of day": (_of_pattern("(0[0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]"), lambda text: int(text[0] == "0")),
}  # fmt: skip
"""Texts of one meaning, and the value of each."""
_ACCEPTED = {
    "digits", "hexadecimal", "decimal", "log sequence number", "groups", "groups of hexadecimal digits", "signed",
    "exponent", "exponent with a point",
}  # fmt: skip
"""All others have no order as text, in whatever values."""


def _parts(text: str, base: int) -> list[int]:
    return [int(part, base) for part in re.split("[/.:]", text)]


@pytest.mark.parametrize("name", _VALUES)
@given(data=st.data())
def test_accepted_text_has_the_order_of_its_values(name: str, data: st.DataObject) -> None:
    """What passes as one form and one width is in the order of the values; everything else is refused."""
    texts, value = _VALUES[name]
    drawn = data.draw(st.lists(texts, min_size=2, max_size=4))
    kept = normal(*drawn)
    widths = set(width(pa.array(kept)).to_pylist())
    found = set(forms(pa.array(drawn)).to_pylist())
    accepted = fit_together(found) and len(widths) == 1
    if accepted:
        assert sorted(kept) == [k for _, k in sorted(zip(map(value, drawn), kept, strict=True))]
    assert not (accepted and name not in _ACCEPTED)
    assert accepted or "month" in found or name not in ("digits", "decimal", "log sequence number")


@pytest.mark.parametrize(
    ("forms_found", "fits"),
    [
        (["hex", "digits", "power"], True), (["digits", "power"], False), (["power"], False), ([""], False),
        (["digits", "decimal"], True), (["hex", "decimal"], False), (["time", "digits"], False), (["time"], True),
        (["groups lower 00:00", "groups digits 00:00"], True), (["groups lower 00:00", "groups upper 00:00"], False),
        (["month", "lsn"], True), (["month", "decimal", "digits"], True), (["month"], False),
        (["month", "digits"], False),
        (["groups digits 00:00", "groups digits 00-00"], False), (["time 0000-00-00 ", "time 0000-00-00 Z"], False),
    ],
)  # fmt: skip
def test_forms_that_compare(forms_found: list[str], fits: bool) -> None:
    assert fit_together(forms_found) is fits


def test_random_identifiers_have_no_order() -> None:
    found = forms(pa.array(["550e8400-e29b-41d4-a716-446655440000", "018f8400-e29b-71d4-a716-446655440000",
                            "01ARZ3NDEKTSV4RRFFQ69G5FAV", None]))  # fmt: skip
    assert found.to_pylist() == ["", "groups lower 00000000-0000-0000-0000-000000000000", "ulid", None]


def test_null_stays_null() -> None:
    assert normal_form(pa.array([None, "1"], pa.string())).to_pylist() == [None, "0" * 19 + "1"]


def test_normal_forms_are_stable() -> None:
    assert normal(*normal(*TEXTS)) == normal(*TEXTS)


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
