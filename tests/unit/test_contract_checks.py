"""What a spec may not say though its types are right."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from airflow_gddl.contract.errors import field_name
from airflow_gddl.contract.row_checks import check_table, check_values, fields_read, table_name_fault
from airflow_gddl.contract.spec import TableSpec


def spec(**fields: Any) -> TableSpec:
    return TableSpec(**{"table": "shop.orders", "keys": ("id",), **fields})


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"keys": ()},
        {"keys": ("id",), "columns": ("a",)},
        {"keys": ("id",), "mask": {"id": "hash", "b": "null"}},
        {"sequence_by": ("lsn",), "exclude_columns": ("lsn",)},
        {"cluster_by": ("a", "b", "c", "d")},
        {"partition_by": ("id", "day"), "columns": ("day",), "exclude_columns": ("x",)},
        {
            "history": True,
            "delete": "soft",
            "before_image_prefix": "BI_",
            "columns_to_update": "c",
            "force_update": "f",
        },
        {"keys": (), "force_update": "f", "freshness": "5m", "tombstone_retention": "1d"},
        {"options": {"lookback": "2h"}, "table_properties": {"delta.checkpointInterval": "20", "user.gddl.x": "1"}},
        {"changes_retention": "90d", "vacuum_retention": "1d", "options": {"verify_connection": "SHOP_DB"}},
        {"trigger": "5s"},
        {"trigger": "5s", "schedule": "continuous"},
        {"source": "a.b-c_1", "columns": ("a",), "exclude_columns": ("b",)},
    ],
)
def test_sound_specs_pass(fields: dict[str, Any]) -> None:
    assert check_table(spec(**fields)) == ()


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"table": "orders"}, "FIELD_VALUE", "table"),
    ({"keys": ("id", "")}, "FIELD_VALUE", "keys[1]"),
    ({"keys": ("id", "iD")}, "FIELD_VALUE", "keys[1]"),
    ({"exclude_columns": ("ID",)}, "FIELD_REFUSED", "keys[0]"),
    ({"mask": {"Id": "null"}}, "FIELD_REFUSED", "mask.Id"),
    ({"mask": {"LSN": "hash"}, "sequence_by": ("lsn",)}, "FIELD_REFUSED", "mask.LSN"),
    ({"mask": {"c": "hash"}, "columns_to_update": "C"}, "FIELD_REFUSED", "mask.c"),
    ({"mask": {"f": "null"}, "force_update": "f"}, "FIELD_REFUSED", "mask.f"),
    ({"columns_to_update": "c", "exclude_columns": ("a", "C")}, "FIELD_REFUSED", "columns_to_update"),
    ({"force_update": "f", "exclude_columns": ("f",)}, "FIELD_REFUSED", "force_update"),
    ({"cluster_by": ("a", "b"), "exclude_columns": ("B",)}, "FIELD_REFUSED", "cluster_by[1]"),
    ({"columns": ("a", "b"), "exclude_columns": ("c", "B")}, "FIELD_REFUSED", "exclude_columns[1]"),
    ({"cluster_by": tuple("abcde")}, "FIELD_VALUE", "cluster_by"),
    ({"cluster_by": ("a", "A")}, "FIELD_VALUE", "cluster_by[1]"),
    ({"partition_by": ("a", "B"), "exclude_columns": ("b",)}, "FIELD_REFUSED", "partition_by[1]"),
    ({"partition_by": ("id", "b"), "columns": ("a",)}, "FIELD_REFUSED", "partition_by[1]"),
    ({"partition_by": ("a", "A")}, "FIELD_VALUE", "partition_by[1]"),
    ({"partition_by": ("a",), "cluster_by": ("b",)}, "FIELD_VALUE", "partition_by"),
    ({"partition_by": ("b", "A"), "mask": {"a": "hash"}}, "FIELD_VALUE", "partition_by[1]"),
    ({"partition_by": ("LSN",), "sequence_by": ("lsn",)}, "FIELD_VALUE", "partition_by[0]"),
    ({"partition_by": ("a", "days(x)")}, "FIELD_VALUE", "partition_by[1]"),
    ({"partition_by": ("bucket(16, id)",)}, "FIELD_VALUE", "partition_by[0]"),
    ({"cluster_by": ("hours (at)",)}, "FIELD_VALUE", "cluster_by[0]"),
    ({"partition_by": ("c",), "columns_to_update": "c"}, "FIELD_VALUE", "partition_by[0]"),
    ({"partition_by": ("_gddl",)}, "COLUMN_RESERVED", "partition_by[0]"),
    ({"keys": (), "history": True}, "FIELD_REFUSED", "history"),
    ({"keys": (), "before_image_prefix": "BI_"}, "FIELD_REFUSED", "before_image_prefix"),
    ({"keys": (), "ignore_null_updates": True}, "FIELD_REFUSED", "ignore_null_updates"),
    ({"keys": (), "columns_to_update": "c"}, "FIELD_REFUSED", "columns_to_update"),
    ({"keys": (), "delete": "soft"}, "FIELD_REFUSED", "delete"),
    ({"freshness": "soon"}, "FIELD_VALUE", "freshness"),
    ({"trigger": "soon"}, "FIELD_VALUE", "trigger"),
    ({"trigger": "5s", "schedule": "@daily"}, "FIELD_REFUSED", "trigger"),
    ({"trigger": "5s", "schedule": None}, "FIELD_REFUSED", "trigger"),
    ({"tombstone_retention": "1w"}, "FIELD_VALUE", "tombstone_retention"),
    ({"vacuum_retention": "23h"}, "FIELD_VALUE", "vacuum_retention"),
    ({"vacuum_retention": "never"}, "FIELD_VALUE", "vacuum_retention"),
    ({"changes_retention": "1y"}, "FIELD_VALUE", "changes_retention"),
    ({"changes_retention": "90d", "history": True}, "FIELD_REFUSED", "changes_retention"),
    ({"changes_retention": "90d", "force_update": "f"}, "FIELD_REFUSED", "changes_retention"),
    ({"options": {"verify_connection": "postgresql://u:p@h/d"}}, "FIELD_VALUE", "options.verify_connection"),
    ({"options": {"lookback": "0d"}}, "FIELD_VALUE", "options.lookback"),
    ({"table_properties": {"gddl.version": "1"}}, "FIELD_VALUE", "table_properties.gddl.version"),
    ({"table_properties": {"Delta.ColumnMapping.": ""}}, "FIELD_VALUE", "table_properties.Delta.ColumnMapping."),
    ({"table_properties": {" ": "id"}}, "FIELD_VALUE", "table_properties. "),
    ({"table_properties": {"delta.constraints.x": "java_method('java.lang.System', 'exit', 1) IS NULL"}},
     "FIELD_VALUE", "table_properties.delta.constraints.x"),
    ({"table_properties": {"DELTA.Constraints.x": "true"}}, "FIELD_VALUE",
     "table_properties.DELTA.Constraints.x"),
    ({"table_properties": {"delta.generationExpression": "1"}}, "FIELD_VALUE",
     "table_properties.delta.generationExpression"),
    ({"table_properties": {"delta.appendOnly": "true"}}, "FIELD_VALUE", "table_properties.delta.appendOnly"),
    ({"table_properties": {"location": "/etc"}}, "FIELD_VALUE", "table_properties.location"),
    ({"columns": ("a", "_gddl")}, "COLUMN_RESERVED", "columns[1]"),
    ({"sequence_by": ("_GDDL",)}, "COLUMN_RESERVED", "sequence_by[0]"),
    ({"mask": {"_rescued_data": "null"}}, "COLUMN_RESERVED", "mask._rescued_data"),
    ({"force_update": "_rescued_data"}, "COLUMN_RESERVED", "force_update"),
    ({"options": {"csv_columns": ["id", "Op"]}}, "COLUMN_RESERVED", "options.csv_columns"),
    ({"options": {"csv_columns": ["id", "o"], "op_column": "o"}}, "COLUMN_RESERVED", "options.csv_columns"),
    ({"before_image_prefix": ""}, "FIELD_VALUE", "before_image_prefix"),
    ({"source": ""}, "FIELD_VALUE", "source"),
    ({"source": "a/b"}, "FIELD_VALUE", "source"),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "code", "field"), BAD)
def test_each_contradiction_is_one_problem(fields: dict[str, Any], code: str, field: str) -> None:
    (problem,) = check_table(spec(**fields))
    assert (problem.code, problem.field) == (code, field)
    assert problem.message
    assert problem.remedy


def test_all_problems_are_told() -> None:
    found = check_table(spec(table="x", keys=("a", "A"), freshness="x", columns=("_gddl",), mask={"a": "null"}))
    assert sorted(problem.code for problem in found) == [
        "COLUMN_RESERVED",
        "FIELD_REFUSED",
        "FIELD_VALUE",
        "FIELD_VALUE",
        "FIELD_VALUE",
    ]


@pytest.mark.parametrize("fields", [case[0] for case in BAD], ids=str)
def test_checks_that_are_left_out_find_nothing(fields: dict[str, Any]) -> None:
    given = spec(**fields)
    assert check_table(given) == tuple(problem for check in check_table.checks for problem in check(given))


def test_fields_that_a_check_reads_of_a_row_of_defaults() -> None:
    read = {getattr(check, "__name__", ""): fields_read(check) for check in check_table.checks}
    assert read["_sweep_limit"] == {"sweep_limit"}
    assert read["_trigger"] == {"trigger"}
    assert read["_keyless"] == {"keys"}
    assert read["_substitutions"] == {item.name for item in dataclasses.fields(TableSpec)}
    assert all(read.values())


def test_why_a_keyless_table_cannot_have_history() -> None:
    (problem,) = check_table(spec(keys=(), history=True))
    assert problem.message == "not for a table without keys (append-only): versions are kept by key"
    assert problem.remedy == "name the keys, or set history back to its default in the metadata row"


def test_values_are_checked_without_a_table() -> None:
    bare = spec(table="none", keys=(), history=True, freshness="x", cluster_by=("_gddl",))
    assert sorted(problem.code for problem in check_values(bare)) == ["COLUMN_RESERVED", "FIELD_VALUE"]


@pytest.mark.parametrize("table", ["a.b", "A_1.x$y#z@w-v u", "0.1", "_.x", "s." + "n" * 128, "a.b__change", "a.gddl"])
def test_names_a_table_can_have(table: str) -> None:
    assert table_name_fault(table) == ""


@pytest.mark.parametrize(
    "table",
    ["", ".", "a", "a.", ".b", "a.b.c", "a..b", " a.b", "a .b", "a. b", "a.b ", "a.b\n", "a/b.c", "a.b/../c", "ä.b",
     "$a.b", "a.-b", "_gddl.a", "a._gddl", "a._GDDL_x", "a.b__changes", "a.b__HISTORY", "a.b__errors", "s." + "n" * 129,
     "a.b\\c", "a.'b'", "_as_of.a", "_AS_OF.a"],
)  # fmt: skip
def test_names_a_table_cannot_have(table: str) -> None:
    assert table_name_fault(table)
    (problem,) = check_table(spec(table=table))
    assert problem.code == "FIELD_VALUE"


def test_field_names_show_the_path() -> None:
    assert field_name(("options", "types", "a.b")) == "options.types.a.b"
    assert field_name(("keys", 1)) == "keys[1]"
    assert field_name(()) == ""
