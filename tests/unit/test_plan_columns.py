"""Under which names delivered columns land."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.names import landed_name
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.plan.table_schema import land, select_columns
from tests.harness.typed_columns import schema_of


@pytest.mark.parametrize(
    ("name", "landed"),
    [
        ("Id", "Id"),
        ("a.b", "a.b"),
        (" ,;{}()\n\t=", "_" * 10 + "_source"),
        ("order id", "order_id"),
        ("_gddl", "_gddl_source"),
        ("_GDDL", "_GDDL_source"),
        ("_rescued_data", "_rescued_data_source"),
        ("__START_AT", "__START_AT_source"),
        ("__end_at", "__end_at_source"),
        ("__v", "__v_source"),
        ("__v_source", "__v_source_source"),
        (" =x", "__x_source"),
        ("_change_type", "_change_type_source"),
        ("_metadata", "_metadata_source"),
        ("gddl", "gddl"),
        ("_v", "_v"),
        ("", "_"),
    ],
)
def test_landed_name_replaces_what_delta_refuses(name: str, landed: str) -> None:
    assert landed_name(name) == landed


@pytest.mark.parametrize(
    ("types", "code", "named"),
    [
        ({"id": "int", "ID": "int"}, "COLUMN_NAMES_COLLIDE", ("'id'", "'ID'")),
        ({"a b": "int", "A_B": "int"}, "COLUMN_NAMES_COLLIDE", ("'a b'", "'A_B'")),
        ({"_gddl": "int", "_GDDL": "int"}, "COLUMN_NAMES_COLLIDE", ("'_gddl'", "'_GDDL'")),
        (
            {"_metadata": "int", "_metadata_Source": "int"},
            "COLUMN_NAME_RESERVED",
            ("'_metadata'", "'_metadata_Source'"),
        ),
        ({"": "int", "_": "int"}, "COLUMN_NAMES_COLLIDE", ("''", "'_'")),
        ({"s": "array<struct<a:int,A:int>>"}, "COLUMN_NAMES_COLLIDE", ("'a'", "'A'")),
        ({"s": "map<int,struct<`a=`:int,a_:int>>"}, "COLUMN_NAMES_COLLIDE", ("'a='", "'a_'")),
    ],
)
def test_collisions_inside_a_file_are_refused(types: dict[str, str], code: str, named: tuple[str, ...]) -> None:
    with pytest.raises(FatalError) as caught:
        land("f.parquet", schema_of(types).columns)
    assert caught.value.code == code
    assert caught.value.where.startswith("f.parquet")
    assert all(name in caught.value.what for name in named)


def test_equal_names_collide_too() -> None:
    twice = schema_of({"id": "int"}).columns * 2
    with pytest.raises(FatalError) as caught:
        land("f.csv", twice)
    assert caught.value.code == "COLUMN_NAMES_COLLIDE"


def test_the_remedy_of_a_collision_names_what_concerns_one_column() -> None:
    with pytest.raises(FatalError) as caught:
        land("f.csv", schema_of({"id": "int", "v": "int", "V": "int"}).columns)
    assert caught.value.remedy == (
        "give one of them another name, `rename: {V: …}`, or leave it out, `exclude_columns: [V]`"
    )
    spec = TableSpec(table="s.t", keys=("id",), exclude_columns=("V",))
    assert select_columns(["id", "v", "V"], spec).kept == ("id", "v")


def test_nested_names_are_cleaned_and_sources_kept() -> None:
    schema = schema_of({"my col": "array<struct<`x y`:map<string,struct<`=`:int>>,_gddl:int>>"})
    (column,) = land("f", schema.columns).columns
    assert (column.name, column.source) == ("my_col", schema.columns[0])
    assert str(column.type) == "array<struct<x_y:map<string,struct<_:int>>,_gddl:int>>"
