"""What the page shows of a row in quarantine."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_gddl.contract.names import HiddenColumns
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.tools.page.detail import shown_row

SPEC = TableSpec(
    table="shop.people",
    keys=("id",),
    mask={"Email": "hash", "name": "null"},
    exclude_columns=("ssn",),
    before_image_prefix="BI_",
)
PLAIN = HiddenColumns(TableSpec(table="shop.plain", keys=("id",)))
SENSITIVE = "someone@example.org"


def row(record: str | None) -> dict[str, Any]:
    texts = dict.fromkeys(("occurred_at", "code", "reason", "column", "source_file", "batch_id"), "t")
    return {**texts, "record": record}


def shown(record: object, spec: TableSpec | None = SPEC) -> dict[str, Any]:
    values = shown_row(row(json.dumps(record)), HiddenColumns(spec))["values"]
    return {one["name"]: "hidden" if one["hidden"] else one["value"] for one in values}


def test_values_of_masked_columns_are_hidden_whatever_the_record_has() -> None:
    record = {"id": 1, "EMAIL": SENSITIVE, "BI_email": SENSITIVE, "bi_NAME": SENSITIVE, "ssn": SENSITIVE, "BI_id": 2}
    assert shown(record) == {
        "id": "1", "EMAIL": "hidden", "BI_email": "hidden", "bi_NAME": "hidden", "ssn": "hidden", "BI_id": "2",
    }  # fmt: skip
    assert shown({"username": "kim", "BIemail": "no before image"}) == {"username": "kim", "BIemail": "no before image"}


def test_values_of_columns_that_are_left_out_are_hidden() -> None:
    """Rows that were quarantined before the row got `columns` hold them."""
    spec = TableSpec(table="shop.p", keys=("id",), columns=("Note", "email"), mask={"email": "hash"},
                     before_image_prefix="BI_")  # fmt: skip
    record = {
        "ID": 1,
        "note": "n",
        "email": SENSITIVE,
        "ssn": SENSITIVE,
        "BI_note": "o",
        "BI_ssn": SENSITIVE,
        "Op": "U",
    }
    assert shown(record, spec) == {
        "ID": "1", "note": "n", "email": "hidden", "ssn": "hidden", "BI_note": "o", "BI_ssn": "hidden", "Op": "hidden",
    }  # fmt: skip
    only = TableSpec(table="shop.p", keys=("id",), columns=("note",))
    assert shown_row(row(f"7;{SENSITIVE}"), HiddenColumns(only))["values"][0]["hidden"]


@pytest.mark.parametrize("setting", ["mask", "exclude_columns", "columns"])
def test_renamed_columns_are_hidden_under_either_name(setting: str) -> None:
    """Records have the names of the row, and those of before it renamed the column the names of the files."""
    held_back = {"mask": {"mail": "hash"}, "exclude_columns": ("mail",), "columns": ("id", "v")}[setting]
    spec = TableSpec(table="shop.p", keys=("id",), rename={"E Mail": "mail"}, before_image_prefix="BI_",
                     **{setting: held_back})  # fmt: skip
    names = ("E Mail", "e_mail", "MAIL", "BI_E_Mail", "BI_mail")
    assert shown({**dict.fromkeys(names, SENSITIVE), "v": "1", "BI_v": "2"}, spec) == {
        **dict.fromkeys(names, "hidden"), "v": "1", "BI_v": "2",
    }  # fmt: skip


def test_columns_are_hidden_that_the_row_names_as_they_are_stored() -> None:
    spec = TableSpec(table="shop.p", keys=("id",), mask={"__v_source": "hash"})
    assert shown({"__v": SENSITIVE, "__V_source": SENSITIVE, "v": "1"}, spec) == {
        "__v": "hidden", "__V_source": "hidden", "v": "1",
    }  # fmt: skip


def test_where_the_masks_are_not_known_no_value_is_shown() -> None:
    assert shown({"id": 1, "note": "n"}, None) == {"id": "hidden", "note": "hidden"}


@pytest.mark.parametrize(
    "record", [f"7;{SENSITIVE}", f'["{SENSITIVE}"]', f'"{SENSITIVE}"', f'{{"id": 1, "email": "{SENSITIVE}']
)
def test_a_record_without_columns_is_hidden_where_any_is_masked(record: str) -> None:
    made = shown_row(row(record), HiddenColumns(SPEC))
    assert made["values"] == [{"name": "", "value": None, "hidden": True}]
    plain = shown_row(row(record), HiddenColumns(TableSpec(table="shop.plain", keys=("id",))))
    assert plain["values"] == [{"name": "", "value": record, "hidden": False}]


def test_values_keep_their_digits_and_null_differs_from_an_empty_text() -> None:
    text = '{"a": 1.10, "b": 12345678901234567890, "c": null, "d": "", "e": {"f": [true]}}'
    values = shown_row(row(text), PLAIN)["values"]
    assert [one["value"] for one in values] == ["1.10", "12345678901234567890", None, "", '{"f": [true]}']
    assert shown_row(row(None), PLAIN)["values"] == []
    (long,) = shown_row(row(json.dumps({"a": "x" * 5000})), PLAIN)["values"]
    assert long["value"] == "x" * 2000 + " (3000 more characters)"


def test_records_that_are_not_json_objects_are_shown_as_text() -> None:
    halves = shown_row(row('{"a\\ud800": "\\udfff", "n": NaN}'), PLAIN)["values"]
    assert [(one["name"], one["value"]) for one in halves] == [("a\\ud800", "\\udfff"), ("n", "NaN")]
    deep = "[" * 100_000
    (one,) = shown_row(row(deep), PLAIN)["values"]
    assert one["value"].startswith("[[[[")


def test_names_of_the_row_and_of_files_differ_by_characters() -> None:
    spec = TableSpec(
        table="shop.t", keys=("id",), exclude_columns=("a_v",), mask={"b v": "hash"}, before_image_prefix="B "
    )
    record = json.dumps({"a v": 1, "b_v": 2, "B b v": 3, "B_a_v": 4, "c": 5})
    found = {value["name"]: value["hidden"] for value in shown_row(row(record), HiddenColumns(spec))["values"]}
    assert found == {"a v": True, "b_v": True, "B b v": True, "B_a_v": True, "c": False}
