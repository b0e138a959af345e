"""Edits of YAML texts at single values: what is not meant stays, byte by byte."""

from __future__ import annotations

import difflib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.metadata import files
from airflow_gddl.onboarding.yaml_text import UneditableError, YamlText, comment, flow

TEXT = """\
# of the shop
source: shop   # its short name
tables:
  # the first one
  - {table: shop.a, size: medium, priority: high}  # busy
  - table: shop.b   # in block style
    keys:
      - id
      - line  # second part
    schedule: '@daily'   # nightly

    # no longer hourly
    enabled: false
  - {
      table: "shop.c",  # over several lines
      options: {op_column: operation},
    }
# the end
"""
NAMES = st.text(min_size=1, max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**17), 10**17) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def changed(old: str, new: str) -> list[str]:
    """Lines that went (-) and came (+)."""
    return [line for line in difflib.ndiff(old.splitlines(), new.splitlines()) if line[0] in "+-"]


@given(value=VALUES)
def test_every_value_is_read_as_it_was_written(value: object) -> None:
    assert files.read_yaml(f"v: {flow(value)}") == {"v": value}


@given(words=st.text(max_size=40))
def test_a_comment_is_one_line_that_every_reader_takes(words: str) -> None:
    assert files.read_yaml(f"v: 1  # {comment(words)}\nw: 2\n") == {"v": 1, "w": 2}


@given(
    word=st.sampled_from(["yes", "No", "on", "y", "null", "~", "1", "1e3", "0x1f", "12:30", "2024-01-01", "true", ".5"])
)
def test_words_are_text_to_other_readers_too(word: str) -> None:
    assert yaml.safe_load(f"v: {flow(word)}") == {"v": word}


def test_a_value_is_changed_in_its_place() -> None:
    text = YamlText(TEXT)
    text.set(("tables", 0, "size"), "large")
    text.set(("tables", 1, "keys"), ["id"])
    text.set(("tables", 2, "options", "op_column"), "Op")
    new = text.result()
    assert sorted(changed(TEXT, new)) == sorted(
        [
            "-   - {table: shop.a, size: medium, priority: high}  # busy",
            "+   - {table: shop.a, size: large, priority: high}  # busy",
            "-     keys:",
            "-       - id",
            "-       - line  # second part",
            "+     keys: [id]  # second part",
            "-       options: {op_column: operation},",
            "+       options: {op_column: Op},",
        ]
    )


def test_values_are_added_behind_the_others_of_their_mapping() -> None:
    text = YamlText(TEXT)
    text.set(("tables", 0, "schedule"), "@daily")
    text.set(("tables", 1, "size"), "large")
    text.set(("tables", 0, "options", "op_column"), "x")
    text.set(("tables", 0, "options", "date_partition"), "YYYYMM")
    text.set(("tables", 2, "options", "csv_header"), True)
    row = files.read_yaml(text.result())["tables"]
    assert row[0]["options"] == {"op_column": "x", "date_partition": "YYYYMM"}
    assert row[2]["options"] == {"op_column": "operation", "csv_header": True}
    assert [line for line in changed(TEXT, text.result()) if "size: large" in line] == ["+     size: large"]
    assert text.result().count("#") == TEXT.count("#")


@pytest.mark.parametrize(
    ("paths", "left"),
    [
        ([(0, "priority")], {"table": "shop.a", "size": "medium"}),
        ([(0, "size")], {"table": "shop.a", "priority": "high"}),
        ([(0, "size"), (0, "priority")], {"table": "shop.a"}),
        ([(0, "table"), (0, "size")], {"priority": "high"}),
        ([(1, "enabled")], {"table": "shop.b", "keys": ["id", "line"], "schedule": "@daily"}),
        ([(1, "keys"), (1, "schedule"), (1, "enabled")], {"table": "shop.b"}),
        ([(1, "table")], {"keys": ["id", "line"], "schedule": "@daily", "enabled": False}),
        ([(2, "options", "op_column")], {"table": "shop.c"}),
    ],
)
def test_values_are_taken_out(paths: list[tuple[int | str, ...]], left: dict[str, object]) -> None:
    text = YamlText(TEXT)
    for path in paths:
        text.remove(("tables", *path))
    number = int(paths[0][0])
    old, new = files.read_yaml(TEXT)["tables"], files.read_yaml(text.result())["tables"]
    assert new[number] == left
    assert [row for i, row in enumerate(new) if i != number] == [row for i, row in enumerate(old) if i != number]
    assert "# the first one" in text.result()
    assert "# the end" in text.result()


@pytest.mark.parametrize(
    ("row", "left"),
    [
        ("{\n    table: a,  # ask b\n    size: large,\n  }\n", "{\n    table: a,  # ask b\n  }\n"),
        ("{\n    table: a  # ask b\n    , size: large  # big\n  }\n", "{\n    table: a  # ask b  # big\n  }\n"),
        ("{\n    size: large,  # big\n    # ask b\n    table: a}\n", "{\n    \n    # ask b\n    table: a}\n"),
        ("size: large  # big\n    # ask b\n    table: a\n", "\n    # ask b\n    table: a\n"),
        ("# ask b\n    table: a\n    size: large  # big\n", "# ask b\n    table: a\n"),
    ],
)
def test_comments_about_the_values_that_stay_stay(row: str, left: str) -> None:
    text = YamlText(f"tables:\n  - {row}")
    text.remove(("tables", 0, "size"))
    assert text.result() == f"tables:\n  - {left}"
    assert files.read_yaml(text.result()) == {"tables": [{"table": "a"}]}


def test_rows_come_behind_the_last_one() -> None:
    text = YamlText(TEXT)
    text.append(("tables",), [({"table": "shop.d"}, "new\nhere"), ({"table": "shop.e"}, "")])
    assert changed(TEXT, text.result()) == ["+   - {table: shop.d}  # new here", "+   - {table: shop.e}"]


@pytest.mark.parametrize("head", ["tables:", "tables: []", "tables: # none yet", "tables: ~\n# below"])
def test_an_empty_list_gets_its_first_row(head: str) -> None:
    text = YamlText(f"source: shop\n{head}\n")
    text.append(("tables",), [({"table": "shop.d"}, "")])
    assert files.read_yaml(text.result()) == {"source": "shop", "tables": [{"table": "shop.d"}]}


@pytest.mark.parametrize(
    "source", ["tables:\n- {table: a.b}", "tables:\n- {table: a.b}\n", "tables:\r\n- {table: a.b}\r\n"]
)
def test_indentation_and_ends_of_lines_are_those_of_the_text(source: str) -> None:
    text = YamlText(source)
    text.append(("tables",), [({"table": "a.c"}, "")])
    assert files.read_yaml(text.result()) == {"tables": [{"table": "a.b"}, {"table": "a.c"}]}
    assert text.result().startswith(source.rstrip())
    assert ("\r\n" in source) == ("\r\n- {table: a.c}" in text.result())


def test_a_comment_is_updated_only_if_unchanged() -> None:
    source = "keys:\n  a.b: [id]  # primary key x\n  a.c: [id]  # mine\n"
    text = YamlText(source)
    for name in ("a.b", "a.c"):
        text.set(("keys", name), ["no"])
        text.remark(("keys", name), "primary key x", "unique index y")
    assert text.result() == "keys:\n  a.b: ['no']  # unique index y\n  a.c: ['no']  # mine\n"


@pytest.mark.parametrize("source", ["tables: [{table: a.b}]\n", "tables: {a: b}\n", "tables: text\n", "other: 1\n"])
def test_what_has_no_line_for_each_row_is_refused(source: str) -> None:
    with pytest.raises(UneditableError):
        YamlText(source).append(("tables",), [({"table": "a.c"}, "")])
