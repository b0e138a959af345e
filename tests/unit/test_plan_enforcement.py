"""What is refused before anything is written, and how the refusal reads."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.schema_evolution import SchemaPlan, SchemaRules, plan_schema
from spark_jobs.plan.table_schema import land
from tests.harness.typed_columns import schema_of, types_of

Types = dict[str, str]
ADD = SchemaEvolution()
RESCUE = SchemaEvolution(new_column="rescue", type_change="rescue", dropped_column="null")
FAIL = SchemaEvolution(new_column="fail", type_change="fail", dropped_column="fail")
NO_DROP = SchemaEvolution(dropped_column="fail")


def plan(
    table: Types | None, *groups: Types, evolution: SchemaEvolution = ADD, keys: tuple[str, ...] = ()
) -> SchemaPlan:
    incoming = tuple(land(f"file{number}.parquet", schema_of(types).columns) for number, types in enumerate(groups))
    rules = SchemaRules(evolution=evolution, required=keys)
    return plan_schema(None if table is None else schema_of(table), incoming, rules)


def refused(
    table: Types | None, *groups: Types, evolution: SchemaEvolution = FAIL, keys: tuple[str, ...] = ()
) -> FatalError:
    with pytest.raises(FatalError) as caught:
        plan(table, *groups, evolution=evolution, keys=keys)
    return caught.value


def test_fail_refuses_what_differs_and_prints_both_schemas() -> None:
    error = refused({"id": "int", "v": "int", "gone": "date"}, {"id": "int", "v": "bigint", "odd name": "string"})
    assert error.code == "SCHEMA_REFUSED"
    assert error.what.splitlines() == [
        "the schema of the files is not the table's",
        "differing fields of file0.parquet:",
        "  odd_name: table missing, file string (new_column: fail)",
        "  v: table int, file bigint (type_change: fail)",
        "  gone: table date, file missing (dropped_column: fail)",
        "schema of the table:",
        "  id int",
        "  v int",
        "  gone date",
        "schema of file0.parquet:",
        "  id int",
        "  v bigint",
        "  `odd name` string",
        "nothing was written",
    ]
    assert error.remedy == (
        "set schema_evolution.new_column to add, rescue or ignore; "
        "set schema_evolution.type_change to widen or rescue; "
        "set schema_evolution.dropped_column to keep or null; or correct the source"
    )


@pytest.mark.parametrize(
    ("evolution", "incoming", "line"),
    [
        (SchemaEvolution(new_column="fail"), {"s": "struct<a:int,b:date>"}, "s.b: table missing, file date"),
        (
            SchemaEvolution(type_change="fail"),
            {"s": "struct<a:bigint>"},
            "s: table struct<a:int>, file struct<a:bigint>",
        ),
        (SchemaEvolution(dropped_column="fail"), {"s": "struct<b:int>"}, "s.a: table int, file missing"),
        (
            SchemaEvolution(new_column="fail"),
            {"s": "struct<a:int>", "i": "interval day"},
            "i: table missing, file interval",
        ),
    ],
)
def test_each_policy_refuses_on_its_own(evolution: SchemaEvolution, incoming: Types, line: str) -> None:
    error = refused({"s": "struct<a:int>"}, incoming, evolution=evolution)
    assert error.code == "SCHEMA_REFUSED"
    assert line in error.what
    assert error.remedy.count("schema_evolution.") == 1


def test_a_file_from_before_a_column_was_added_has_not_dropped_it() -> None:
    groups: tuple[Types, ...] = ({"id": "int"}, {"id": "int", "v": "int"})
    first = plan({"id": "int"}, *groups, evolution=NO_DROP)
    again = plan(types_of(first.target), *groups, evolution=NO_DROP)
    assert again.groups == first.groups
    assert [action.how for action in first.groups[0].actions] == ["same", "missing_keep"]
    for table in ({"id": "int"}, {"id": "int", "v": "int"}, None):
        error = refused(table, *reversed(groups), evolution=NO_DROP)
        assert "v: table int, file missing" in error.what
        assert error.where == "file1.parquet"


@pytest.mark.parametrize("incoming", [{"v": "int"}, {"v": "int", "ID": "void"}])
def test_a_missing_key_is_fatal(incoming: Types) -> None:
    error = refused(None, incoming, evolution=ADD, keys=("id",))
    assert error.code == "KEY_COLUMN_MISSING"
    assert "'id'" in error.what
    assert error.where == "file0.parquet"


@pytest.mark.parametrize("table", [None, {"id": "int"}])
def test_types_no_table_holds(table: Types | None) -> None:
    incoming: Types = {"id": "int", "t": "array<interval day>"}
    error = refused(table, incoming, evolution=ADD)
    assert error.code == "COLUMN_TYPE_UNSUPPORTED"
    assert "interval day" in error.what
    assert error.where == "file0.parquet"
    assert plan(table, incoming, evolution=RESCUE).groups[0].rescued == ("t",)
    assert plan(table, incoming, evolution=SchemaEvolution(new_column="ignore")).groups[0].ignored == ("t",)


def test_a_type_of_the_tables_own_that_we_would_not_add_may_stay() -> None:
    found = plan({"id": "int", "v": "variant"}, {"id": "int", "v": "variant"})
    assert [action.how for action in found.groups[0].actions] == ["same", "same"]


def test_new_columns_that_no_type_fits_are_refused_too() -> None:
    assert "v: table int, file string (type_change: fail)" in refused(None, {"v": "int"}, {"v": "string"}).what


def dropped(table: Types, *groups: Types) -> list[str]:
    text = refused(table, *groups, evolution=NO_DROP).what
    return [line.strip() for line in text.splitlines() if "dropped_column" in line]


def test_a_nested_field_is_dropped_where_later_groups_lack_even_its_column() -> None:
    found = dropped({"id": "int", "s": "struct<a:int,b:int>"}, {"id": "int", "s": "struct<a:int>"}, {"id": "int"})
    assert found == [
        "s.b: table int, file missing (dropped_column: fail)",
        "s: table struct<a:int,b:int>, file missing (dropped_column: fail)",
    ]


def test_nested_fields_are_dropped_whatever_the_case_of_their_parents() -> None:
    found = dropped({"s": "struct<p:struct<a:int,b:int>>"}, *({"s": f"struct<{p}:struct<a:int>>"} for p in ("P", "p")))
    assert found == [
        "s.P.b: table int, file missing (dropped_column: fail)",
        "s.p.b: table int, file missing (dropped_column: fail)",
    ]


@pytest.mark.parametrize("table", [None, {"id": "int", "v": "int"}])
def test_rows_are_ordered_by_columns_that_are_there(table: Types | None) -> None:
    """A first load by a column that no file has failed with a KeyError."""
    files = (land("file0.parquet", schema_of({"id": "int", "odd name": "int"}).columns),)
    stored = None if table is None else schema_of(table)
    plan_schema(stored, files, SchemaRules(evolution=ADD, clusters=("ID", "odd name")))
    with pytest.raises(FatalError, match=r"LAYOUT_COLUMN_MISSING.*'nowhere'.*id, .*Remedy: correct cluster_by"):
        plan_schema(stored, files, SchemaRules(evolution=ADD, clusters=("id", "nowhere")))


def test_no_column_keeps_a_name_that_interfaces_in_c_cut() -> None:
    found = plan(None, {"id": "int", "a\0b": "struct<`c\0`:int>"})
    assert [str(column) for column in found.target.columns] == ["id int", "a_b struct<c_:int>"]
