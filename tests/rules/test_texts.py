"""Texts as values: the rules against the oracle, many texts of all sorts in one column."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.sql_types import (
    ArrayType,
    MapType,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    is_complex,
    parse_type,
)
from spark_jobs.rules.convert import fit
from spark_jobs.rules.texts import json_writer, reader
from tests.oracle.texts import cast_text

TYPES = ("tinyint", "smallint", "int", "bigint", "decimal(8,2)", "decimal(38,10)", "float", "double", "boolean",
         "date", "timestamp", "timestamp_ntz", "binary")  # fmt: skip
ODD = ("10000-01-01", "0000-01-01 00:00:00", "0001-01-01", "9999-12-31 23:59:59.999999", "03:04:05", "T03:04:05",
       "2024-02-30", "2024-02-29", "2024-1-2", "2024", "2024-03", "2024-01-02T00:00:00Z", "2024-01-02 00:00:00+02:00",
       "2024-01-02Z", "2024-1-2+02:00", "2024-01-02-05:00", "2024-01-02-19:00", "2024-01Z", "2024Z", "2024-01-02 Z",
       "2024-01-02+0200", "2024-01-02UTC", "9999-12-31-05:00", "0001-01-01+05:00", "2024-01-05:00",
       "20240102", "2024-01-02 24:00:00", "2024-01-02 3:4:5", "2024-01-02 03:04", "2024-01-02 03:04:05 Europe/Berlin",
       "2024-01-02 03:04:05europe/berlin", "2024-01-02 03:04:05.1234567", "2024-01-02 03:04:05 +0200",
       "9999-12-31T23:00-05",
       "2024-01-02 03:04:05.", "2024-01-02 ", "2024-01-02 03:04:05 localtime", "0001-01-01 00:00:00+01:00",
       "\u00a05", "5\u00a0", "\ttrue", " 4 ", "1_000", "+3", "--3", "0x1F", "1.0", "1.", ".5", ".", "1e2", "1.55e1",
       "1.555e1", "1e400", "-1e-400", "NaN", "-inf", "+Infinity", "1d", "0x1p3", "1e39", "16777217", "\uff15", "\u0663",
       "2147483648", "-2147483648", "99999999999999999999", "1.50000", "1.505", "true", "T", "on", "2", "", " ",
       "0" * 40, "-0", "-0.0", "999999.99", "1000000", "1" * 38, "1e501", "5" * 501)  # fmt: skip

_NUMBERS = st.from_regex(r"[+-]?[0-9]{0,12}(\.[0-9]{0,12})?([eE][+-]?[0-9]{1,3})?", fullmatch=True)
_TIMES = st.from_regex(
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}([ T][0-2]?[0-9]:[0-5]?[0-9](:[0-6]?[0-9](\.[0-9]{0,9})?)?"
    r" ?(Z|UTC|[+-][01]?[0-9](:?[0-5][0-9])?|Asia/Tokyo|America/New_York|Mars)?)?",
    fullmatch=True,
)
_SANE_TIMES = st.datetimes().map(str)
_BLANKED = st.tuples(st.sampled_from(["", " ", "\t", "\n", "\u00a0", "\u2003"]), st.sampled_from(ODD)).map("".join)
TEXTS = st.one_of(st.sampled_from(ODD), _NUMBERS, _TIMES, _SANE_TIMES, _BLANKED, st.text(max_size=12),
                  st.text("0123456789-+:. TZe/", max_size=24))  # fmt: skip


def expected(text: str, kind: str) -> Any:
    try:
        return cast_text(text, kind)
    except ValueError:
        return None


def same(found: Any, wanted: Any) -> bool:
    if isinstance(found, datetime):
        found = found.replace(tzinfo=None)
    if isinstance(found, float) and isinstance(wanted, float):
        return math.isnan(found) == math.isnan(wanted) and (math.isnan(found) or repr(found) == repr(wanted))
    return type(found) is type(wanted) and bool(found == wanted)


def differences(texts: list[str], kind: str) -> list[tuple[str, Any, Any]]:
    fitted = fit(pa.array(texts, pa.string()), parse_type("string"), parse_type(kind)).values.to_pylist()
    pairs = [(t, f, expected(t, kind)) for t, f in zip(texts, fitted, strict=True)]
    return [(t, f, w) for t, f, w in pairs if not same(f, w)]


@pytest.mark.parametrize("kind", TYPES)
def test_unusual_texts_convert_as_in_the_oracle(kind: str) -> None:
    assert differences(list(ODD), kind) == []


@pytest.mark.parametrize("kind", TYPES)
@given(texts=st.lists(TEXTS, min_size=1, max_size=20))
def test_every_text_converts_as_in_the_oracle(kind: str, texts: list[str]) -> None:
    assert differences(texts, kind) == []


@pytest.mark.parametrize("kind", TYPES)
@given(text=TEXTS)
def test_single_text_converts_equally(kind: str, text: str) -> None:
    assert differences([text], kind) == []


SCALARS = {
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "string": st.text(st.characters(codec="utf-8")),
    "binary": st.binary(max_size=8),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "decimal(12,3)": st.decimals(-(10**8), 10**8, places=3),
}
Typed = tuple[SqlType, st.SearchStrategy[object]]


def nested(inner: Typed) -> st.SearchStrategy[Typed]:
    """An array, a struct and a map of a type."""
    kind, values = inner
    maybe = st.none() | values
    array = (ArrayType(kind), st.lists(maybe, max_size=3))
    names = st.text("abß`:,", min_size=1, max_size=3)
    key = (ScalarType("string"), names)
    of_map = (MapType(key[0], kind), st.dictionaries(names, maybe, max_size=3).map(lambda found: list(found.items())))
    fields = ("a", "B c", "ß")
    struct = StructType(tuple(StructField(name, kind) for name in fields))
    return st.sampled_from([array, of_map, (struct, st.fixed_dictionaries(dict.fromkeys(fields, maybe)))])


TYPED: st.SearchStrategy[Typed] = st.recursive(
    st.sampled_from([(parse_type(name), values) for name, values in SCALARS.items()]),
    lambda inner: inner.flatmap(nested), max_leaves=4,
).filter(lambda typed: is_complex(typed[0]))  # fmt: skip


@given(TYPED.flatmap(lambda typed: st.tuples(st.just(typed[0]), typed[1])), st.booleans())
def test_nested_values_are_read_as_they_are_written(found: tuple[SqlType, object], nulls: bool) -> None:
    kind, value = found
    assert reader(kind)(json_writer(kind, nulls=nulls)(value)) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("array<int>", "["), ("array<int>", "1"), ("array<int>", "{}"), ("array<int>", '["x"]'),
        ("array<int>", "[1.5]"),
        ("array<int>", "[2147483648]"), ("array<int>", "[true]"), ("array<int>", "[[1]]"), ("array<int>", "[1] [2]"),
        ("array<int>", "[" * 100_000), ("array<int>", f"[{'9' * 100_000}]"), ("array<double>", "[1e999999999]"),
        ("array<string>", '["\\ud800"]'), ("array<string>", "[{}]"), ("array<binary>", '["a"]'),
        ("array<timestamp>", '["2024-01-01T00:00:00.0000001Z"]'), ("struct<a:int>", "[]"), ("struct<a:int>", '{"b":1}'),
        ("struct<a:int>", '{"a":1,"a":2}'), ("struct<a:int>", '{"a":1,"A":1}'), ("map<int,int>", '{"1":1,"01":2}'),
        ("map<int,int>", '{"x":1}'), ("array<boolean>", "[2]"),
    ],
)  # fmt: skip
def test_what_a_nested_type_does_not_hold_is_a_misfit(kind: str, text: str) -> None:
    assert reader(parse_type(kind))(text) is None
