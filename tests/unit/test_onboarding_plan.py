"""Onboarding a source again and again: what is new is written, and rows that are there stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.metadata import files
from airflow_gddl.metadata.folder import LocalFolder
from airflow_gddl.metadata.loading import load
from airflow_gddl.metadata.settings import read_settings
from airflow_gddl.tools.onboarding.plan import OnboardingPlan, make_plan
from airflow_gddl.tools.onboarding.rules import KeyFact, SourceFacts, TableFacts
from tests.unit.metadata_folder import SETTINGS, write

MB = 1024**2
TABLES, KEYS = "tables/shop.yaml", "keys/shop.yaml"


def table(name: str, key: str | None = "id", size: int = 1, **fields: Any) -> TableFacts:
    known = None if key is None else KeyFact(columns=tuple(key.split(",")), evidence=f"primary key {name}_pkey")
    return TableFacts(table=f"shop.{name}", key=known, rows=10, size_bytes=size, fields=fields)


class Source:
    """A metadata folder, and a source that it is made from."""

    def __init__(self, folder: Path, files: Mapping[str, str] | None = None) -> None:
        self.folder = write(folder, dict(files or {}))

    def plan(self, *tables: TableFacts) -> OnboardingPlan:
        folder = LocalFolder(self.folder)
        return make_plan(folder, read_settings(folder, {}), "shop", SourceFacts(tables=tables), {})

    def apply(self, *tables: TableFacts) -> OnboardingPlan:
        plan = self.plan(*tables)
        write(self.folder, {change.name: change.new for change in plan.files})
        return plan

    def text(self, name: str) -> str:
        return (self.folder / name).read_text()

    def edit(self, name: str, old: str, new: str) -> None:
        assert old in self.text(name)
        (self.folder / name).write_text(self.text(name).replace(old, new))

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        texts = (path.read_text() for path in sorted((self.folder / "tables").glob("*.yaml")))
        return {row["table"]: row for text in texts for row in files.read_yaml(text)["tables"] or ()}

    def own(self) -> dict[str, str]:
        """What the files of rows and keys hold, by name."""
        paths = [path for sort in ("tables", "keys") for path in (self.folder / sort).glob("*")]
        return {str(path): path.read_text() for path in paths}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def codes(plan: OnboardingPlan) -> list[tuple[str, str]]:
    return [(notice.table, notice.code) for notice in plan.notices]


def test_a_new_source_gets_rows_and_keys_with_their_evidence(source: Source) -> None:
    plan = source.apply(table("orders", "id", 200 * MB), table("lines", "order_id,no"), table("log", None))
    assert codes(plan) == [("shop.log", "ONBOARD_NO_KEY")]
    assert source.text(TABLES) == (
        "# Proposed by `gddl onboard shop`: review and edit it. Later runs do not change this file.\n"
        "source: shop\n"
        "tables:\n"
        "  - {table: shop.lines}  # 10 rows, 1 bytes\n"
        "  - {table: shop.log, enabled: false}  # 10 rows, 1 bytes\n"
        "  - {table: shop.orders, size: medium}  # 10 rows, 200.0 MB\n"
    )
    assert source.text(KEYS).splitlines()[2:] == [
        "  shop.lines: [order_id, 'no']  # primary key lines_pkey",
        "  shop.log: []  # no key was found",
        "  shop.orders: [id]  # primary key orders_pkey",
    ]
    catalog = load(source.folder, {})
    assert catalog.problems == ()
    assert {t.table: (t.keys, t.size, t.enabled) for t in catalog.tables} == {
        "shop.lines": (("order_id", "no"), "small", True),
        "shop.log": ((), "small", False),
        "shop.orders": (("id",), "medium", True),
    }


def test_a_second_run_changes_no_file(source: Source) -> None:
    found = (table("orders", "id", 200 * MB), table("log", None), table("odd one", "a b"))
    source.apply(*found)
    again = source.plan(*found)
    assert (again.files, again.rows, codes(again)) == ((), (), [])


def test_new_tables_come_in_a_file_of_their_own_and_rows_that_exist_are_left_alone(source: Source) -> None:
    source.apply(table("a"), table("b"), table("c"))
    before = source.own()
    changed = table("a", "no", 2000 * MB, sequence_by=("scn",)), table("c", None), table("d")
    plan = source.apply(*changed)
    assert ([row.table for row in plan.rows], codes(plan)) == (["shop.d"], [])
    assert source.own().items() > before.items()
    assert source.text("tables/shop-2.yaml").splitlines()[1:] == [
        "source: shop", "tables:", "  - {table: shop.d}  # 10 rows, 1 bytes",
    ]  # fmt: skip
    assert source.text("keys/shop-2.yaml").splitlines()[1:] == ["keys:", "  shop.d: [id]  # primary key d_pkey"]
    assert {spec.table: spec.keys for spec in load(source.folder, {}).tables} == dict.fromkeys(
        ("shop.a", "shop.b", "shop.c", "shop.d"), ("id",)
    )
    assert source.plan(*changed).files == ()


def test_fields_that_defaults_set_are_decided_for_all(tmp_path: Path) -> None:
    defaults = "defaults: {size: large, options: {op_column: x}}\n"
    source = Source(tmp_path, {"gddl.yaml": SETTINGS + defaults})
    facts = {"options.op_column": "y", "options.date_partition": "YYYYMM"}
    source.apply(table("a", "id", 200 * MB, **facts))
    assert source.rows["shop.a"] == {"table": "shop.a", "options": {"date_partition": "YYYYMM"}}


def test_rows_of_other_files_are_left_to_them(tmp_path: Path) -> None:
    source = Source(tmp_path, {"tables/more.csv": "table,keys\nshop.A,id\n"})
    plan = source.apply(table("a"), table("b"))
    assert list(source.rows) == ["shop.b"]
    assert codes(plan) == [("shop.a", "ONBOARD_ROW_ELSEWHERE")]


@pytest.mark.parametrize("file", [KEYS, "keys/found.yaml"])
def test_keys_that_a_file_has_before_the_row_are_taken_as_they_are(tmp_path: Path, file: str) -> None:
    text = "keys:\n  shop.A: [x]  # mine\n  shop.b: [id]\n  shop.c: [y]\n"
    source = Source(tmp_path, {file: text})
    plan = source.apply(table("A"), table("b"), table("c", None), table("d"))
    assert codes(plan) == []
    assert source.text(file).startswith(text)
    catalog = load(source.folder, {})
    assert catalog.problems == ()
    assert {t.table: (t.keys, t.enabled) for t in catalog.tables} == {
        "shop.A": (("x",), True),
        "shop.b": (("id",), True),
        "shop.c": (("y",), True),
        "shop.d": (("id",), True),
    }
    assert source.plan(table("A"), table("b"), table("c", None), table("d")).files == ()


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("..", "FIELD_VALUE"),
        ("a/../../etc", "FIELD_VALUE"),
        ('quo"te', "FIELD_VALUE"),
        ("naïve", "FIELD_VALUE"),
        ("a.b", "FIELD_VALUE"),
        ("x__changes", "FIELD_VALUE"),
        (" a", "FIELD_VALUE"),
        ("ORDERS", "TABLE_DUPLICATE"),
    ],
)
def test_invalid_table_names_are_reported_and_do_not_stop_others(source: Source, name: str, code: str) -> None:
    first, second = sorted((table(name), table("orders")), key=lambda one: one.table)
    plan = source.apply(first, second)
    refused = name if code == "FIELD_VALUE" else "orders"
    assert codes(plan) == [(f"shop.{refused}", code)]
    assert len(source.rows) == 1
    assert load(source.folder, {}).problems == ()


@pytest.mark.parametrize("name", ["Odd Name", "a-b", "a$1", "a #x", "a@b", "no", "1", "null", "TRUE"])
def test_unusual_valid_names_round_trip(source: Source, name: str) -> None:
    source.apply(table(name, "no"))
    catalog = load(source.folder, {})
    assert [(t.table, t.keys) for t in catalog.tables] == [(f"shop.{name}", ("no",))]


@pytest.mark.parametrize(
    "column", ['qu"ote', "ko\n-", "{a: b}", "ünï", "# x", "'", "a, b", "%", "&x", "!!x", "password"]
)
def test_hostile_names_of_columns_are_only_names(source: Source, column: str) -> None:
    one = TableFacts(table="shop.t", key=KeyFact(columns=(column,), evidence="primary key\n- {table: x.y}"))
    source.apply(one)
    catalog = load(source.folder, {})
    assert [(t.table, t.keys) for t in catalog.tables] == [("shop.t", (column,))]
    assert source.plan(one).files == ()


@pytest.mark.parametrize("column", ["_gddl", "_rescued_data", " "])
def test_keys_that_no_table_can_have_leave_their_table_out(source: Source, column: str) -> None:
    plan = source.apply(TableFacts(table="shop.t", key=KeyFact(columns=(column,), evidence="x")), table("a"))
    assert list(source.rows) == ["shop.a"]
    assert codes(plan) == [("shop.t", "FIELD_VALUE" if column == " " else "COLUMN_RESERVED")]


@pytest.mark.parametrize(
    "files",
    [{TABLES: "tables: [\n"}, {TABLES: "- a\n"}, {TABLES: "tables: 7\n"}, {KEYS: "keys: {shop.b: 7}\n"}],
)
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, files: dict[str, str]) -> None:
    with pytest.raises(MetadataError) as caught:
        Source(tmp_path, files).plan(table("a"))
    assert caught.value.code == "ONBOARD_REFUSED"


# Rows that a person has, between two looks at a source that changes as it likes.

SIZES = st.sampled_from([1, 200 * MB, 2000 * MB])
FACTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["id", "id,no", None]), SIZES, st.sampled_from([None, "x"])),
    unique_by=lambda one: one[0],
    max_size=3,
)


def facts_of(found: list[tuple[str, str | None, int, str | None]]) -> list[TableFacts]:
    return [
        table(name, key, size, **({"options.op_column": operation} if operation else {}))
        for name, key, size, operation in found
    ]


@given(first=FACTS, later=st.lists(FACTS, min_size=1, max_size=2))
def test_no_file_of_rows_is_changed_and_a_second_run_has_nothing_new(
    tmp_path_factory: pytest.TempPathFactory, first: Any, later: Any
) -> None:
    source = Source(tmp_path_factory.mktemp("m"), {"gddl.yaml": SETTINGS})
    source.apply(*facts_of(first))
    for found in later:
        before = source.own()
        source.apply(*facts_of(found))
        assert source.own().items() >= before.items()
        assert source.plan(*facts_of(found)).files == ()
        assert load(source.folder, {}).problems == ()


def test_masks_of_columns_that_look_personal_are_proposed_as_comments(tmp_path: Path) -> None:
    columns = dict.fromkeys(("id", "Email", "phone_no", "birth_date", "SSN", "classname", "notes", "total"), "text")
    source = Source(tmp_path, {"gddl.yaml": SETTINGS})
    source.apply(replace(table("people"), columns=columns), table("orders"))
    lines = source.text(TABLES).splitlines()
    people, orders = (next(line for line in lines if f"shop.{name}" in line) for name in ("people", "orders"))
    assert "personal? mask: {Email: hmac, phone_no: hmac, birth_date: hmac, SSN: hmac}" in people
    assert "personal" not in orders
    assert "mask" not in source.rows["shop.people"]
