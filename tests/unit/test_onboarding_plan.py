"""Onboarding a source again and again: what is written, what a person changed, what the source has become."""

from __future__ import annotations

import json
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
from airflow_gddl.onboarding.merging import ABSENT
from airflow_gddl.onboarding.plan import OnboardingPlan, make_plan
from airflow_gddl.onboarding.rules import KeyFact, SourceFacts, TableFacts
from tests.unit.metadata_folder import SETTINGS, write

MB = 1024**2
TABLES, KEYS, MEMORY = "tables/shop.yaml", "keys/shop.yaml", "onboarding/shop.json"


def table(name: str, key: str | None = "id", size: int = 1, **fields: Any) -> TableFacts:
    known = None if key is None else KeyFact(columns=tuple(key.split(",")), evidence=f"primary key {name}_pkey")
    return TableFacts(table=f"shop.{name}", key=known, rows=10, size_bytes=size, fields=fields or {})


class Source:
    """A metadata folder, and a source that it is made from."""

    def __init__(self, folder: Path, files: Mapping[str, str] | None = None) -> None:
        self.folder = write(folder, dict(files or {}))

    def plan(self, *tables: TableFacts, origin: str = "database") -> OnboardingPlan:
        folder = LocalFolder(self.folder)
        facts = SourceFacts(origin="landing" if origin == "landing" else "database", tables=tables)
        return make_plan(folder, read_settings(folder, {}), "shop", facts, {})

    def apply(self, *tables: TableFacts, origin: str = "database") -> OnboardingPlan:
        plan = self.plan(*tables, origin=origin)
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
    source.apply(table("orders", "id", 200 * MB), table("lines", "order_id,no"), table("log", None))
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
    assert (again.files, again.merged.changes, again.merged.rows, again.merged.kept) == ((), (), (), ())


def changes(plan: OnboardingPlan) -> list[tuple[str, str, Any, Any]]:
    return [(one.table, one.field, one.old, one.new) for one in plan.merged.changes]


def test_new_tables_come_in_a_file_of_their_own_and_changes_are_shown_once(source: Source) -> None:
    source.apply(table("a"), table("b"), table("c"))
    before = source.own()
    plan = source.apply(table("a", size=2000 * MB), table("c"), table("d"))
    assert changes(plan) == [("shop.a", "size", ABSENT, "large"), ("shop.b", "enabled", ABSENT, False)]
    assert plan.dropped == ("shop.b",)
    assert source.own().items() > before.items()
    assert source.text("tables/shop-2.yaml").splitlines()[1:] == [
        "source: shop", "tables:", "  - {table: shop.d}  # 10 rows, 1 bytes",
    ]  # fmt: skip
    assert source.text("keys/shop-2.yaml").splitlines()[1:] == ["keys:", "  shop.d: [id]  # primary key d_pkey"]
    assert {spec.table: spec.keys for spec in load(source.folder, {}).tables} == dict.fromkeys(
        ("shop.a", "shop.b", "shop.c", "shop.d"), ("id",)
    )
    again = source.plan(table("a", size=2000 * MB), table("c"), table("d"))
    assert (again.files, changes(again)) == ((), [])
    assert [(kept.table, kept.field, kept.proposed) for kept in again.merged.kept] == [
        ("shop.a", "size", "large"),
        ("shop.b", "enabled", False),
    ]
    source.edit(TABLES, "shop.a}", "shop.a, size: large}")
    source.edit(TABLES, "shop.b}", "shop.b, enabled: false}")
    assert source.plan(table("a", size=2000 * MB), table("c"), table("d")).merged.kept == ()


def test_a_table_that_comes_back_is_said_to(source: Source) -> None:
    source.apply(table("a"), table("b"))
    source.apply(table("a"))
    source.edit(TABLES, "shop.b}", "shop.b, enabled: false}")
    assert changes(source.apply(table("a"), table("b"))) == [("shop.b", "enabled", False, ABSENT)]


def test_an_emptied_landing_folder_stops_no_table(source: Source) -> None:
    source.apply(table("a"), table("b"), origin="landing")
    plan = source.apply(table("a"), origin="landing")
    assert (plan.files, codes(plan)) == ((), [("shop.b", "ONBOARD_FOLDER_EMPTY")])


def test_changed_keys_are_shown_with_evidence(source: Source) -> None:
    source.apply(table("a", "id"))
    plan = source.apply(table("a", "no"))
    assert (changes(plan), plan.merged.changes[0].evidence) == (
        [("shop.a", "keys", ("id",), ("no",))],
        "primary key a_pkey",
    )
    assert codes(plan) == [("shop.a", "ONBOARD_KEYS_CHANGED")]


def test_tables_of_other_schemas_are_not_reported_as_dropped(source: Source) -> None:
    source.apply(table("a"))
    folder, names = LocalFolder(source.folder), frozenset({"shop.a"})
    facts = SourceFacts(
        origin="database", tables=(), schemas=frozenset({"other"}), names=names, shown=frozenset({"other"})
    )
    assert codes(make_plan(folder, read_settings(folder, {}), "shop", facts, {})) == []


def test_a_key_that_turns_up_is_proposed_and_enables_the_table(source: Source) -> None:
    source.apply(table("a", None))
    plan = source.apply(table("a", "id"))
    assert changes(plan) == [("shop.a", "enabled", False, ABSENT), ("shop.a", "keys", (), ("id",))]
    assert codes(plan) == []


def test_a_key_that_was_declared_is_not_given_up_for_a_measured_one_or_none(source: Source) -> None:
    source.apply(table("a", "id"), table("b", "id"))
    measured = KeyFact(columns=("no",), evidence="measured: unique in all 3 rows of the full load")
    plan = source.apply(TableFacts(table="shop.a", key=measured), table("b", None), origin="landing")
    assert (plan.files, codes(plan)) == ((), [])
    plan = source.apply(table("a", "id"), table("b", None))
    assert (plan.files, codes(plan)) == ((), [("shop.b", "ONBOARD_KEY_GONE")])


def test_fields_from_change_files_are_kept_without_new_ones(source: Source) -> None:
    source.apply(table("a", "id", 1, **{"options.op_column": "x", "sequence_by": ("scn",)}), origin="landing")
    unseen = TableFacts(table="shop.a", key=KeyFact(columns=("id",), evidence="primary key a_pkey"), size_bytes=1)
    assert source.plan(unseen).files == ()
    assert changes(source.apply(table("a"), origin="landing")) == [
        ("shop.a", "options.op_column", "x", ABSENT),
        ("shop.a", "sequence_by", ("scn",), ABSENT),
    ]


def test_a_key_set_by_a_user_is_kept(source: Source) -> None:
    source.apply(table("a", None))
    source.edit(KEYS, "shop.a: []", "shop.a: [x]")
    source.edit(TABLES, ", enabled: false", "")
    plan = source.apply(table("a", None))
    assert (plan.merged.changes, plan.merged.kept, codes(plan)) == ((), (), [])
    assert source.plan(table("a", None)).files == ()
    assert changes(source.plan(table("a", "id"))) == [("shop.a", "keys", ("x",), ("id",))]


def test_a_row_removed_by_a_user_stays_removed(source: Source) -> None:
    source.apply(table("a"), table("b"))
    source.edit(TABLES, "  - {table: shop.b}  # 10 rows, 1 bytes\n", "")
    plan = source.apply(table("a"), table("b", size=200 * MB))
    assert list(source.rows) == ["shop.a"]
    assert [(kept.table, kept.field) for kept in plan.merged.kept] == [("shop.b", "table")]


def test_fields_that_defaults_set_are_decided_for_all(tmp_path: Path) -> None:
    defaults = "defaults: {size: large, options: {op_column: x}}\n"
    source = Source(tmp_path, {"gddl.yaml": SETTINGS + defaults})
    facts = {"options.op_column": "y", "options.date_partition": "YYYYMM"}
    source.apply(table("a", "id", 200 * MB, **facts))
    assert source.rows["shop.a"] == {"table": "shop.a", "options": {"date_partition": "YYYYMM"}}
    assert source.plan(table("a", "id", 1, **facts)).merged.changes == ()


def test_rows_of_other_files_are_left_to_them(tmp_path: Path) -> None:
    source = Source(tmp_path, {"tables/more.csv": "table,keys\nshop.A,id\n"})
    plan = source.apply(table("a"), table("b"))
    assert list(source.rows) == ["shop.b"]
    assert codes(plan) == [("shop.a", "ONBOARD_ROW_ELSEWHERE")]


def test_keys_in_the_row_or_in_another_file_are_compared(tmp_path: Path) -> None:
    files = {
        TABLES: "tables:\n- {table: shop.a, keys: [x]}\n- {table: shop.b}\n- {table: shop.c, keys: [id]}\n",
        "keys/found.yaml": "keys: {shop.b: [y]}\n",
    }
    source = Source(tmp_path, files)
    plan = source.plan(table("a"), table("b"), table("c"))
    assert changes(plan) == [("shop.a", "keys", ("x",), ("id",)), ("shop.b", "keys", ("y",), ("id",))]
    assert [change.name for change in plan.files] == [MEMORY]


@pytest.mark.parametrize("file", [KEYS, "keys/found.yaml"])
def test_keys_that_a_file_has_before_the_row_are_taken_as_they_are(tmp_path: Path, file: str) -> None:
    text = "keys:\n  shop.A: [x]  # mine\n  shop.b: [id]\n  shop.c: [y]\n"
    source = Source(tmp_path, {file: text})
    plan = source.apply(table("A"), table("b"), table("c", None), table("d"))
    assert [(kept.table, kept.value, kept.proposed) for kept in plan.merged.kept] == [("shop.A", ("x",), ("id",))]
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
    assert changes(source.plan(table("A", "no"), table("b"), table("c", None), table("d"))) == [
        ("shop.A", "keys", ("x",), ("no",))
    ]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("..", "TABLE_NAME_INVALID"),
        ("a/../../etc", "TABLE_NAME_INVALID"),
        ('quo"te', "TABLE_NAME_INVALID"),
        ("naïve", "TABLE_NAME_INVALID"),
        ("a.b", "TABLE_NAME_INVALID"),
        ("x__changes", "TABLE_NAME_INVALID"),
        (" a", "TABLE_NAME_INVALID"),
        ("ORDERS", "TABLE_DUPLICATE"),
    ],
)
def test_invalid_table_names_are_reported_and_do_not_stop_others(source: Source, name: str, code: str) -> None:
    first, second = sorted((table(name), table("orders")), key=lambda one: one.table)
    plan = source.apply(first, second)
    refused = name if code == "TABLE_NAME_INVALID" else "orders"
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
    code = "KEYS_INVALID" if column == " " else "COLUMN_RESERVED"
    assert codes(plan) == [("shop.t", code)]


@pytest.mark.parametrize(
    ("files", "code"),
    [
        ({TABLES: "tables: [\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "- a\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "tables: 7\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({KEYS: "keys: {shop.b: 7}\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({MEMORY: "{}}"}, "ONBOARD_MEMORY_INVALID"),
        ({MEMORY: '{"tables": {"shop.a": {"keys": "id"}}}'}, "ONBOARD_MEMORY_INVALID"),
    ],
)
def test_files_that_cannot_be_read_are_refused(tmp_path: Path, files: dict[str, str], code: str) -> None:
    with pytest.raises(MetadataError) as caught:
        Source(tmp_path, files).plan(table("a"))
    assert caught.value.code == code


def test_the_memory_has_a_line_for_each_table_and_no_more_than_was_proposed(source: Source) -> None:
    source.apply(table("b"), table("a", "id", 200 * MB))
    lines = source.text(MEMORY).splitlines()
    assert len(lines) == 4
    assert json.loads(source.text(MEMORY))["tables"] == {
        "shop.a": {"keys": ["id"], "fields": {"size": "medium"}, "key_evidence": "primary key a_pkey"},
        "shop.b": {"keys": ["id"], "key_evidence": "primary key b_pkey"},
    }


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
