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
from airflow_gddl.onboarding.plan import OnboardingPlan, make_plan
from airflow_gddl.onboarding.rules import KeyFact, SourceFacts, TableFacts
from airflow_gddl.onboarding.yaml_text import flow
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
        return {row["table"]: row for row in files.read_yaml(self.text(TABLES))["tables"]}


@pytest.fixture
def source(tmp_path: Path) -> Source:
    return Source(tmp_path)


def codes(plan: OnboardingPlan) -> list[tuple[str, str]]:
    return [(notice.table, notice.code) for notice in plan.notices]


def test_a_new_source_gets_rows_and_keys_with_their_evidence(source: Source) -> None:
    source.apply(table("orders", "id", 200 * MB), table("lines", "order_id,no"), table("log", None))
    assert source.text(TABLES) == (
        "# Proposed by `gddl onboard shop`. Edits are kept by the next run.\n"
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


def test_new_outgrown_and_dropped_tables_are_all_that_changes(source: Source) -> None:
    source.apply(table("a"), table("b"), table("c"))
    before = source.text(TABLES).splitlines()
    plan = source.apply(table("a", size=2000 * MB), table("c"), table("d"))
    after = source.text(TABLES).splitlines()
    assert [line for line in after if line not in before] == [
        "  - {table: shop.a, size: large}  # 10 rows, 1 bytes",
        "  - {table: shop.b, enabled: false}  # 10 rows, 1 bytes",
        "  - {table: shop.d}  # 10 rows, 1 bytes",
    ]
    assert plan.dropped == ("shop.b",)
    assert "shop.b: [id]" in source.text(KEYS)


def test_a_table_that_comes_back_runs_again(source: Source) -> None:
    source.apply(table("a"), table("b"))
    source.apply(table("a"))
    assert source.rows["shop.b"] == {"table": "shop.b", "enabled": False}
    source.apply(table("a"), table("b"))
    assert source.rows["shop.b"] == {"table": "shop.b"}


def test_an_emptied_landing_folder_stops_no_table(source: Source) -> None:
    source.apply(table("a"), table("b"), origin="landing")
    plan = source.apply(table("a"), origin="landing")
    assert (plan.files, codes(plan)) == ((), [("shop.b", "ONBOARD_FOLDER_EMPTY")])


def test_changed_keys_are_written_with_evidence_and_reported(source: Source) -> None:
    source.apply(table("a", "id"))
    plan = source.apply(table("a", "no"))
    assert source.text(KEYS).splitlines()[-1] == "  shop.a: ['no']  # primary key a_pkey"
    assert codes(plan) == [("shop.a", "ONBOARD_KEYS_CHANGED")]


def test_tables_of_other_schemas_are_not_reported_as_dropped(source: Source) -> None:
    source.apply(table("a"))
    folder, names = LocalFolder(source.folder), frozenset({"shop.a"})
    facts = SourceFacts(
        origin="database", tables=(), schemas=frozenset({"other"}), names=names, shown=frozenset({"other"})
    )
    assert codes(make_plan(folder, read_settings(folder, {}), "shop", facts, {})) == []


def test_a_key_that_turns_up_enables_the_table(source: Source) -> None:
    source.apply(table("a", None))
    plan = source.apply(table("a", "id"))
    assert (source.rows["shop.a"], codes(plan)) == ({"table": "shop.a"}, [])
    assert load(source.folder, {}).tables[0].keys == ("id",)


def test_a_key_that_was_declared_is_not_given_up_for_a_measured_one_or_none(source: Source) -> None:
    source.apply(table("a", "id"), table("b", "id"))
    measured = KeyFact(columns=("no",), evidence="measured: unique in all 3 rows of the full load")
    plan = source.apply(TableFacts(table="shop.a", key=measured), table("b", None), origin="landing")
    assert (plan.files, codes(plan)) == ((), [])
    plan = source.apply(table("a", "id"), table("b", None))
    assert (plan.files, codes(plan)) == ((), [("shop.b", "ONBOARD_KEY_GONE")])


def test_a_measured_key_gives_way_to_a_declared_one(source: Source) -> None:
    measured = KeyFact(columns=("no",), evidence="measured: unique in all 3 rows of the full load")
    source.apply(TableFacts(table="shop.a", key=measured), origin="landing")
    source.apply(table("a", "id"))
    assert source.text(KEYS).splitlines()[-1] == "  shop.a: [id]  # primary key a_pkey"


def test_fields_from_change_files_are_kept_without_new_ones(source: Source) -> None:
    source.apply(table("a", "id", 1, **{"options.op_column": "x", "sequence_by": ("scn",)}), origin="landing")
    unseen = TableFacts(table="shop.a", key=KeyFact(columns=("id",), evidence="primary key a_pkey"), size_bytes=1)
    assert source.plan(unseen).files == ()
    source.apply(table("a"), origin="landing")
    assert source.rows["shop.a"] == {"table": "shop.a"}


def test_a_key_set_by_a_user_is_kept(source: Source) -> None:
    source.apply(table("a", None))
    source.edit(KEYS, "shop.a: []", "shop.a: [x]")
    source.edit(TABLES, ", enabled: false", "")
    plan = source.apply(table("a", None))
    assert (plan.merged.changes, plan.merged.kept, codes(plan)) == ((), (), [])
    assert source.plan(table("a", None)).files == ()


def test_a_table_with_keys_of_a_user_is_enabled_until_dropped(source: Source) -> None:
    source.apply(table("a", None), table("b"))
    source.edit(KEYS, "shop.a: []", "shop.a: [x]")
    states = []
    for found in ([table("a", None)], [], [table("a", None)]):
        source.apply(*found, table("b"))
        states.append(source.rows["shop.a"].get("enabled", True))
    assert states == [True, False, True]


def test_a_row_removed_by_a_user_stays_removed(source: Source) -> None:
    source.apply(table("a"), table("b"))
    source.edit(TABLES, "  - {table: shop.b}  # 10 rows, 1 bytes\n", "")
    plan = source.apply(table("a"), table("b", size=200 * MB))
    assert list(source.rows) == ["shop.a"]
    assert [(kept.table, kept.field) for kept in plan.merged.kept] == [("shop.b", "table")]


def test_text_of_a_user_is_kept(source: Source) -> None:
    source.apply(table("a"), table("b"), table("c", "id", 1, **{"options.date_partition": "YYYYMM"}))
    text = (
        "source: shop\ndefaults: {freshness: 30m}   # all of them\n\ntables:\n"
        "  # the heart of it\n  - table: shop.a\n    owner: 'team-a'   # ask them first\n"
        "  - {table: shop.c, options: {op_column: operation, date_partition: YYYYMM}}\n\n"
        "  # rarely used\n  - { table: shop.b, schedule: '@weekly' } # really\n# end"
    )
    (source.folder / TABLES).write_text(text)
    source.apply(table("a", size=200 * MB), table("b", size=200 * MB), table("c"), table("d"))
    assert source.text(TABLES) == (
        text.replace("ask them first\n", "ask them first\n    size: medium\n")
        .replace("'@weekly' }", "'@weekly', size: medium }")
        .replace(", date_partition: YYYYMM", "")
        .replace("# really", "# really\n  - {table: shop.d}  # 10 rows, 1 bytes")
    )


def test_a_byte_order_mark_and_ends_of_lines_stay(source: Source) -> None:
    source.apply(table("a"))
    old = "\ufefftables:\r\n- {table: shop.a}\r\n"
    (source.folder / TABLES).write_bytes(old.encode())
    source.apply(table("a", size=200 * MB), table("b"))
    new = old.replace("shop.a", "shop.a, size: medium") + "- {table: shop.b}  # 10 rows, 1 bytes\r\n"
    assert (source.folder / TABLES).read_bytes().decode() == new


def test_fields_that_defaults_set_are_decided_for_all(source: Source) -> None:
    (source.folder / "tables").mkdir()
    (source.folder / TABLES).write_text("defaults: {size: large, options: {op_column: x}}\ntables: []\n")
    source.apply(table("a", "id", 200 * MB, **{"options.op_column": "y", "options.date_partition": "YYYYMM"}))
    assert source.rows["shop.a"] == {"table": "shop.a", "options": {"date_partition": "YYYYMM"}}


def test_rows_of_other_files_are_left_to_them(tmp_path: Path) -> None:
    source = Source(tmp_path, {"tables/more.csv": "table,keys\nshop.A,id\n"})
    plan = source.apply(table("a"), table("b"))
    assert list(source.rows) == ["shop.b"]
    assert codes(plan) == [("shop.a", "ONBOARD_ROW_ELSEWHERE")]


def test_keys_in_the_row_or_in_another_file_are_not_written_twice(tmp_path: Path) -> None:
    files = {
        TABLES: "tables:\n- {table: shop.a, keys: [x]}\n- {table: shop.b}\n- {table: shop.c, keys: [id]}\n",
        "keys/found.yaml": "keys: {shop.b: [y]}\n",
    }
    source = Source(tmp_path, files)
    plan = source.plan(table("a"), table("b"), table("c"))
    assert [(kept.table, kept.value, kept.proposed) for kept in plan.merged.kept] == [
        ("shop.a", ("x",), ("id",)),
        ("shop.b", ("y",), ("id",)),
    ]
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
    assert source.plan(table("A", "no"), table("b", "no"), table("c", None), table("d")).files == ()


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
        ({TABLES: "source: other\ntables: []\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "tables: [\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "- a\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "tables: 7\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({KEYS: "keys: {shop.b: 7}\n"}, "ONBOARD_FILE_UNUSABLE"),
        ({TABLES: "tables: [{table: shop.b, keys: [id]}]\n"}, "ONBOARD_UNEDITABLE"),
        ({TABLES: "tables:\n- {table: shop.b, keys: [id]}\t# libyaml takes this tab\n"}, "ONBOARD_UNEDITABLE"),
        ({MEMORY: "{}}"}, "ONBOARD_MEMORY_INVALID"),
        ({MEMORY: '{"tables": {"shop.a": {"keys": "id"}}}'}, "ONBOARD_MEMORY_INVALID"),
    ],
)
def test_files_that_cannot_be_edited_are_refused(tmp_path: Path, files: dict[str, str], code: str) -> None:
    with pytest.raises(MetadataError) as caught:
        Source(tmp_path, files).plan(table("a"))
    assert caught.value.code == code


def test_a_shared_row_is_not_edited_behind_its_other_owner(tmp_path: Path) -> None:
    source = Source(
        tmp_path, {TABLES: "tables:\n- &a {table: shop.a, keys: [id], tags: &t {}}\n- {table: shop.b, keys: [id]}\n"}
    )
    source.apply(table("a", size=200 * MB), table("b"))
    assert source.rows["shop.a"]["size"] == "medium"


def test_the_memory_has_a_line_for_each_table_and_no_more_than_was_proposed(source: Source) -> None:
    source.apply(table("b"), table("a", "id", 200 * MB))
    lines = source.text(MEMORY).splitlines()
    assert len(lines) == 4
    assert json.loads(source.text(MEMORY))["tables"] == {
        "shop.a": {"keys": ["id"], "fields": {"size": "medium"}, "key_evidence": "primary key a_pkey"},
        "shop.b": {"keys": ["id"], "key_evidence": "primary key b_pkey"},
    }


# A person's edits of any field, between two looks at a source that changes as it likes.

SIZES = st.sampled_from([1, 200 * MB, 2000 * MB])
FACTS = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["id", "id,no", None]), SIZES, st.sampled_from([None, "x"])),
    unique_by=lambda one: one[0],
    max_size=3,
)
EDITS = {
    "size": st.sampled_from(["small", "medium", "large"]),
    "priority": st.sampled_from(["low", "critical"]),
    "schedule": st.sampled_from(["@daily", None, "*/5 * * * *"]),
    "enabled": st.booleans(),
    "sequence_by": st.sampled_from([["scn"], ["a", "b"]]),
    "options": st.sampled_from([{"op_column": "mine"}, {"date_partition": "YYYYMM"}]),
    "owner": st.sampled_from(["team, a", "yes"]),
    "mask": st.sampled_from([{"email": "hash"}]),
}


def facts_of(found: list[tuple[str, str | None, int, str | None]]) -> list[TableFacts]:
    return [
        table(name, key, size, **({"options.op_column": operation} if operation else {}))
        for name, key, size, operation in found
    ]


@given(first=FACTS, later=st.lists(FACTS, min_size=1, max_size=2), data=st.data())
def test_a_user_s_edit_of_any_field_is_kept_and_a_second_run_changes_no_file(
    tmp_path_factory: pytest.TempPathFactory, first: Any, later: Any, data: st.DataObject
) -> None:
    source = Source(tmp_path_factory.mktemp("m"), {"gddl.yaml": SETTINGS})
    source.apply(*facts_of(first))
    edited = edit_rows(source, data) if first else {}
    keyed = edit_keys(source, data) if first else {}
    for found in later:
        source.apply(*facts_of(found))
        assert source.plan(*facts_of(found)).files == ()
        for name, fields in edited.items():
            row = flat(source.rows[name])
            assert {field: row.get(field) for field in fields} == fields
        entries = files.read_yaml(source.text(KEYS))["keys"] if keyed else {}
        assert {name: entries[name] for name in keyed} == keyed
        assert load(source.folder, {}).problems == ()


def edit_keys(source: Source, data: st.DataObject) -> dict[str, list[str]]:
    """Other keys for some tables; which."""
    edited: dict[str, list[str]] = {}
    for name, keys in files.read_yaml(source.text(KEYS))["keys"].items():
        mine = data.draw(st.sampled_from([keys, [], ["mine"], ["no", "id"]]))
        if mine != keys:
            source.edit(KEYS, f"{name}: {flow(keys)}", f"{name}: {flow(mine)}")
            edited[name] = mine
    return edited


def flat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Entries of `options` are fields of their own."""
    options = {f"options.{name}": value for name, value in row.get("options", {}).items()}
    return {**{name: value for name, value in row.items() if name != "options"}, **options}


def edit_rows(source: Source, data: st.DataObject) -> dict[str, dict[str, Any]]:
    """Change fields of some rows; what then stands there, by table and path (null: nothing)."""
    edited: dict[str, dict[str, Any]] = {}
    lines = source.text(TABLES).splitlines()
    for name, row in source.rows.items():
        names = data.draw(st.lists(st.sampled_from(sorted(EDITS)), unique=True, max_size=3))
        fields = {field: data.draw(EDITS[field]) for field in names}
        fields = {field: value for field, value in fields.items() if row.get(field) != value}
        place = next(i for i, line in enumerate(lines) if f"table: {name}" in line)
        lines[place] = f"  - {flow({**row, **fields})}  # edited"
        gone = dict.fromkeys(flat(row).keys() - flat({**row, **fields}).keys())
        edited[name] = {**gone, **flat(fields)}
    (source.folder / TABLES).write_text("\n".join(lines) + "\n")
    return edited


def test_masks_of_columns_that_look_personal_are_proposed_as_comments(tmp_path: Path) -> None:
    columns = dict.fromkeys(("id", "Email", "phone_no", "birth_date", "SSN", "classname", "notes", "total"), "text")
    source = Source(tmp_path, {"gddl.yaml": SETTINGS})
    source.apply(replace(table("people"), columns=columns), table("orders"))
    lines = source.text(TABLES).splitlines()
    people, orders = (next(line for line in lines if f"shop.{name}" in line) for name in ("people", "orders"))
    assert "personal? mask: {Email: hmac, phone_no: hmac, birth_date: hmac, SSN: hmac}" in people
    assert "personal" not in orders
    assert "mask" not in source.rows["shop.people"]
