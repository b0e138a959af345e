"""Type strings: read, printed, and refused."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.option_checks import type_fault
from airflow_gddl.contract.sql_types import (
    VOID,
    ArrayType,
    DecimalType,
    MapType,
    ScalarName,
    ScalarType,
    SqlType,
    StructField,
    StructType,
    UnsupportedType,
    parse_type,
    parts,
    unsupported_part,
    without_void,
)

SCALARS: tuple[ScalarName, ...] = get_args(ScalarName)
INT = ScalarType("int")


def _scalars() -> st.SearchStrategy[SqlType]:
    decimals = st.integers(1, 38).flatmap(lambda p: st.builds(DecimalType, st.just(p), st.integers(0, p)))
    return st.sampled_from([ScalarType(name) for name in SCALARS]) | decimals


def _structs(inner: st.SearchStrategy[SqlType]) -> st.SearchStrategy[StructType]:
    names = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=6)
    fields = st.lists(st.builds(StructField, names, inner), max_size=4)
    return fields.map(lambda found: StructType(tuple(found)))


TYPES = st.recursive(
    _scalars(),
    lambda inner: st.builds(ArrayType, inner) | st.builds(MapType, inner, inner) | _structs(inner),
    max_leaves=8,
)


@given(TYPES)
def test_every_type_is_read_back_as_it_was_printed(kind: SqlType) -> None:
    assert parse_type(str(kind)) == kind


@pytest.mark.parametrize("name", SCALARS)
def test_scalars_print_as_spark_does(name: ScalarName) -> None:
    assert parse_type(name.upper()) == ScalarType(name)
    assert str(parse_type(name)) == name


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("byte", "tinyint"),
        ("SHORT", "smallint"),
        ("integer", "int"),
        ("long", "bigint"),
        ("real", "float"),
        ("timestamp_ltz", "timestamp"),
        ("decimal", "decimal(10,0)"),
        ("numeric(7)", "decimal(7,0)"),
        (" DEC ( 12 , 2 ) ", "decimal(12,2)"),
        ("varchar(20)", "string"),
        ("char(3)", "string"),
        ("ARRAY< INT >", "array<int>"),
        ("map<string, array<double>>", "map<string,array<double>>"),
        ("STRUCT<a: INT, B: STRING>", "struct<a:int,B:string>"),
        ("struct<>", "struct<>"),
        ("struct<a:int NOT NULL COMMENT 'it\\'s, a: <b>',c:int>", "struct<a:int,c:int>"),
        ("struct<a:decimal(4,1) not null>", "struct<a:decimal(4,1)>"),
        ("struct<order id:int>", "struct<`order id`:int>"),
        ("struct<`a:b`:int,`c``d`:int,`e>`:int>", "struct<`a:b`:int,`c``d`:int,`e>`:int>"),
        ("struct<1st:int>", "struct<`1st`:int>"),
        ("struct<array:int,int:array<int>>", "struct<array:int,int:array<int>>"),
        ("interval day to second", "interval day to second"),
        ("VARIANT", "variant"),
        ("time(6)", "time(6)"),
        ("decimal(39,0)", "decimal(39,0)"),
        ("decimal(2,3)", "decimal(2,3)"),
        ("struct<t:time(6),i:interval year,x:int>", "struct<t:time(6),i:interval year,x:int>"),
    ],
)
def test_other_spellings_give_the_canonical_type(text: str, canonical: str) -> None:
    assert str(parse_type(text)) == canonical


@pytest.mark.parametrize(
    "text", ["", "  ", "123", "int int>", "array<", "array<int", "map<int>", "struct<a>", "struct<a int>", "int)", "<>"]
)
def test_what_is_no_type_is_refused(text: str) -> None:
    with pytest.raises(FatalError) as caught:
        parse_type(text)
    assert caught.value.code == "COLUMN_TYPE_UNSUPPORTED"
    assert repr(text) in caught.value.what


@pytest.mark.parametrize("text", ["interval day", "array<interval day>", "map<string,struct<a:int,b:interval day>>"])
def test_unsupported_parts_are_found_inside(text: str) -> None:
    assert unsupported_part(parse_type(text)) == UnsupportedType("interval day")


def test_supported_types_have_no_unsupported_part() -> None:
    kind = parse_type("map<string,struct<a:int,b:array<decimal(3,1)>>>")
    assert unsupported_part(kind) is None
    assert [str(part) for part in parts(kind)][1:] == [
        "string",
        "struct<a:int,b:array<decimal(3,1)>>",
        "int",
        "array<decimal(3,1)>",
        "decimal(3,1)",
    ]


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("int", "int"),
        ("void", None),
        ("array<void>", None),
        ("map<string,void>", None),
        ("struct<a:void>", None),
        ("struct<a:int,b:void,c:struct<d:void>>", "struct<a:int>"),
        ("array<struct<a:void,b:int>>", "array<struct<b:int>>"),
    ],
)
def test_void_parts_are_taken_out(text: str, left: str | None) -> None:
    found = without_void(parse_type(text))
    assert (found if found is None else str(found)) == left
    assert found is None or VOID not in parts(found)


def test_fields_are_found_whatever_their_case() -> None:
    struct = StructType((StructField("Zip", INT),))
    assert struct.field("zIP") == StructField("Zip", INT)
    assert struct.field("zap") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("int", ""),
        ("", "not a SQL type"),
        ("varchr", "no table can hold the type varchr"),
        ("array<" * 5000 + "int" + ">" * 5000, "a type nested too deeply"),
    ],
)
def test_fault_of_a_declared_type(text: str, fault: str) -> None:
    assert type_fault(text) == fault
