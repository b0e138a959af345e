"""Delta's widening list and the lossless conversions, over the matrix of all scalar types."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import get_args

import pytest

from airflow_gddl.contract.sql_types import ScalarName, SqlType, parse_type
from spark_jobs.plan.types import are_of_one_kind, common_type, convertible, integral_digits, lossless, widens

SCALAR_NAMES = frozenset(get_args(ScalarName))
# Decimals on both sides of each bound of the rules.
DIGITS = [2, 3, 4, 5, 7, 8, 9, 10, 15, 16, 18, 19, 20, 38]
DECIMALS = [f"decimal({p},0)" for p in DIGITS] + [
    f"decimal({p},{s})" for p, s in ((11, 2), (12, 2), (22, 2), (38, 18), (38, 19), (38, 38))
]
TYPES = tuple(parse_type(name) for name in [*sorted(SCALAR_NAMES), *DECIMALS])

DELTA_LIST = {
    "void": SCALAR_NAMES - {"void"},
    "tinyint": {"smallint", "int", "bigint", "double"},
    "smallint": {"int", "bigint", "double"},
    "int": {"bigint", "double"},
    "bigint": set(),
    "float": {"double"},
    "date": {"timestamp_ntz"},
}
NARROW_FOR_INT = {f"decimal({p},0)" for p in (2, 3, 4, 5, 7, 8, 9)} | {"decimal(11,2)", "decimal(38,38)"}
WIDE_FOR_INT = set(DECIMALS) - NARROW_FOR_INT
WIDE_FOR_LONG = {"decimal(20,0)", "decimal(22,2)", "decimal(38,0)", "decimal(38,18)"}

LOSSLESS = {
    "tinyint": {"smallint", "int", "bigint", "float", "double"},
    "smallint": {"int", "bigint", "float", "double"},
    "int": {"bigint", "double"},
    "float": {"double"},
    "date": {"timestamp", "timestamp_ntz"},
    "timestamp": {"timestamp_ntz"},
    "timestamp_ntz": {"timestamp"},
}


@pytest.mark.parametrize(("before", "after"), list(product(sorted(SCALAR_NAMES), repeat=2)))
def test_widening_between_plain_scalars_is_deltas_list(before: str, after: str) -> None:
    assert widens(parse_type(before), parse_type(after)) == (after in DELTA_LIST.get(before, set()))


@pytest.mark.parametrize("before", sorted(SCALAR_NAMES))
def test_widening_of_scalars_to_decimals(before: str) -> None:
    expected = {
        **dict.fromkeys(("tinyint", "smallint", "int"), WIDE_FOR_INT),
        "bigint": WIDE_FOR_LONG,
        "void": set(DECIMALS),
    }
    assert {d for d in DECIMALS if widens(parse_type(before), parse_type(d))} == expected.get(before, set())


@pytest.mark.parametrize("after", sorted(SCALAR_NAMES))
def test_decimals_widen_to_decimals_only(after: str) -> None:
    assert not any(widens(kind, parse_type(after)) for kind in TYPES if str(kind).startswith("decimal"))


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("decimal(10,2)", "decimal(11,2)", True),
        ("decimal(10,2)", "decimal(11,3)", True),
        ("decimal(10,2)", "decimal(11,4)", False),  # the scale grows by more than the precision
        ("decimal(10,2)", "decimal(10,3)", False),
        ("decimal(10,2)", "decimal(12,1)", False),
        ("decimal(10,2)", "decimal(10,2)", False),
        ("decimal(10,1)", "decimal(12,3)", True),  # the documentation's own example
        ("decimal(10,1)", "decimal(11,3)", False),
    ],
)
def test_decimals_grow_in_precision_at_least_as_in_scale(before: str, after: str, expected: bool) -> None:
    assert widens(parse_type(before), parse_type(after)) is expected


@pytest.mark.parametrize(("source", "target"), list(product(sorted(SCALAR_NAMES - {"void"}), repeat=2)))
def test_lossless_between_plain_scalars(source: str, target: str) -> None:
    expected = source == target or target in LOSSLESS.get(source, set())
    assert lossless(parse_type(source), parse_type(target)) == expected


@pytest.mark.parametrize(
    ("source", "narrowest"),
    [
        ("tinyint", "decimal(3,0)"),
        ("smallint", "decimal(5,0)"),
        ("int", "decimal(10,0)"),
        ("bigint", "decimal(19,0)"),
        ("decimal(2,0)", "tinyint"),
        ("decimal(4,0)", "smallint"),
        ("decimal(9,0)", "int"),
        ("decimal(18,0)", "bigint"),
        ("decimal(7,0)", "float"),
        ("decimal(15,0)", "double"),
        ("decimal(10,2)", "decimal(12,4)"),
    ],
)
def test_the_narrowest_target_loses_nothing(source: str, narrowest: str) -> None:
    assert lossless(parse_type(source), parse_type(narrowest))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("tinyint", "decimal(2,0)"),
        ("smallint", "decimal(4,0)"),
        ("int", "decimal(11,2)"),
        ("bigint", "decimal(18,0)"),
        ("decimal(3,0)", "tinyint"),
        ("decimal(5,0)", "smallint"),
        ("decimal(10,0)", "int"),
        ("decimal(19,0)", "bigint"),
        ("decimal(8,0)", "float"),
        ("decimal(16,0)", "double"),
        ("decimal(4,1)", "double"),
        ("decimal(4,1)", "int"),
        ("decimal(10,2)", "decimal(11,4)"),
        ("int", "string"),
        ("timestamp", "date"),
        ("int", "float"),
        ("bigint", "double"),
        ("string", "void"),
    ],
)
def test_narrower_types_are_not_lossless(source: str, target: str) -> None:
    assert not lossless(parse_type(source), parse_type(target))


def test_every_widening_is_lossless() -> None:
    for before, after in product(TYPES, repeat=2):
        assert not widens(before, after) or lossless(before, after), f"{before} -> {after}"


@pytest.mark.parametrize("relation", [widens, lossless])
def test_relations_of_types_are_transitive(relation: Callable[[SqlType, SqlType], bool]) -> None:
    pairs = {(a, b) for a, b in product(TYPES, repeat=2) if relation(a, b)}
    broken = [
        (str(a), str(b), str(c)) for a, b in pairs for c in TYPES if (b, c) in pairs and (a, c) not in pairs and a != c
    ]
    assert broken == []


def test_the_common_type_holds_both_and_is_found_whenever_the_list_has_one() -> None:
    for table, incoming in product(TYPES, repeat=2):
        found = common_type(table, incoming)
        possible = [t for t in TYPES if (t == table or widens(table, t)) and lossless(incoming, t)]
        if found is None:
            assert possible == [], f"{table} with {incoming}: {[str(t) for t in possible]}"
        else:
            assert found == table or widens(table, found), f"{table} -> {found}"
            assert lossless(incoming, found), f"{incoming} into {found}"


@pytest.mark.parametrize(
    ("table", "incoming", "expected"),
    [
        ("bigint", "int", "bigint"),
        ("int", "bigint", "bigint"),
        ("decimal(10,2)", "decimal(8,4)", "decimal(12,4)"),
        ("int", "decimal(10,2)", "decimal(12,2)"),
        ("bigint", "decimal(10,2)", "decimal(22,2)"),
        ("decimal(5,2)", "int", "decimal(12,2)"),
        ("decimal(5,2)", "bigint", "decimal(21,2)"),
        ("decimal(10,0)", "int", "decimal(10,0)"),
        ("decimal(38,19)", "bigint", "decimal(38,19)"),
        ("decimal(38,20)", "bigint", None),
        ("decimal(38,0)", "decimal(10,2)", None),
        ("tinyint", "decimal(4,0)", "smallint"),
        ("int", "decimal(10,0)", "decimal(10,0)"),
        ("int", "float", "double"),
        ("float", "int", "double"),
        ("bigint", "double", None),
        ("double", "bigint", None),
        ("double", "decimal(10,2)", None),
        ("date", "timestamp", "timestamp_ntz"),
        ("timestamp", "date", "timestamp"),
        ("timestamp", "timestamp_ntz", "timestamp"),
        ("int", "string", None),
        ("string", "int", None),
        ("void", "string", "string"),
        ("string", "void", "string"),
        ("boolean", "tinyint", None),
    ],
)
def test_common_type_holds_both(table: str, incoming: str, expected: str | None) -> None:
    found = common_type(parse_type(table), parse_type(incoming))
    assert (None if found is None else str(found)) == expected


@pytest.mark.parametrize(
    ("source", "targets"),
    [
        ("string", SCALAR_NAMES - {"void"}),
        ("int", {"tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean"}),
        ("boolean", {"tinyint", "smallint", "int", "bigint", "float", "double", "string", "boolean"}),
        ("date", {"date", "timestamp", "timestamp_ntz", "string"}),
        ("binary", {"binary", "string"}),
        ("array<string>", set()),
        ("struct<a:string>", set()),
    ],
)
def test_what_may_be_tried_value_by_value(source: str, targets: set[str]) -> None:
    kind = parse_type(source)
    assert {name for name in SCALAR_NAMES if convertible(kind, parse_type(name))} == targets


def test_integral_digits_of_numeric_types() -> None:
    found = {name: integral_digits(parse_type(name)) for name in ("tinyint", "bigint", "decimal(12,2)", "double")}
    assert found == {"tinyint": 3, "bigint": 19, "decimal(12,2)": 10, "double": None}


def test_complex_types_are_nothing_to_the_list() -> None:
    kinds: list[SqlType] = [parse_type(text) for text in ("array<int>", "struct<a:int>", "interval day")]
    assert not any(widens(kind, other) for kind in kinds for other in TYPES)
    assert not any(lossless(kind, other) for kind in kinds for other in TYPES)


@pytest.mark.parametrize(("stored", "wanted", "alike"), [
    ("int", "bigint", True), ("bigint", "int", True), ("int", "string", False), ("struct<a:int>", "int", False),
    ("struct<a:int>", "struct<a:bigint>", True), ("struct<a:int>", "struct<a:string>", False),
    ("struct<a:int>", "struct<b:int>", False), ("struct<a:int>", "struct<a:int,b:int>", False),
    ("struct<a:struct<b:int>>", "struct<a:struct<b:string>>", False),
])  # fmt: skip
def test_structs_are_of_one_kind_where_each_field_is(stored: str, wanted: str, alike: bool) -> None:
    assert are_of_one_kind(parse_type(stored), parse_type(wanted)) is alike
