"""Names in one text with commas, and delimiters of several characters: refused, with what to write."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_gddl.metadata.loading import LoadedMetadata
from tests.unit.metadata_folder import loaded, row_file

JOINED = "must be a list, not one text with commas"


def lines(catalog: LoadedMetadata) -> list[str]:
    return [problem.compiler_line("metadata") for problem in catalog.problems]


def test_a_text_with_commas_is_no_list(tmp_path: Path) -> None:
    row = "{table: s.a, keys: 'id, line', sequence_by: 'scn,row_no', partition_by: 'a, b c', cluster_by: 'a,null',"
    rows = row_file(row + " options: {csv_columns: 'id,name'}}")
    place, one = "metadata/tables/shop.yaml:3", "one name that holds a comma is written"
    assert lines(loaded(tmp_path, {"tables/shop.yaml": rows})) == [
        f"{place}:18: FIELD_TYPE s.a.keys: {JOINED} (value 'id, line') — write [id, line]; {one} [\"id, line\"]",
        (
            f"{place}:36: FIELD_TYPE s.a.sequence_by: {JOINED} (value 'scn,row_no') — write [scn, row_no]; "
            f'{one} ["scn,row_no"]'
        ),
        f'{place}:63: FIELD_TYPE s.a.partition_by: {JOINED} (value \'a, b c\') — write [a, "b c"]; {one} ["a, b c"]',
        f'{place}:87: FIELD_TYPE s.a.cluster_by: {JOINED} (value \'a,null\') — write [a, "null"]; {one} ["a,null"]',
        (
            f"{place}:119: FIELD_TYPE s.a.options.csv_columns: {JOINED} (value 'id,name') — write [id, name]; "
            f'{one} ["id,name"]'
        ),
    ]


def test_in_csv_and_in_a_keys_file(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/a.csv": 'table,keys\ns.a,"id,line"\n',
        "tables/b.yaml": row_file("{table: s.b}"),
        "keys/k.yaml": "keys: {s.b: 'id, line'}\n",
    }
    assert lines(loaded(tmp_path, files)) == [
        (
            f"metadata/keys/k.yaml:1:8: FIELD_VALUE s.b.keys: {JOINED} (value 'id, line') — write [id, line]; one "
            'name that holds a comma is written ["id, line"]'
        ),
        (
            f"metadata/tables/a.csv:2: FIELD_VALUE s.a.keys: {JOINED} (value 'id,line') — separate the names by |, "
            'e.g. id|line; one name that holds a comma is written ["id,line"]'
        ),
        (
            "metadata/tables/b.yaml:3:5: KEYS_MISSING s.b.keys: no keys, neither in the metadata row nor "
            "in a keys file — add "
            "keys: [column, ...] to the row; [] makes an append-only replica"
        ),
    ]


def test_a_list_may_hold_a_name_with_a_comma(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "tables/a.csv": 'table,keys\ns.a,"[""id,line""]"\n',
        "tables/b.yaml": row_file("{table: s.b, keys: ['id, line']}"),
    }
    catalog = loaded(tmp_path, files)
    assert [spec.keys for spec in catalog.tables] == [("id,line",), ("id, line",)]


@pytest.mark.parametrize("delimiter", ['","', '";"', '"\\t"', "'|'", r"'\x01'", r"'\x1F'"])
def test_delimiters_of_one_character_are_valid(delimiter: str, tmp_path: Path) -> None:
    rows = row_file(f"{{table: s.a, keys: id, options: {{csv_delimiter: {delimiter}}}}}")
    assert lines(loaded(tmp_path, {"tables/a.yaml": rows})) == []


@pytest.mark.parametrize(
    ("delimiter", "shown", "why"),
    [
        ("tab", "'tab'", "must be one ASCII character"),
        ("''", "''", "must be one ASCII character"),
        ("'\\t'", "'\\\\t'", "must be one ASCII character"),
        ("§", "'§'", "must be one ASCII character"),
        (r"'\x00'", r"'\\x00'", "must be one ASCII character"),
        (r"'\x80'", r"'\\x80'", "must be one ASCII character"),
        (r"'\x01\x02'", r"'\\x01\\x02'", "must be one ASCII character"),
        ("'\"'", "'\"'", "a character that quotes or ends lines"),
        (r"'\x22'", r"'\\x22'", "a character that quotes or ends lines"),
        (r"'\x0a'", r"'\\x0a'", "a character that quotes or ends lines"),
    ],
)
def test_what_is_no_delimiter(delimiter: str, shown: str, why: str, tmp_path: Path) -> None:
    rows = row_file(f"{{table: s.a, keys: id, options: {{csv_delimiter: {delimiter}}}}}")
    assert lines(loaded(tmp_path, {"tables/a.yaml": rows})) == [
        (
            f"metadata/tables/a.yaml:3:38: FIELD_VALUE s.a.options.csv_delimiter: {why} (value {shown}) — write one "
            'character in quotes, e.g. ";"; a tab is "\\t" in double quotes, another control character its number in '
            r"single ones, '\x01'"
        )
    ]
