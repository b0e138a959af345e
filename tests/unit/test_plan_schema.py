"""Schema enforcement and evolution: what each policy makes of each difference."""

from __future__ import annotations

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.schema_evolution import ColumnAction, SchemaPlan, SchemaRules, plan_schema
from spark_jobs.plan.table_schema import LandedGroup, land
from tests.harness.typed_columns import schema_of, types_of

Types = dict[str, str]
ADD = SchemaEvolution()
RESCUE = SchemaEvolution(new_column="rescue", type_change="rescue", dropped_column="null")
FAIL = SchemaEvolution(new_column="fail", type_change="fail", dropped_column="fail")


def group(number: int, types: Types, *, only_deletes: bool = False) -> LandedGroup:
    return land(f"file{number}.parquet", schema_of(types).columns, only_deletes=only_deletes)


def plan(
    table: Types | None, *groups: Types, evolution: SchemaEvolution = ADD, keys: tuple[str, ...] = ()
) -> SchemaPlan:
    incoming = tuple(group(number, types) for number, types in enumerate(groups))
    rules = SchemaRules(evolution=evolution, required=keys)
    return plan_schema(None if table is None else schema_of(table), incoming, rules)


def action(found: SchemaPlan, name: str, number: int = 0) -> ColumnAction:
    (one,) = [a for a in found.groups[number].actions if a.target.name == name]
    return one


def test_a_table_is_created_with_the_columns_of_all_groups_in_order_of_appearance() -> None:
    found = plan(None, {"id": "int", "b": "string"}, {"c": "date", "ID": "bigint", "a": "void"})
    assert types_of(found.target) == {"id": "bigint", "b": "string", "c": "date"}
    assert (found.additions, found.widenings, found.changes) == ((), (), ())
    assert action(found, "id", 0).how == "cast"
    assert action(found, "id", 1).source == "ID"
    assert found.groups[1].schema == {"id": "bigint", "c": "date", "a": "void"}
    assert found.groups[1].ignored == ("a",)


def test_a_table_is_created_whatever_new_columns_do_later() -> None:
    for policy in (RESCUE, SchemaEvolution(new_column="fail"), SchemaEvolution(new_column="ignore")):
        found = plan(None, {"id": "int"}, {"id": "int", "v": "string"}, evolution=policy)
        assert types_of(found.target) == {"id": "int", "v": "string"}


def test_new_columns_are_added_at_the_end_and_reported() -> None:
    found = plan({"id": "int", "v": "string"}, {"tail_no": "string", "v": "string", "id": "int", "n n": "int"})
    assert found.target.names == ("id", "v", "tail_no", "n_n")
    assert found.changes == ("added column tail_no string", "added column n_n int")
    assert action(found, "n_n").source == "n n"


def test_a_case_change_is_the_same_column_under_the_tables_spelling() -> None:
    found = plan({"Id": "int"}, {"ID": "int"})
    assert found.target.names == ("Id",)
    assert found.changes == ()
    assert (action(found, "Id").how, action(found, "Id").source) == ("same", "ID")


@pytest.mark.parametrize(
    ("policy", "rescued", "ignored"),
    [("rescue", ("New",), ("nothing",)), ("ignore", (), ("New", "nothing"))],
)
def test_new_columns_that_stay_out(policy: str, rescued: tuple[str, ...], ignored: tuple[str, ...]) -> None:
    evolution = SchemaEvolution(new_column="rescue" if policy == "rescue" else "ignore")
    found = plan({"id": "int"}, {"id": "int", "New": "array<int>", "nothing": "void"}, evolution=evolution)
    assert found.target.names == ("id",)
    assert (found.groups[0].rescued, found.groups[0].ignored) == (rescued, ignored)


WIDEN, TYPE_RESCUE, TYPE_FAIL = (SchemaEvolution(type_change=p) for p in ("widen", "rescue", "fail"))


@pytest.mark.parametrize(
    ("table", "incoming", "evolution", "target", "expected"),
    [
        ("int", "int", WIDEN, "int", ("same", "quarantine", True)),
        ("bigint", "int", WIDEN, "bigint", ("cast", "quarantine", True)),
        ("bigint", "int", TYPE_RESCUE, "bigint", ("cast", "rescue", True)),
        ("bigint", "int", TYPE_FAIL, "bigint", ("cast", "quarantine", True)),
        ("int", "bigint", WIDEN, "bigint", ("same", "quarantine", True)),
        ("int", "bigint", TYPE_RESCUE, "int", ("fit", "rescue", True)),
        ("int", "string", WIDEN, "int", ("fit", "quarantine", True)),
        ("int", "string", TYPE_RESCUE, "int", ("fit", "rescue", True)),
        ("int", "date", WIDEN, "int", ("fit", "quarantine", False)),
        ("string", "int", WIDEN, "string", ("fit", "quarantine", True)),
        ("string", "struct<a:int>", WIDEN, "string", ("fit", "quarantine", False)),
        ("struct<a:int>", "string", TYPE_RESCUE, "struct<a:int>", ("fit", "rescue", False)),
        ("decimal(10,2)", "decimal(8,4)", WIDEN, "decimal(12,4)", ("cast", "quarantine", True)),
        ("int", "decimal(10,2)", WIDEN, "decimal(12,2)", ("cast", "quarantine", True)),
        ("timestamp", "timestamp_ntz", TYPE_FAIL, "timestamp", ("cast", "quarantine", True)),
        ("date", "timestamp_ntz", WIDEN, "timestamp_ntz", ("same", "quarantine", True)),
        ("int", "void", TYPE_FAIL, "int", ("cast", "quarantine", True)),
        ("void", "int", WIDEN, "int", ("same", "quarantine", True)),
        ("array<int>", "array<bigint>", WIDEN, "array<bigint>", ("same", "quarantine", True)),
        ("array<int>", "array<bigint>", TYPE_RESCUE, "array<int>", ("fit", "rescue", False)),
        ("map<string,int>", "map<string,void>", WIDEN, "map<string,int>", ("cast", "quarantine", True)),
        ("map<string,int>", "void", TYPE_FAIL, "map<string,int>", ("cast", "quarantine", True)),
        ("map<string,int>", "array<int>", WIDEN, "map<string,int>", ("fit", "quarantine", False)),
        ("struct<a:int,b:int>", "struct<B:int,a:int>", TYPE_FAIL, "struct<a:int,b:int>", ("cast", "quarantine", True)),
        (
            "struct<a:int,b:int>",
            "struct<a:bigint,b:string>",
            WIDEN,
            "struct<a:int,b:int>",
            ("fit", "quarantine", False),
        ),
    ],
)
def test_an_existing_column_follows_the_policy_of_its_type(
    table: str, incoming: str, evolution: SchemaEvolution, target: str, expected: tuple[str, str, bool]
) -> None:
    found = plan({"id": "int", "v": table}, {"id": "int", "v": incoming}, evolution=evolution)
    assert types_of(found.target) == {"id": "int", "v": target}
    one = action(found, "v")
    assert (one.how, one.misfit, one.convertible) == expected
    assert str(one.source_type) == incoming
    assert bool(found.widenings) is (table != target)


def test_nested_fields_are_added_at_the_end_of_their_struct_and_widened_in_place() -> None:
    found = plan(
        {"s": "struct<a:int,b:string>", "l": "array<struct<x:int>>", "m": "map<string,struct<y:float>>"},
        {
            "s": "struct<new one:date,b:string,a:bigint>",
            "l": "array<struct<x:int,z:int>>",
            "m": "map<string,struct<y:double,w:void>>",
        },
    )
    assert types_of(found.target) == {
        "s": "struct<a:bigint,b:string,new_one:date>",
        "l": "array<struct<x:int,z:int>>",
        "m": "map<string,struct<y:double>>",
    }
    assert found.changes == (
        "added column s.new_one date",
        "added column l.element.z int",
        "widened s.a int -> bigint",
        "widened m.value.y float -> double",
    )
    assert [a.path for a in found.additions] == [("s", "new_one"), ("l", "element", "z")]
    assert [a.how for a in found.groups[0].actions] == ["cast", "same", "cast"]


@pytest.mark.parametrize(("policy", "keep"), [("rescue", True), ("ignore", False)])
def test_nested_fields_that_stay_out(policy: str, keep: bool) -> None:
    evolution = SchemaEvolution(new_column="rescue" if policy == "rescue" else "ignore")
    found = plan({"s": "struct<a:int>"}, {"s": "struct<a:int,b:int>"}, evolution=evolution)
    assert types_of(found.target) == {"s": "struct<a:int>"}
    assert (action(found, "s").how, action(found, "s").keep_original) == ("cast", keep)


def test_widening_goes_over_all_groups_and_is_reported_once() -> None:
    found = plan({"v": "tinyint"}, {"v": "int"}, {"v": "string"}, {"v": "bigint"})
    assert found.changes == ("widened v tinyint -> bigint",)
    assert [action(found, "v", number).how for number in range(3)] == ["cast", "fit", "same"]


@pytest.mark.parametrize("evolution", [ADD, RESCUE, TYPE_FAIL])
def test_a_new_column_gets_the_widest_type_of_the_batch(evolution: SchemaEvolution) -> None:
    found = plan(None, {"v": "int"}, {"v": "decimal(6,2)"}, {"v": "smallint"}, evolution=evolution)
    assert types_of(found.target) == {"v": "decimal(12,2)"}
    assert {action(found, "v", number).how for number in range(3)} == {"cast"}


def test_a_bigint_takes_twenty_digits_of_a_decimal() -> None:
    found = plan({"id": "int", "v": "bigint"}, {"id": "int", "v": "decimal(5,2)"}, evolution=WIDEN)
    assert types_of(found.target) == {"id": "int", "v": "decimal(22,2)"}


@pytest.mark.parametrize("partitions", [(), ("P",)])
def test_a_partition_column_never_becomes_text(partitions: tuple[str, ...]) -> None:
    rules = SchemaRules(evolution=SchemaEvolution(type_change="text"), required=(), partitions=partitions)
    found = plan_schema(schema_of({"id": "int", "p": "date"}), (group(0, {"id": "int", "p": "boolean"}),), rules)
    assert types_of(found.target)["p"] == ("date" if partitions else "string")


@pytest.mark.parametrize("evolution", [ADD, RESCUE, SchemaEvolution(new_column="fail")])
def test_a_new_struct_gets_the_fields_of_all_groups(evolution: SchemaEvolution) -> None:
    found = plan(None, {"s": "struct<a:int>"}, {"s": "struct<b:int,A:bigint>"}, evolution=evolution)
    assert types_of(found.target) == {"s": "struct<a:bigint,b:int>"}


def test_a_new_column_without_a_common_type_gets_that_of_the_first_group() -> None:
    found = plan({"id": "int"}, {"id": "int", "v": "int"}, {"id": "int", "v": "string"})
    assert types_of(found.target) == {"id": "int", "v": "int"}
    assert (action(found, "v", 1).how, action(found, "v", 1).misfit) == ("fit", "quarantine")


def test_void_columns_are_not_added_but_empty_a_known_column() -> None:
    found = plan({"id": "int", "v": "date"}, {"id": "int", "v": "void", "w": "void", "x": "array<void>"})
    assert found.target.names == ("id", "v")
    assert action(found, "v").how == "cast"
    assert tuple(found.groups[0].schema) == ("id", "v", "w")
    assert found.groups[0].ignored == ("w", "x")


@pytest.mark.parametrize(("policy", "how"), [("keep", "missing_keep"), ("null", "missing_null")])
def test_a_dropped_column_keeps_or_loses_its_values(policy: str, how: str) -> None:
    evolution = SchemaEvolution(dropped_column="null" if policy == "null" else "keep")
    found = plan({"id": "int", "v": "date"}, {"id": "int"}, evolution=evolution)
    assert found.target.names == ("id", "v")
    one = action(found, "v")
    assert (one.how, one.source, one.source_type) == (how, None, None)
    assert tuple(found.groups[0].schema) == (("id",) if policy == "keep" else ("id", "v", "dropped_column=null"))


def test_deletes_that_carry_only_keys_are_no_schema_change() -> None:
    for evolution in (ADD, RESCUE, FAIL):
        rules = SchemaRules(evolution=evolution, required=("id",))
        table = schema_of({"id": "int", "v": "date"})
        found = plan_schema(table, (group(0, {"id": "int"}, only_deletes=True),), rules)
        assert (found.target, found.changes) == (table, ())
        assert tuple(found.groups[0].schema) == ("id",)


def test_a_key_of_nulls_is_left_to_the_rows_where_its_type_is_known() -> None:
    found = plan({"id": "int"}, {"id": "void"}, evolution=ADD, keys=("ID",))
    assert action(found, "id").how == "cast"


def test_keys_are_named_as_the_source_names_them() -> None:
    found = plan(None, {"Order Id": "int", "__v": "int"}, keys=("order id", "__V"), evolution=RESCUE)
    assert found.target.names == ("Order_Id", "__v_source")


def test_keys_widen_but_their_misfits_are_never_rescued() -> None:
    assert plan({"id": "int"}, {"id": "bigint"}, keys=("id",)).changes == ("widened id int -> bigint",)
    found = plan({"id": "int", "v": "int"}, {"ID": "bigint", "v": "bigint"}, keys=("id",), evolution=RESCUE)
    assert [(a.how, a.misfit) for a in found.groups[0].actions] == [("fit", "quarantine"), ("fit", "rescue")]


@pytest.mark.parametrize(
    ("live", "is_taken"),
    [({"id": "int", "c": "bigint"}, True), ({"id": "int", "c": "int"}, False), ({"id": "int"}, False), (None, False)],
)
def test_values_that_the_replaced_table_holds_are_no_change_of_the_source(live: Types | None, is_taken: bool) -> None:
    """A table is loaded again, file by file: what the live one holds, the new one takes, whatever the policy."""
    rules = SchemaRules(evolution=FAIL, live=None if live is None else schema_of(live))
    table, incoming = schema_of({"id": "int", "c": "int"}), (group(0, {"id": "int", "c": "bigint"}),)
    if is_taken:
        assert types_of(plan_schema(table, incoming, rules).target) == {"id": "int", "c": "bigint"}
    else:
        with pytest.raises(FatalError, match="c: table int, file bigint") as caught:
            plan_schema(table, incoming, rules)
        assert caught.value.code == "SCHEMA_REFUSED"
