"""What is wrong with a row: code, field, line, value and remedy; the rows beside it load."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.metadata_folder import loaded, only_problem, row_file

GOOD = "{table: shop.good, keys: [id]}"

BAD_ROWS = [
    # row, code, field, value, part of the remedy
    ("5", "ROW_INVALID", "", "5", "- {table:"),
    ("[a]", "ROW_INVALID", "", "['a']", "- {table:"),
    ("", "ROW_INVALID", "", "None", "- {table:"),
    ("!!python/object:os.system {table: s.a}", "DOCUMENT_INVALID", "", "", "remove the tag"),
    ("{keys: [id]}", "FIELD_MISSING", "table", "", "add table"),
    ("{table: s.a}", "KEYS_MISSING", "keys", "", "append-only"),
    ("{table: s.a, keys: {id: 1}}", "FIELD_TYPE", "keys", "{'id': 1}", "[a, b]"),
    ("{table: s.a, keys: null}", "KEYS_MISSING", "keys", "", "append-only"),
    ("{table: s.a, keys: [1]}", "FIELD_TYPE", "keys[0]", "1", "quote"),
    ("{table: s.a, keys: [id, ' ']}", "FIELD_VALUE", "keys[1]", "' '", "name the column"),
    ("{table: s.a, keys: [id, ID]}", "FIELD_VALUE", "keys[1]", "'ID'", "once"),
    ("{table: s.a, keys: [id], keys: [x]}", "DOCUMENT_INVALID", "keys", "", "keep one 'keys'"),
    ("{table: s.a, keys: [id], tags: {a: b, a: c}}", "DOCUMENT_INVALID", "tags.a", "", "keep one 'a'"),
    ("{table: s.a, keys: [id], <<: {a: b}}", "DOCUMENT_INVALID", "<<", "", "defaults"),
    ("{table: s.a, keys: [id], ? [a] : b}", "DOCUMENT_INVALID", "?", "", "plain"),
    ("{table: s.a, keys: [id], owner: *nobody}", "DOCUMENT_INVALID", "owner", "", "defaults"),
    ("{table: s.a, keys: [id], tags: " + "{a: " * 40 + "b" + "}" * 41, "DOCUMENT_INVALID", "", "", "levels"),
    ('{table: s.a, keys: [id], owner: "a\\x01b"}', "FIELD_VALUE", "owner", r"'a\x01b'", "remove"),
    ('{table: s.a, keys: [id], options: {csv_delimiter: "\\x01"}}', "FIELD_VALUE", "options.csv_delimiter", r"'\x01'",
     r"by their numbers, in single quotes: '\x01'"),
    ('{table: s.a, keys: [id], options: {csv_row_delimiter: "\\x1e\\n"}}', "FIELD_VALUE", "options.csv_row_delimiter",
     r"'\x1e\n'", r"in single quotes: '\x1e\x0a'"),
    ("{table: s.a, keys: [id], hue: red}", "FIELD_UNKNOWN", "hue", "'red'", "known: table, keys"),
    ("{table: s.a, keys: [id], schedul: red}", "FIELD_UNKNOWN", "schedul", "'red'", "did you mean schedule?"),
    ("{table: 5, keys: [id]}", "FIELD_TYPE", "table", "5", "quote"),
    ("{table: orders, keys: [id]}", "FIELD_VALUE", "table", "'orders'", "schema.name"),
    ("{table: s.a, keys: [id], history: 'true'}", "FIELD_TYPE", "history", "'true'", "without quotes"),
    ("{table: s.a, keys: [id], history: yes}", "FIELD_TYPE", "history", "'yes'", "true or false"),
    ("{table: s.a, keys: [id], history: 1}", "FIELD_TYPE", "history", "1", "true or false"),
    ("{table: s.a, keys: [id], delete: Soft}", "FIELD_VALUE", "delete", "'Soft'", "did you mean soft?"),
    ("{table: s.a, keys: [id], priority: 1}", "FIELD_VALUE", "priority", "1", "'critical'"),
    ("{table: s.a, keys: [id], dialect: qlik}", "FIELD_VALUE", "dialect", "'qlik'", "'dms'"),
    ("{table: s.a, keys: [id], size: huge}", "FIELD_VALUE", "size", "'huge'", "tier"),
    ("{table: s.a, keys: [id], source: my shop}", "FIELD_VALUE", "source", "'my shop'", "letters"),
    ("{table: s.a, keys: [id], schedule: 60 * * * *}", "FIELD_VALUE", "schedule", "'60 * * * *'", "five cron"),
    ("{table: s.a, keys: [id], schedule: 0 0 31 2 *}", "FIELD_VALUE", "schedule", "'0 0 31 2 *'", "five cron"),
    ("{table: s.a, keys: [id], schedule: R * * * *}", "FIELD_VALUE", "schedule", "'R * * * *'", "five cron"),
    ("{table: s.a, keys: [id], schedule: '* * * * * *'}", "FIELD_VALUE", "schedule", "'* * * * * *'", "five cron"),
    ("{table: s.a, keys: [id], schedule: '@minutely'}", "FIELD_VALUE", "schedule", "'@minutely'", "@hourly"),
    ("{table: s.a, keys: [id], schedule: none}", "FIELD_VALUE", "schedule", "'none'", "null for none"),
    ("{table: s.a, keys: [id], schedule: 5}", "FIELD_TYPE", "schedule", "5", "null"),
    ("{table: s.a, keys: [id], schedule: {assets: []}}", "FIELD_VALUE", "schedule", "{'assets': ()}", "assets"),
    ("{table: s.a, keys: [id], schedule: {asset: [a]}}", "FIELD_VALUE", "schedule", "{'asset': ('a',)}", "assets"),
    ("{table: s.a, keys: [id], freshness: 90}", "FIELD_TYPE", "freshness", "90", "unit: 90s, 90m, 90h or 90d"),
    ("{table: s.a, keys: [id], freshness: 1h30m}", "FIELD_VALUE", "freshness", "'1h30m'", "30m"),
    ("{table: s.a, keys: [id], mask: {a: drop}}", "FIELD_VALUE", "mask.a", "'drop'", "'hash', 'hmac' or 'null'"),
    ("{table: s.a, keys: [id], mask: {ID: null}}", "FIELD_REFUSED", "mask.ID", "'null'", "hash"),
    ("{table: s.a, keys: [id], schema_evolution: {new_column: drop}}", "FIELD_VALUE", "schema_evolution.new_column",
     "'drop'", "'add', 'rescue', 'ignore' or 'fail'"),
    ("{table: s.a, keys: [id], schema_evolution: {new_colum: add}}", "FIELD_UNKNOWN", "schema_evolution.new_colum",
     "'add'", "did you mean new_column?"),
    ("{table: s.a, keys: [id], options: {lookbak: 1d}}", "FIELD_UNKNOWN", "options.lookbak", "'1d'", "lookback"),
    ("{table: s.a, keys: [id], options: {csv_header: 1}}", "FIELD_TYPE", "options.csv_header", "1", "true or false"),
    ("{table: s.a, keys: [id], options: {types: {a: 1}}}", "FIELD_TYPE", "options.types.a", "1", "text"),
    ("{table: s.a, keys: [id], options: {types: {a: int, v: varchr}}}", "COLUMN_TYPE_UNSUPPORTED", "options.types.v",
     "'varchr'", "decimal(12,2)"),
    ("{table: s.a, keys: [id], options: {types: {a: 'decimal(39,2)'}}}", "COLUMN_TYPE_UNSUPPORTED", "options.types.a",
     "'decimal(39,2)'", "decimal(12,2)"),
    ("{table: s.a, keys: [id], dialect: debezium, options: {types: {a: 'array<int'}}}", "COLUMN_TYPE_UNSUPPORTED",
     "options.types.a", "'array<int'", "as Spark does"),
    ("{table: s.a, keys: [id], options: {lookback: soon}}", "FIELD_VALUE", "options.lookback", "'soon'", "7d"),
    ("{table: s.a, keys: [id], dialect: debezium, options: {path_format: dd/MM}}", "FIELD_VALUE",
     "options.path_format", "'dd/MM'", "path.format"),
    ("{table: s.a, keys: [id], tags: {a: 1}}", "FIELD_TYPE", "tags.a", "1", "quote"),
    ("{table: s.a, keys: [id], depends_on: [shop.gone]}", "FIELD_VALUE", "depends_on[0]", "'shop.gone'", "row"),
    ("{table: s.a, keys: [id], depends_on: [Shop.Good]}", "FIELD_VALUE", "depends_on[0]", "'Shop.Good'",
     "write shop.good"),
    ("{table: s.a, keys: [id], depends_on: [s.a]}", "FIELD_VALUE", "depends_on", "['s.a']", "break the cycle"),
    ("{table: s.a, keys: [id], sequence_by: [a, 'x DESC']}", "FIELD_VALUE", "sequence_by[1]", "'x DESC'", "write x"),
    ("{table: s.a, keys: [id], heartbeat: shop.goot}", "FIELD_VALUE", "heartbeat", "'shop.goot'",
     "did you mean shop.good?"),
    ("{table: SHOP.GOOD, keys: [id]}", "TABLE_DUPLICATE", "table", "'SHOP.GOOD'", "remove one"),
]  # fmt: skip


@pytest.mark.parametrize(("row", "code", "field", "value", "remedy"), BAD_ROWS, ids=[row[:60] for row, *_ in BAD_ROWS])
def test_a_bad_row_is_one_problem_and_the_good_rows_load(
    tmp_path: Path, row: str, code: str, field: str, value: str, remedy: str
) -> None:
    catalog = loaded(tmp_path, {"tables/a.yaml": row_file(GOOD, row, "{table: shop.last, keys: [id]}")})
    problem = only_problem(catalog)
    assert (problem.code, problem.place) == (code, "tables/a.yaml:4")
    assert problem.field == field or (code == "DOCUMENT_INVALID" and problem.field.startswith("tags.a.a"))
    assert problem.value == value
    assert remedy in problem.remedy
    assert [spec.table for spec in catalog.tables] == ["shop.good", "shop.last"]


def test_types_are_accepted_in_any_spelling(tmp_path: Path) -> None:
    kinds = ("varchar(9)", "NUMERIC(12, 2)", "timestamp_ltz", "map<string, struct<a: int>>")
    types = ", ".join(f"c{i}: '{kind}'" for i, kind in enumerate(kinds))
    row = f"{{table: s.a, keys: [id], options: {{types: {{{types}}}}}}}"
    catalog = loaded(tmp_path, {"tables/a.yaml": row_file(row)})
    assert ([spec.table for spec in catalog.tables], catalog.problems) == (["s.a"], ())


def test_all_problems_of_a_row_are_reported_with_their_lines(tmp_path: Path) -> None:
    file = """
source: shop
tables:
  - table: shop.orders
    delete: sotf
    schema_evolution:
      new_column: add
      type_change: cut
    cluster_by:
      - id
      - 7
"""
    catalog = loaded(tmp_path, {"tables/a.yaml": file})
    assert [(p.code, p.field, p.line) for p in catalog.problems] == [
        ("KEYS_MISSING", "keys", 4),
        ("FIELD_VALUE", "delete", 5),
        ("FIELD_VALUE", "schema_evolution.type_change", 8),
        ("FIELD_TYPE", "cluster_by[1]", 11),
    ]
    assert {problem.table for problem in catalog.problems} == {"shop.orders"}


def test_a_problem_is_one_readable_line(tmp_path: Path) -> None:
    problem = only_problem(loaded(tmp_path, {"tables/a.yaml": row_file("{table: shop.a, keys: [id], delete: gone}")}))
    assert str(problem) == (
        "tables/a.yaml:3: [FIELD_VALUE] shop.a delete: must be 'hard' or 'soft' (value 'gone'). "
        "Remedy: write one of 'hard' or 'soft'."
    )


def test_json_rows_have_lines_too(tmp_path: Path) -> None:
    file = (
        '{\n"tables": [\n\t{"table": "s.a",\n\t "keys": [],\n\t "size": "huge"},\n\t7,\n{"table": "s.b", "keys": []}]}'
    )
    catalog = loaded(tmp_path, {"tables/a.json": file})
    assert [(p.code, p.field, p.line) for p in catalog.problems] == [
        ("FIELD_VALUE", "size", 5),
        ("ROW_INVALID", "", 6),
    ]
    assert [spec.table for spec in catalog.tables] == ["s.b"]


@pytest.mark.parametrize(
    ("row", "code", "field"),
    [
        ('{"table": "s.a", "keys": ["id"], "keys": ["x"]}', "DOCUMENT_INVALID", "keys"),
        ('{"table": "s.a", "keys": ["id"], "options": {"a": 1e999}}', "FIELD_VALUE", "options.a"),
        ('{"table": "s.a", "keys": ["id"], "options": {"a": NaN}}', "FIELD_VALUE", "options.a"),
        ('{"table": "s.a", "keys": ["id"], "options": {"a": 12345678901234567890}}', "FIELD_VALUE", "options.a"),
        ('{"table": "s.a", "keys": ["\\ud800"]}', "FIELD_VALUE", "keys[0]"),
        ('{"table": "s.a", "keys": ["\\u0000"]}', "FIELD_VALUE", "keys[0]"),
        ('{"table": "s.a", "keys": ' + "[" * 90 + "]" * 90 + "}", "DOCUMENT_INVALID", "keys" + "[0]" * 22),
    ],
)
def test_what_only_json_can_get_wrong(tmp_path: Path, row: str, code: str, field: str) -> None:
    catalog = loaded(tmp_path, {"tables/a.json": f'{{"tables": [{row}, {{"table": "s.b", "keys": ["id"]}}]}}'})
    problem = only_problem(catalog)
    assert (problem.code, problem.field) == (code, field)
    assert [spec.table for spec in catalog.tables] == ["s.b"]


def test_a_long_value_is_cut_to_80_characters(tmp_path: Path) -> None:
    rows = [f"{{table: s.a, keys: [id], size: {'x' * 500}}}", f"{{table: s.b, keys: {{{'y' * 300}: [{'z' * 300}]}}}}"]
    for problem in loaded(tmp_path, {"tables/a.yaml": row_file(*rows)}).problems:
        assert len(problem.value) == 80
        assert problem.value.endswith("...")


def test_a_problem_of_defaults_is_reported_at_the_defaults(tmp_path: Path) -> None:
    file = "defaults:\n  history: true\ntables:\n  - {table: s.a, keys: []}\n  - {table: s.b, keys: [id]}\n"
    catalog = loaded(tmp_path, {"tables/a.yaml": file})
    problem = only_problem(catalog)
    assert (problem.code, problem.line, problem.table) == ("FIELD_REFUSED", 2, "s.a")
    assert [spec.table for spec in catalog.tables] == ["s.b"]


def test_the_first_sound_row_of_a_table_wins(tmp_path: Path) -> None:
    rows = ["{table: s.a, keys: [id], nope: 1}", "{table: s.a, keys: [one]}", "{table: S.A, keys: [two]}"]
    catalog = loaded(
        tmp_path, {"tables/a.yaml": row_file(*rows), "tables/b.yaml": row_file("{table: s.a, keys: [three]}")}
    )
    assert [(spec.table, spec.keys) for spec in catalog.tables] == [("s.a", ("one",))]
    assert [(p.code, p.place) for p in catalog.problems] == [
        ("FIELD_UNKNOWN", "tables/a.yaml:3"),
        ("TABLE_DUPLICATE", "tables/a.yaml:5"),
        ("TABLE_DUPLICATE", "tables/b.yaml:3"),
    ]
    assert "tables/a.yaml:4" in catalog.problems[1].message


def test_garbage_has_a_bounded_number_of_problems(tmp_path: Path) -> None:
    row = "{table: s.a, keys: [id], " + ", ".join(f"f{i}: {i}" for i in range(500)) + "}"
    assert len(loaded(tmp_path, {"tables/a.yaml": row_file(row)}).problems) == 50
