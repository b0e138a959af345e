"""Expressions of metadata rows: what is read from text, what is refused and where, and that no text is expensive."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.codec import decode, to_document
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import FUNCTIONS, Expectation
from airflow_gddl.metadata.expression_text import MAX_TEXT, ExpressionError, parsed, with_expressions
from airflow_gddl.metadata.validation import check_spec
from tests.unit.metadata_folder import loaded

_READ = {
    "qty > 0": '("qty" > 0)',
    "a = 1 or b = 2 and c = 3": '(("a" = 1) or (("b" = 2) and ("c" = 3)))',
    "not a like 'x' and b": '(not(("a" like \'x\')) and "b")',
    "a not like 'x%'": "not((\"a\" like 'x%'))",
    "a not in (1, 'x')": "not(in(\"a\", 1, 'x'))",
    "a not between 1 and 2": 'not(between("a", 1, 2))',
    "a is not null": 'not(is null("a"))',
    "a - b - c * -2 > 1e3": '((("a" - "b") - ("c" * -2)) > 1e3)',
    "a || b || 'x' <> ''": "(concat(\"a\", \"b\", 'x') <> '')",
    "day >= date '2024-02-29'": "(\"day\" >= date '2024-02-29')",
    "date(date) = date '2024-01-01'": "(date(\"date\") = date '2024-01-01')",
    "at < timestamp '2024-01-01 10:00:00'": "(\"at\" < timestamp '2024-01-01 10:00:00')",
    "order = 1 and select = 2 and \"Order No\" = 3": '(("order" = 1) and ("select" = 2) and ("Order No" = 3))',
    "text = 'it''s'": "(\"text\" = 'it''s')",
    "a rlike '^x+$'": "regexp_like(\"a\", '^x+$')",
}  # fmt: skip


@pytest.mark.parametrize("text", _READ)
def test_expressions_are_read_as_they_are_printed(text: str) -> None:
    assert str(parsed(text)) == _READ[text]


_REFUSED = {
    "qty >": "'>' lacks a value (at character 5)",
    "qty ! 0": "not expected here",
    "system('x') = 1": "no function 'system' (at character 1)",
    "count(*) > 0": "no function 'count'",
    "a in (select b from c)": "not expected here (at character 14)",
    "exists (select 1)": "not expected here",
    "a > 0; drop table x": "not expected here",
    "a > 0 -- and b": "a comment (at character 7)",
    "a /* b */ > 0": "not expected here",
    "a % 2 = 0": "the operator %",
    "t.a > 0": "a name with a dot",
    "a::int > 0": "not expected here",
    "cast(a as int) > 0": "not expected here",
    "case when a then b end": "not expected here",
    "{{ a }} > 0": "a value in { }",
    "a = null": "null beside an operator",
    "a is true": "`is` before anything but null",
    "a in (b)": "does not hold values alone",
    "a in ()": "does not hold values alone",
    "a like b": "a pattern of `like` that is no text",
    "substring(a) = 'x'": "substring with 1 arguments instead of 2 to 3",
    "substring(a, b) = 'x'": "no whole number",
    "substring(a, 0) = 'x'": "from 1",
    "regexp_like(a, '(?=x)')": "looks around",
    "regexp_like(a, '(a)\\1')": "looks around",
    "regexp_like(a, '(')": "not a regular expression",
    "day = date '2024-02-30'": "is no date",
    "a > 'x": "does not end",
    "": "without text",
    "a\n> 0": "line breaks",
    "?": "Placeholder",
    ":a > 1": "Placeholder",
    "a[0] > 1": "Bracket",
    "f(x -> 1)": "lacks a value",
    "coalesce(distinct a, b)": "not expected here",
}  # fmt: skip


@pytest.mark.parametrize("text", _REFUSED)
def test_refused_expressions_name_the_place_and_a_remedy(text: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parsed(text)
    assert _REFUSED[text] in str(caught.value)
    assert caught.value.remedy


_HOSTILE = (
    "a > 0 and " * 5_000 + "a > 1", "(" * 1_000 + "a" + ")" * 1_000, "(" * 900 + "a", "not " * 450 + "a",
    "- " * 900 + "a > 0", "abs(" * 400 + "a", "a in (" * 300, "a between " * 150 + "1", "+".join("a" * 900) + " > 0",
    "<".join("a" * 900), "a like " * 250, "'" * 1_999, "case " * 300, "interval " * 200, "not - " * 300 + "a",
    "date " * 300, "a is not " * 200, "[" * 999, "{" * 999, "a." * 900, "coalesce(" + "a," * 900 + "a)",
    "(a," * 500, "x" * MAX_TEXT + "\x00", "\ud800 = 1",
)  # fmt: skip


@pytest.mark.parametrize("text", _HOSTILE, ids=range(len(_HOSTILE)))
def test_hostile_texts_are_refused_at_once(text: str) -> None:
    parsed("a > 0")  # imports the parser
    begun = time.process_time()
    with pytest.raises(ExpressionError):
        parsed(text)
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("unit", ["(a)", "not a", "abs(a) > 0", "a in (1)", "a || a = 'x'", "(a > 0)"])
def test_the_cost_grows_with_the_text_alone(unit: str) -> None:
    text = " and ".join([unit] * 150)[:MAX_TEXT].rpartition(" and ")[0]
    begun = time.process_time()
    assert len(parsed(text).args) > 50
    assert time.process_time() - begun < 5


def _codes(**fields: Any) -> list[tuple[str, str]]:
    spec = TableSpec(table="s.t", keys=("id",), **fields)
    return [(problem.code, problem.field) for problem in check_spec(spec, ["small"])]


def test_columns_that_a_rule_would_reveal_are_refused() -> None:
    rule = Expectation(rule="Email like '%@x' and id > 0")
    refused = [("FIELD_REFUSED", "expect.ok.rule")]
    assert _codes(expect={"ok": rule}) == []
    assert _codes(expect={"ok": rule}, mask={"email": "hmac"}) == refused
    assert _codes(expect={"ok": rule}, exclude_columns=("EMAIL",)) == refused
    assert _codes(expect={"ok": rule}, columns=("name",)) == refused
    assert _codes(expect={"ok": Expectation(rule="_rescued_data is null")}) == refused


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("e mail", "E_MAIL"),
        ("E_Mail", '"e mail"'),
        ("email", "BI_email"),
        ("e mail", "bi_e_mail"),
        ("__v_source", "__v"),
    ],
)
def test_columns_are_refused_under_each_name_that_means_them(column: str, named: str) -> None:
    """As the job finds them: with other characters, as before images, as they are delivered."""
    for held_back in ({"mask": {column: "hmac"}}, {"exclude_columns": (column,)}, {"columns": ("id",)}):
        for field, use in (
            ("derive", {"x": f"lower({named})"}),
            ("where", f"{named} = 'x'"),
            ("expect", {"ok": Expectation(rule=f"{named} = 'x'")}),
        ):
            codes = _codes(**{field: use}, before_image_prefix="BI_", **held_back)
            assert {code for code, _ in codes} == {"FIELD_REFUSED"}, (field, held_back)


@pytest.mark.parametrize(
    "field",
    [
        {"mask": {"E_mail": "hmac"}},
        {"mask": {"BI_e mail": "null"}},
        {"exclude_columns": ("e mail",)},
        {"columns": ("id", "E_MAIL")},
        {"cluster_by": ("e_mail",)},
        {"force_update": "e_mail"},
    ],
)
def test_fields_name_columns_as_the_row_does(field: dict[str, Any]) -> None:
    """Else a mask or an exclusion would have no effect."""
    codes = _codes(rename={"E Mail": "mail"}, before_image_prefix="BI_", **field)
    assert [code for code, _ in codes] == ["FIELD_VALUE"]
    renaming = {"rename": {"E Mail": "mail"}, "derive": {"e_mail": "lower(name)"}, "mask": {"e_mail": "hmac"}}
    assert _codes(**renaming) == []  # a computed column has the name


def test_rules_are_conditions_on_columns_with_names_and_shares() -> None:
    assert _codes(expect={"ok": Expectation(rule="qty + 1")}) == [("EXPRESSION_INVALID", "expect.ok.rule")]
    assert _codes(expect={"ok": Expectation(rule="1 = 1")}) == [("EXPRESSION_INVALID", "expect.ok.rule")]
    assert _codes(expect={"a-b": Expectation(rule="a = 1", at_most=1.5)}) == [
        ("FIELD_VALUE", "expect.a-b"), ("FIELD_VALUE", "expect.a-b.at_most"),
    ]  # fmt: skip
    assert _codes(expect={"ok": Expectation(rule="a = '${x}'")}) == [("FIELD_VALUE", "expect.ok.rule")]


_ROW = """
source: shop
defaults:
  expect: {named: {rule: "name is not null"}, qty_ok: {rule: "qty > 0"}}
tables:
  - table: shop.orders
    keys: [id]
    expect:
      qty_ok: {rule: "qty >= 0", on: warn, at_most: 0.01}
  - table: shop.broken
    keys: [id]
    expect:
      qty_ok: {rule: "qty >"}
  - table: shop.misspelt
    keys: [id]
    expect:
      qty_ok: {rul: "qty > 0", on: warm}
"""


def test_a_wrong_rule_is_named_with_its_place_and_stops_no_other_row(tmp_path: Path) -> None:
    catalog = loaded(tmp_path, {"tables/shop.yaml": _ROW})
    (orders,) = catalog.tables
    assert {name: one.rule for name, one in orders.expect.items()} == {
        "named": "name is not null",
        "qty_ok": "qty >= 0",
    }
    assert orders.expressions["qty >= 0"] == parsed("qty >= 0")
    broken, *misspelt = sorted(catalog.problems, key=lambda one: one.line or 0)
    assert (broken.code, broken.line, broken.column) == ("EXPRESSION_INVALID", 13, 16)
    assert "at character 5" in broken.message
    assert {(one.code, one.field) for one in misspelt} == {
        ("FIELD_MISSING", "expect.qty_ok.rule"), ("FIELD_UNKNOWN", "expect.qty_ok.rul"),
        ("FIELD_VALUE", "expect.qty_ok.on"),
    }  # fmt: skip


def test_trees_travel_in_documents() -> None:
    spec = with_expressions(TableSpec(table="s.t", keys=("id",), expect={"ok": Expectation(rule="a in (1) or not b")}))
    assert decode(TableSpec, json.loads(to_document(spec))) == spec
    assert "expect" not in to_document(TableSpec(table="s.t", keys=("id",)))


def test_every_function_has_a_number_of_arguments() -> None:
    assert all(1 <= least <= most for least, most in FUNCTIONS.values())
