"""Which columns reach the lake, and which are masked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from spark_jobs.plan.applied_settings import settings_of
from spark_jobs.plan.identity import require_same_identity, reselected_columns
from spark_jobs.plan.planned_batch import TableState
from spark_jobs.plan.table_schema import (
    found_columns,
    missing_protected,
    protected_missing,
    select_columns,
    unknown_columns,
    unknown_described,
    without_controls,
)
from tests.rules.changes import table_schema

FILE = ("Id", "Name", "SSN", "BI_Id", "bi_name", "BI_SSN")


def row(**given: object) -> TableSpec:
    spec = {"table": "hr.people", "keys": ("id",), "before_image_prefix": "BI_", **given}
    return TableSpec(**spec)  # type: ignore[arg-type]  # a table's row, field by field


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, FILE),
        ({"exclude_columns": ("ssn",)}, ("Id", "Name", "BI_Id", "bi_name")),
        ({"exclude_columns": ("BI_name",)}, ("Id", "Name", "SSN", "BI_Id", "BI_SSN")),
        ({"exclude_columns": ("ID", "bi_id")}, FILE),
        ({"columns": ("name",)}, ("Id", "Name", "BI_Id", "bi_name")),
        ({"columns": ("name", "bi_ssn")}, ("Id", "Name", "BI_Id", "bi_name", "BI_SSN")),
        ({"columns": ("name", "ssn"), "exclude_columns": ("ssn",)}, ("Id", "Name", "BI_Id", "bi_name")),
        ({"columns": ()}, ("Id", "BI_Id")),
        ({"exclude_columns": ("ssn",), "before_image_prefix": None}, ("Id", "Name", "BI_Id", "bi_name", "BI_SSN")),
    ],
)
def test_listed_columns_are_kept_with_their_before_images(given: dict[str, object], kept: tuple[str, ...]) -> None:
    found = select_columns(FILE, row(**given))
    assert found.kept == kept


def test_before_image_of_an_excluded_absent_column_is_excluded() -> None:
    found = select_columns(("id", "BI_ssn", "BI_name"), row(exclude_columns=("ssn",), mask={"name": "hash"}))
    assert (found.kept, found.masks) == (("id", "BI_name"), {"BI_name": "hash"})


def test_masks_follow_before_images_and_kept_columns_only() -> None:
    found = select_columns(FILE, row(mask={"NAME": "hash", "ssn": "null", "id": "hash"}, exclude_columns=("ssn",)))
    assert found.masks == {"Id": "hash", "Name": "hash", "BI_Id": "hash", "bi_name": "hash"}


def test_names_match_as_the_file_writes_them_or_as_they_land() -> None:
    for name in ("order id", "Order_Id"):
        assert select_columns(("id", "Order Id"), row(exclude_columns=(name,))).kept == ("id",)
    for name in ("__v", "__V_source"):
        assert select_columns(("id", "__v"), row(mask={name: "hash"})).masks == {"__v": "hash"}


def test_a_key_cannot_be_emptied() -> None:
    with pytest.raises(MetadataError) as caught:
        select_columns(FILE, row(mask={"ID": "null"}))
    assert caught.value.code == "KEY_MASKED"
    assert "'id'" in caught.value.what


def test_unknown_column_names_are_told() -> None:
    """Those of `columns` cause a warning; those that keep values out are missing, unless they came before."""
    given = row(columns=("name", "nme"), exclude_columns=("snn", "ssn", "zip"), mask={"nam": "hash", "extra": "null"})
    groups = [FILE, ("id", "extra")]
    (warning,) = unknown_columns(groups, given)
    assert (warning.code, warning.count, warning.sample) == ("COLUMN_NOT_FOUND", 1, ("nme",))
    assert "columns names columns that no file of this batch has: 'nme'" in warning.message
    found = found_columns(groups, given, [("Id", "Name")], ["zip"])
    assert found == ("bi_ssn", "extra", "ssn", "zip"), "id and name are in a schema"
    found = (*found, "name")
    assert missing_protected(given, found) == {"exclude_columns": ("snn",), "mask": ("nam",)}
    assert missing_protected(given, found, [("NAM", "snn")]) == {}
    assert missing_protected(replace(given, absent_columns=("Snn",)), found) == {"mask": ("nam",)}
    error = protected_missing("s.t", {"mask": ("nam",)}, ["Name", "id"])
    assert (error.code, "'nam' (near: 'Name')" in error.what) == ("PROTECTED_COLUMN_MISSING", True)


def test_a_column_that_comes_only_as_a_before_image_is_known() -> None:
    given = row(exclude_columns=("SSN",))
    assert missing_protected(given, found_columns([("id", "BI_ssn")], given)) == {}
    assert unknown_columns([FILE], row()) == ()


def test_a_description_of_no_column_is_named() -> None:
    (warning,) = unknown_described(("id", "Note"), {"ID": "key", "note": "free text", "nte": "misspelt"})
    assert (warning.code, warning.count, warning.sample) == ("COLUMN_NOT_FOUND", 1, ("nte",))
    assert unknown_described(("id",), {"id": "key"}) == ()


_RESCUE = SchemaEvolution(new_column="rescue")


@pytest.mark.parametrize(("was", "now", "reselected"), [
    ({}, {"exclude_columns": ("a",)}, {"a": "columns"}),
    ({"columns": ("id", "a")}, {"columns": ("id",)}, {"a": "columns"}),
    ({}, {"mask": {"a": "null"}}, {"a": "mask"}), ({"exclude_columns": ("a",)}, {}, {}),
    ({"exclude_columns": ("x",)}, {"exclude_columns": ("x", "a")}, {"a": "columns"}),
    ({}, {"exclude_columns": ("x",)}, {}),
    ({}, {"exclude_columns": ("x",), "schema_evolution": _RESCUE}, {"x": "columns"}),
    ({"exclude_columns": ("x",)}, {"exclude_columns": ("x", "y"), "schema_evolution": _RESCUE}, {"y": "columns"}),
    ({"exclude_columns": ("x",)}, {"exclude_columns": ("x", "a"), "schema_evolution": _RESCUE}, {"a": "columns"}),
    ({}, {"mask": {"x": "null"}, "schema_evolution": _RESCUE}, {"x": "mask"}),
    ({"mask": {"x": "null"}}, {"mask": {"x": "null"}, "exclude_columns": ("b",), "schema_evolution": _RESCUE},
     {"b": "columns"}),
])  # fmt: skip
def test_columns_that_the_row_selects_otherwise(
    was: dict[str, Any], now: dict[str, Any], reselected: dict[str, str]
) -> None:
    """Rescued values may be of columns that no table has; the others are those of the stored schemas."""
    before, after = (TableSpec(table="s.t", keys=("id",), **given) for given in (was, now))
    state = TableState(batch=1, applied=settings_of(before), schemas=({"id": "int", "a": "string", "b": "string"},))
    assert reselected_columns(after, state) == reselected


@pytest.mark.parametrize(("now", "code"), [
    ({"mask": {"a": "null"}}, "MASK_CHANGED"), ({"exclude_columns": ("a",)}, "COLUMNS_CHANGED"), ({}, None),
])  # fmt: skip
def test_row_that_selects_otherwise_is_refused_by_what_it_does(now: dict[str, Any], code: str | None) -> None:
    before, after = (TableSpec(table="s.t", keys=("id",), **given) for given in ({}, now))
    state = TableState(batch=1, keys=("id",), applied=settings_of(before), schemas=({"id": "int", "a": "string"},))
    if code is None:
        require_same_identity(after, state)
        return
    with pytest.raises(FatalError) as caught:
        require_same_identity(after, state)
    assert caught.value.code == code


_SOME = [("a.csv", ("id", "f")), ("b.csv", ("id",))]


@pytest.mark.parametrize(("changes", "stored", "count"), [
    (_SOME, ("id",), 1), (_SOME[1:], ("id", "F"), 1), (_SOME[:1], ("id",), 0), ([], ("id",), 0),
    (_SOME[1:], ("id",), None),
])  # fmt: skip
def test_column_of_a_setting_may_be_absent_from_some_files(changes: Any, stored: Any, count: int | None) -> None:
    """None: no file and no table has it."""
    spec = TableSpec(table="s.t", keys=("id",), force_update="f")
    if count is None:
        with pytest.raises(FatalError) as caught:
            without_controls(spec, {"force_update": "f"}, changes, stored)
        assert caught.value.code == "CONTROL_COLUMN_MISSING"
        return
    found = without_controls(spec, {"force_update": "f"}, changes, stored)
    assert [one.code for one in found] == ["COLUMN_NOT_FOUND"] * count


@pytest.mark.parametrize(("given", "tells"), [
    ({}, False), ({"source_type": "postgresql"}, True), ({"region": "eu"}, True), ({"ignore_null_updates": True}, True),
])  # fmt: skip
def test_events_are_told_of_tables_with_an_origin_or_with_parts(given: dict[str, Any], tells: bool) -> None:
    assert table_schema(**given).tells_events is tells
