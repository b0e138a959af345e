"""The whole way from files to specs: formats, precedence, keys files, what one bad thing leaves alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from airflow_gddl.metadata.folder import open_folder
from airflow_gddl.metadata.loading import load, unread
from airflow_gddl.metadata.settings import SettingsError
from tests.unit.metadata_folder import loaded, only_problem, row_file, write

GOOD = "{table: shop.good, keys: [id]}"

FULL = TableSpec(
    table="shop.orders",
    keys=("id", "line"),
    source="erp",
    sequence_by=("lsn",),
    size="medium",
    priority="high",
    schedule={"assets": ("raw",)},
    freshness="30m",
    delete="soft",
    history=True,
    track_history_except=("seen_at",),
    tie_break="last_arrival",
    before_image_prefix="BI_",
    ignore_null_updates=True,
    columns_to_update="changed",
    force_update="forced",
    columns=("id", "line", "email", "lsn"),
    exclude_columns=("note",),
    mask={"email": "hash", "phone": "null"},
    schema_evolution=SchemaEvolution(new_column="fail", dropped_column="null"),
    on_bad_row="fail",
    cluster_by=("id",),
    table_properties={"user.team": "a"},
    tags={"team": "a"},
    owner="sales",
    depends_on=("shop.customers",),
    enabled=False,
    dialect="dms",
    options={"date_partition": "YYYYMMDD", "types": {"amount": "decimal(12,2)"}},
    tombstone_retention="14d",
)

FULL_YAML = """
source: erp
tables:
  - table: shop.orders
    keys: [id, line]
    sequence_by: [lsn]
    size: medium
    priority: high
    schedule: {assets: [raw]}
    freshness: 30m
    delete: soft
    history: true
    track_history_except: [seen_at]
    tie_break: last_arrival
    before_image_prefix: BI_
    ignore_null_updates: true
    columns_to_update: changed
    force_update: forced
    columns: [id, line, email, lsn]
    exclude_columns: [note]
    mask: {email: hash, phone: null}
    schema_evolution: {new_column: fail, dropped_column: null}
    on_bad_row: fail
    cluster_by: [id]
    table_properties: {user.team: a}
    tags: {team: a}
    owner: sales
    depends_on: [shop.customers]
    enabled: false
    dialect: dms
    options: {date_partition: YYYYMMDD, types: {amount: "decimal(12,2)"}}
    tombstone_retention: 14d
  - {table: shop.customers, keys: []}
"""

FULL_JSON = {
    "source": "erp",
    "tables": [
        {
            "table": "shop.orders",
            "keys": ["id", "line"],
            "sequence_by": ["lsn"],
            "size": "medium",
            "priority": "high",
            "schedule": {"assets": ["raw"]},
            "freshness": "30m",
            "delete": "soft",
            "history": True,
            "track_history_except": ["seen_at"],
            "tie_break": "last_arrival",
            "before_image_prefix": "BI_",
            "ignore_null_updates": True,
            "columns_to_update": "changed",
            "force_update": "forced",
            "columns": ["id", "line", "email", "lsn"],
            "exclude_columns": ["note"],
            "mask": {"email": "hash", "phone": None},
            "schema_evolution": {"new_column": "fail", "dropped_column": None},
            "on_bad_row": "fail",
            "cluster_by": ["id"],
            "table_properties": {"user.team": "a"},
            "tags": {"team": "a"},
            "owner": "sales",
            "depends_on": ["shop.customers"],
            "enabled": False,
            "dialect": "dms",
            "options": {"date_partition": "YYYYMMDD", "types": {"amount": "decimal(12,2)"}},
            "tombstone_retention": "14d",
        },
        {"table": "shop.customers", "keys": []},
    ],
}

FULL_CSV = (
    "table,keys,source,sequence_by,size,priority,schedule,freshness,delete,history,track_history_except,tie_break,"
    "before_image_prefix,ignore_null_updates,columns_to_update,force_update,columns,exclude_columns,mask,"
    "schema_evolution,on_bad_row,cluster_by,table_properties,tags,owner,depends_on,enabled,dialect,options,"
    "tombstone_retention\r\n"
    'shop.orders,id|line,erp,lsn,medium,high,"{""assets"": [""raw""]}",30m,soft,TRUE,seen_at,last_arrival,'
    'BI_,true,changed,forced,id | line|email|lsn,note,"{""email"": ""hash"", ""phone"": null}",'
    '"{""new_column"": ""fail"", ""dropped_column"": ""null""}",fail,"[""id""]","{""user.team"": ""a""}",'
    '"{""team"": ""a""}",sales,shop.customers,false,dms,'
    '"{""date_partition"": ""YYYYMMDD"", ""types"": {""amount"": ""decimal(12,2)""}}",14d\r\n'
    "shop.customers,[],erp,,,,,,,,,,,,,,,,,,,,,,,,,,,\r\n"
)


@pytest.mark.parametrize(
    ("name", "content"),
    [("tables/a.yaml", FULL_YAML), ("tables/a.json", json.dumps(FULL_JSON, indent=1)), ("tables/a.csv", FULL_CSV)],
)
def test_every_field_is_read_alike_from_every_format(tmp_path: Path, name: str, content: str) -> None:
    catalog = loaded(tmp_path, {name: content})
    assert catalog.problems == ()
    assert catalog.tables == (TableSpec(table="shop.customers", keys=(), source="erp"), FULL)


def test_tables_are_sorted_and_come_from_all_files_below_tables(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/z.yaml": row_file("{table: b.b, keys: [id]}"),
        "tables/sub/deep/a.yml": row_file("{table: c.c, keys: [id]}"),
        "tables/m.json": '{"tables": [{"table": "a.a", "keys": ["id"]}]}',
        "tables/.hidden.yaml": "not: [read",
        "tables/..data/a.yaml": "not: [read",
        "tables/README.md": "not read",
    }
    catalog = loaded(tmp_path, files)
    assert [(spec.table, spec.source) for spec in catalog.tables] == [("a.a", "m"), ("b.b", "shop"), ("c.c", "shop")]
    assert catalog.problems == ()


def test_a_row_beats_its_file_which_beats_the_settings_which_beat_the_contract(tmp_path: Path) -> None:
    settings = "landing: a\nlake: b\ndefaults: {size: large, priority: low, owner: all, tie_break: last_arrival}\n"
    file = "defaults: {size: medium, priority: high}\ntables: [{table: a.a, keys: [id], size: small}]\n"
    (spec,) = loaded(tmp_path, {"gddl.yaml": settings, "tables/crm.yaml": file}).tables
    assert (spec.size, spec.priority, spec.owner, spec.tie_break) == ("small", "high", "all", "last_arrival")
    assert (spec.delete, spec.source) == ("hard", "crm")


def test_mappings_of_defaults_are_merged_entry_by_entry(tmp_path: Path) -> None:
    settings = "landing: a\nlake: b\ndefaults: {mask: {email: hash}, schedule: {assets: [x]}, tags: {a: '1', b: '1'}}\n"
    file = row_file("{table: a.a, keys: [id], mask: {phone: null}, schedule: {assets: [y]}, tags: {b: '2'}}")
    (spec,) = loaded(tmp_path, {"gddl.yaml": settings, "tables/a.yaml": file}).tables
    assert spec.mask == {"email": "hash", "phone": "null"}
    assert (spec.schedule, spec.tags) == ({"assets": ("y",)}, {"a": "1", "b": "2"})


@pytest.mark.parametrize(
    ("head", "default", "expected"),
    [
        ("source: f\n", "source: d", "f"),
        ("defaults: {source: e}\n", "source: d", "e"),
        ("", "source: d", "d"),
        ("", "", "x"),
    ],
)
def test_the_source_is_the_files_then_the_defaults_then_the_files_name(
    tmp_path: Path, head: str, default: str, expected: str
) -> None:
    settings = f"landing: a\nlake: b\ndefaults: {{{default}}}\n"
    (spec,) = loaded(tmp_path, {"gddl.yaml": settings, "tables/x.yaml": row_file(GOOD, head=head)}).tables
    assert spec.source == expected


def test_words_that_yaml_1_1_takes_for_booleans_are_column_names(tmp_path: Path) -> None:
    (spec,) = loaded(tmp_path, {"tables/a.yaml": row_file("{table: a.a, keys: [no, on, y, 'null', 12:30]}")}).tables
    assert spec.keys == ("no", "on", "y", "null", "12:30")


def test_anchors_and_aliases_are_read(tmp_path: Path) -> None:
    file = row_file("{table: a.a, keys: &key [id], cluster_by: *key}", "{table: a.b, keys: *key}")
    assert [spec.keys for spec in loaded(tmp_path, {"tables/a.yaml": file}).tables] == [("id",), ("id",)]


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "source: x\ntables:\n", "tables: []\n"])
def test_a_file_without_rows_is_no_problem(tmp_path: Path, content: str) -> None:
    catalog = loaded(tmp_path, {"tables/a.yaml": content, "tables/b.json": "", "tables/c.csv": "", "keys/k.yaml": ""})
    assert (catalog.tables, catalog.problems) == ((), ())


def test_keys_come_from_keys_files(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/a.yaml": row_file("{table: shop.a}", "{table: Shop.B}", "{table: shop.c, keys: [y, x]}"),
        "keys/1.yaml": "keys:\n  shop.a: [id]\n  shop.b: []\n  other.z: [id]\n",
        "keys/2.json": '{"keys": {"shop.c": ["x", "y"], "SHOP.A": ["id"], "gone.t": ["id"]}}',
    }
    catalog = loaded(tmp_path, files)
    assert [(spec.table, spec.keys) for spec in catalog.tables] == [
        ("Shop.B", ()),
        ("shop.a", ("id",)),
        ("shop.c", ("y", "x")),
    ]
    assert (catalog.problems, [one.table for one in catalog.unused_keys]) == ((), ["gone.t", "other.z"])


def test_keys_that_disagree_stop_only_their_table(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/a.yaml": row_file("{table: s.a, keys: [b]}", "{table: s.b}", GOOD),
        "keys/1.yaml": "keys:\n  s.a: [id]\n  s.b: [id]\n",
        "keys/2.yaml": "keys:\n\n  s.b: [other]\n",
    }
    catalog = loaded(tmp_path, files)
    assert [spec.table for spec in catalog.tables] == ["shop.good"]
    assert [(p.code, p.place, p.table, p.message) for p in catalog.problems] == [
        ("KEYS_CONFLICT", "keys/1.yaml:3", "s.b", "keys/1.yaml and keys/2.yaml:3 name different keys"),
        ("KEYS_CONFLICT", "tables/a.yaml:3", "s.a", "differ from the keys that keys/1.yaml names"),
    ]


@pytest.mark.parametrize(
    ("content", "code", "place"),
    [
        ("keys: {s.a: {id: 1}}", "FIELD_VALUE", "keys/k.yaml:1"),
        ("keys:\n  s.a: [1]", "FIELD_VALUE", "keys/k.yaml:2"),
        ("keys:\n  s.a: ['']", "FIELD_VALUE", "keys/k.yaml:2"),
        ("key: {}", "FIELD_UNKNOWN", "keys/k.yaml:1"),
        ("keys: [a]", "FIELD_TYPE", "keys/k.yaml:1"),
        ("[a]", "FIELD_TYPE", "keys/k.yaml:1"),
        ("keys: {s.a: [a], s.a: [b]}", "DOCUMENT_INVALID", "keys/k.yaml:1"),
        ("keys:\n  - [", "DOCUMENT_INVALID", "keys/k.yaml:3"),
    ],
)
def test_a_wrong_keys_file_is_named(tmp_path: Path, content: str, code: str, place: str) -> None:
    catalog = loaded(tmp_path, {"keys/k.yaml": content + "\n", "tables/a.yaml": row_file(GOOD)})
    problem = only_problem(catalog)
    assert (problem.code, problem.place) == (code, place)
    assert [spec.table for spec in catalog.tables] == ["shop.good"]


@pytest.mark.parametrize(
    ("name", "content", "code", "line", "remedy"),
    [
        ("a.yaml", "tables:\n  - schedule: @hourly\n", "DOCUMENT_INVALID", 2, "schedule: '@hourly'"),
        ("a.yaml", "tables:\n\t- x\n", "DOCUMENT_INVALID", 2, "blanks, not tabs"),
        ("a.yaml", "tables: [\n", "DOCUMENT_INVALID", 2, "brackets"),
        ("a.yaml", "tables: []\n---\ntables: []\n", "DOCUMENT_INVALID", 2, "one document"),
        ("a.yaml", "tables:\n  - a: \x01\n", "DOCUMENT_INVALID", 2, "remove it"),
        ("a.yaml", "[" * 2000, "DOCUMENT_INVALID", 1, "levels"),
        ("a.yaml", b"tables: []\n# caf\xe9\n", "DOCUMENT_INVALID", 2, "UTF-8"),
        ("a.yaml", "- {table: a.a}\n", "FIELD_TYPE", 1, "tables"),
        ("a.yaml", "source: a\n", "FIELD_MISSING", 1, "tables:"),
        ("a.yaml", "source: a\ndefault: {}\ntables: []\n", "FIELD_UNKNOWN", 2, "did you mean defaults?"),
        ("a.yaml", "source: 5\ntables: []\n", "FIELD_TYPE", 1, "short name"),
        ("a.yaml", "source: a\ntables: {}\n", "FIELD_TYPE", 2, "dash"),
        ("a.yaml", "tables: []\ntables: []\n", "DOCUMENT_INVALID", 2, "keep one"),
        ("a.yaml", "defaults:\n  delete: sotf\ntables: []\n", "FIELD_VALUE", 2, "did you mean soft?"),
        ("a.yaml", "defaults:\n  keys: [id]\ntables: []\n", "FIELD_REFUSED", 2, "each row"),
        ("a.yaml", "defaults: 5\ntables: []\n", "FIELD_TYPE", 1, "name: value"),
        ("a.json", '{"tables": [\n{"table": "a.a",}]}', "DOCUMENT_INVALID", 2, "commas"),
        ("a.json", "[" * 100_000, "DOCUMENT_INVALID", None, "levels"),
        ("a.csv", "table,kees\na.a,id\n", "FIELD_UNKNOWN", 1, "did you mean keys?"),
        ("a.csv", "table,table\na.a,id\n", "DOCUMENT_INVALID", 1, "keep one"),
        ("a.csv", "\nkeys\nid\n", "FIELD_MISSING", 2, "column named table"),
        ("a.csv", '"table,keys\na.a,id\n', "DOCUMENT_INVALID", 1, "field names"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_problem(
    tmp_path: Path, name: str, content: str | bytes, code: str, line: int | None, remedy: str
) -> None:
    catalog = loaded(tmp_path, {f"tables/{name}": content, "tables/z.yaml": row_file(GOOD)})
    problem = only_problem(catalog)
    assert (problem.code, problem.file, problem.line) == (code, f"tables/{name}", line)
    assert remedy in problem.remedy
    assert [spec.table for spec in catalog.tables] == ["shop.good"]


def test_a_huge_file_is_refused_and_a_huge_value_is_not_the_files_fault(tmp_path: Path) -> None:
    long = "x" * 10_000_000
    files: dict[str, str | bytes] = {
        "tables/a.yaml": row_file(f"{{table: s.a, keys: [id], owner: {long}}}", GOOD),
        "tables/b.csv": f"table,keys,owner\ns.b,id,{long}\ns.c,id,me\n",
        "tables/c.json": json.dumps({"tables": [{"table": "s.d", "keys": [long]}, {"table": "s.e", "keys": ["id"]}]}),
        "tables/d.yaml": "#" * (16 * 1024**2 + 1),
    }
    catalog = loaded(tmp_path, files)
    assert [(p.code, p.place, p.field) for p in catalog.problems] == [
        ("FIELD_VALUE", "tables/a.yaml:3", "owner"),
        ("FIELD_VALUE", "tables/b.csv:2", ""),
        ("FIELD_VALUE", "tables/c.json:1", "keys[0]"),
        ("FILE_TOO_LARGE", "tables/d.yaml", ""),
    ]
    assert all(len(str(problem)) < 400 for problem in catalog.problems)
    assert [spec.table for spec in catalog.tables] == ["s.c", "s.e", "shop.good"]


def test_an_alias_bomb_harms_only_its_rows(tmp_path: Path) -> None:
    bomb = ["{table: s.a, keys: &a [x, x, x, x, x, x, x, x, x, x]}"]
    bomb += [
        f"{{table: s.{b}, keys: [id], tags: &{b} [{', '.join(['*' + a] * 10)}]}}"
        for a, b in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    catalog = loaded(tmp_path, {"tables/a.yaml": row_file(*bomb, GOOD)})
    assert [spec.table for spec in catalog.tables] == ["shop.good"]
    assert {"FIELD_VALUE", "DOCUMENT_INVALID"} <= {problem.code for problem in catalog.problems}
    assert len(catalog.problems) < 20_000


def test_csv_rows_are_split_one_by_one(tmp_path: Path) -> None:
    rows = [
        "table,keys,tags,,",
        "s.a,id,,,,x",
        's.b,id,"{""a"": ""b',
        'c""}"',
        's.c,"id"x',
        "",
        "s.d,id,{a}",
        "s.e,id,,,,,",
    ]
    catalog = loaded(tmp_path, {"tables/a.csv": "\ufeff" + "\n".join([*rows, "s.f,id", 's.g,"id', "s.h,id"])})
    assert [(p.code, p.line, p.table) for p in catalog.problems] == [
        ("ROW_INVALID", 2, None),
        ("FIELD_VALUE", 3, "s.b"),
        ("DOCUMENT_INVALID", 5, None),
        ("FIELD_VALUE", 7, "s.d"),
        ("DOCUMENT_INVALID", 10, None),
    ]
    assert [spec.table for spec in catalog.tables] == ["s.e", "s.f"]


def test_a_link_to_nothing_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD)})
    (tmp_path / "tables/a.yaml").symlink_to(tmp_path / "gone.yaml")
    catalog = load(tmp_path, {})
    assert (only_problem(catalog).code, len(catalog.tables)) == ("FILE_UNREADABLE", 1)


def test_what_stands_in_the_place_of_a_file_is_a_problem(tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD), "tables/d.yaml/in.yaml": row_file("{table: s.in, keys: [id]}")})
    (tmp_path / "keys").mkdir()
    (tmp_path / "keys/a.json").symlink_to(tmp_path / "gone.json")
    (tmp_path / "tables/loop.csv").symlink_to("loop.csv")
    catalog = load(tmp_path, {})
    assert [problem.file for problem in catalog.problems] == ["keys/a.json", "tables/d.yaml/", "tables/loop.csv"]
    assert {problem.code for problem in catalog.problems} == {"FILE_UNREADABLE"}
    assert [spec.table for spec in catalog.tables] == ["s.in", "shop.good"]


def test_settings_that_are_a_link_to_nothing_are_refused(tmp_path: Path) -> None:
    write(tmp_path, {"tables/z.yaml": row_file(GOOD)})
    (tmp_path / "gddl.yaml").unlink()
    (tmp_path / "gddl.yaml").symlink_to("gone.yaml")
    with pytest.raises(SettingsError, match="SETTINGS_INVALID") as caught:
        load(tmp_path, {"GDDL_LANDING_ROOT": "/l", "GDDL_LAKE_ROOT": "/k"})
    assert [problem.code for problem in caught.value.problems] == ["FILE_UNREADABLE"]


def test_files_that_look_like_metadata_but_are_not_read_are_named(tmp_path: Path) -> None:
    names = ("tables/a.yml.bak", "tables/b.yaml~", "tables/c.CSV.txt", "keys/k.csv", "tables/sub/d.json.disabled")
    others = ("tables/README.md", "tables/.hidden.yaml.swp", "tables/v1.2/good.yaml", "keys/notes.txt")
    write(tmp_path, dict.fromkeys(names, "x") | dict.fromkeys(others, "") | {"tables/z.yaml": row_file(GOOD)})
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "tables/linked").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    catalog = load(tmp_path, {})
    assert sorted(problem.file for problem in unread(open_folder(tmp_path))) == sorted((*names, "tables/linked/"))
    assert (catalog.problems, [spec.table for spec in catalog.tables]) == ((), ["shop.good"])


def test_two_loads_are_equal(tmp_path: Path) -> None:
    folder = write(tmp_path, {"tables/a.yaml": FULL_YAML, "tables/b.yaml": row_file("{table: x, nope: 1}", GOOD)})
    assert load(folder, {}) == load(str(folder), {})
