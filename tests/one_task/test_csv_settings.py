"""CSV by the settings of a DMS endpoint: a column that is not logged, rows that end otherwise, quotes that are none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.lake import Lake, LakeTable, spec_of
from tests.harness.landing import write_bytes

_COLUMNS = ["seq", "id", "name", "my city", "n"]


def land(lake: Lake, spec: TableSpec, name: str, text: str) -> None:
    write_bytes(lake.landing(spec), name, text.encode())


def rows(lake: Lake, spec: TableSpec, *columns: str) -> list[tuple[Any, ...]]:
    return LakeTable(lake, spec).values("replica", *columns)


def refused_rows(lake: Lake, spec: TableSpec) -> list[tuple[Any, ...]]:
    return LakeTable(lake, spec).values("errors", "code", "column")


def table(**options: Any) -> TableSpec:
    return spec_of(options={"csv_columns": _COLUMNS, "csv_null": "", **options}, settle="0s")


def warned(result: JobResult) -> dict[str, int | None]:
    return {warning.code: warning.count for warning in result.warnings if warning.code.startswith("CSV_")}


@pytest.mark.parametrize("word", ["NOT_SUPPLIED", "~", "no, sup"])
@pytest.mark.parametrize("types", [{}, {"n": "int", "my city": "string"}, {"n": "decimal(6,2)", "name": "date"}])
def test_column_that_is_not_logged_keeps_its_value(tmp_path: Path, word: str, types: dict[str, str]) -> None:
    """`CsvNoSupValue`: an insert has all columns, so that the word is a value there; a delete needs none."""
    lake, spec = Lake(tmp_path), table(types=types, csv_no_sup=word)
    day, shown = ("2024-01-02", "2024-01-03") if types.get("name") else ("Ada", "Bo"), f'"{word}"'
    land(lake, spec, "LOAD00000001.csv", f"I,,1,{day[0]},London,5\nI,,2,{day[0]},Rome,6\nI,,3,{day[0]},{shown},7\n")
    lake.done(spec)
    changes = f"U,2,1,{day[1]},{shown},{shown}\nD,3,2,{shown},{shown},{shown}\nU,4,3,{shown},,8\n"
    land(lake, spec, "20250101-000000001.csv", changes)
    assert warned(lake.done(spec)) == {}
    expected = [("1", day[1], "London", "5"), ("3", day[0], None, "8")]
    found = [tuple(None if v is None else str(v).removesuffix(".00") for v in r) for r in
             rows(lake, spec, "id", "name", "my_city", "n")]  # fmt: skip
    assert (found, refused_rows(lake, spec)) == (expected, [])
    land(lake, spec, "20250101-000000000.csv", f"U,1,1,{shown},Paris,4\n")
    lake.done(spec)
    assert rows(lake, spec, "id", "my_city")[0] == ("1", "Paris")
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    lake.done(spec, JobOptions(action=Rebuild()))
    assert rows(lake, spec, "id", "my_city")[0] == ("1", "Paris")


def test_word_that_the_row_does_not_name_is_counted(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), table()
    land(lake, spec, "LOAD00000001.csv", "I,,1,Ada,NOT_SUPPLIED,5\n")
    assert warned(lake.done(spec)) == {}
    land(lake, spec, "20250101-000000001.csv", "U,2,1,Bo,NOT_SUPPLIED,NOT_SUPPLIED\nU,3,1,Cy,Rome,9\n")
    assert warned(lake.done(spec)) == {"CSV_NOT_SUPPLIED": 1}
    assert rows(lake, spec, "name", "my_city", "n") == [("Cy", "Rome", "9")]


def test_word_that_is_a_value(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), table(csv_no_sup=None)
    land(lake, spec, "LOAD00000001.csv", "I,,1,Ada,London,5\n")
    lake.done(spec)
    land(lake, spec, "20250101-000000001.csv", "U,2,1,Bo,NOT_SUPPLIED,NOT_SUPPLIED\n")
    assert warned(lake.done(spec)) == {}
    assert rows(lake, spec, "name", "my_city", "n") == [("Bo", "NOT_SUPPLIED", "NOT_SUPPLIED")]


def test_what_an_update_has_carried_stays_known_when_the_word_is_none_any_more(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), table()
    land(lake, spec, "LOAD00000001.csv", "I,,1,Ada,London,5\n")
    land(lake, spec, "20250101-000000001.csv", "U,2,1,Bo,NOT_SUPPLIED,6\n")
    lake.done(spec)
    other = table(csv_no_sup=None)
    land(lake, other, "20250101-000000002.csv", "U,3,1,Cy,NOT_SUPPLIED,7\n")
    lake.done(other)
    assert rows(lake, other, "name", "my_city", "n") == [("Cy", "NOT_SUPPLIED", "7")]
    land(lake, other, "20250101-000000000.csv", "U,1,1,late,Rome,4\n")
    lake.done(other)
    lake.done(other, JobOptions(action=Rebuild()))
    assert rows(lake, other, "name", "my_city", "n") == [("Cy", "NOT_SUPPLIED", "7")]
    assert lake.done(other, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_word_is_a_text_where_the_row_names_a_list_of_its_own(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    spec = replace(table(csv_columns=[*_COLUMNS, "AR_H_COLUMNS"], csv_quotes=True), columns_to_update="AR_H_COLUMNS")
    land(lake, spec, "LOAD00000001.csv", "I,,1,Ada,London,5,\n")
    land(lake, spec, "20250101-000000001.csv", 'U,2,1,Bo,NOT_SUPPLIED,6,"name,n"\nU,3,1,Cy,NOT_SUPPLIED,,"my city"\n')
    lake.done(spec)
    assert rows(lake, spec, "name", "my_city", "n") == [("Bo", "NOT_SUPPLIED", "6")]


def test_key_that_is_not_logged_is_none(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), table()
    land(lake, spec, "20250101-000000001.csv", "I,1,1,Ada,London,5\nU,2,NOT_SUPPLIED,Bo,Rome,6\n")
    lake.done(spec)
    assert (rows(lake, spec, "id", "name"), refused_rows(lake, spec)) == ([("1", "Ada")], [("KEY_NULL", "id")])


@pytest.mark.parametrize(("options", "text", "cities", "bad"), [
    ({}, "I,1,1,a\rb,x,1\nI,2,2,c,y\r,2\nI,3,3,d,z,\r\n", ["x", "y\r", "z"], []),
    ({}, "I,1,1,a\rb,x,1\r\nI,2,2,c,y,2\r\n", ["x", "y"], []),
    ({}, "I,1,1,a,x,1\nI,2,2,c,y\rI,9,9,e,z,9\nI,3,3,d,z,3\n", ["x", "z"], ["ROW_MALFORMED"]),
    ({"csv_row_delimiter": "\r"}, "I,1,1,a,x\ny,1\rI,2,2,c,\"z\r\",2\r", ["x\ny", "z\r"], []),
    ({"csv_row_delimiter": "\x1e"}, "I,1,1,a,x\ny,1\x1eI,2,2,c,z\r\nI,1\x1e", ["x\ny", "z\r\nI"], []),
    ({"csv_row_delimiter": "|~"}, "I,1,1,a,x|y,1|~I,2,2,c,z\n,2|~", ["x|y", "z\n"], []),
    ({"csv_quotes": False}, 'I,1,1,a,"x,1\nI,2,2,c,5" disk,2\nI,3,3,d,y",3\n', ['"x', '5" disk', 'y"'], []),
    ({"csv_quotes": False}, 'I,1,1,a,x,1\nI,2,2,"c,d",y,2\n', ["x"], ["ROW_MALFORMED"]),
])  # fmt: skip
@pytest.mark.parametrize("mark", ["", "\N{EURO SIGN}"])
def test_rows_end_where_the_endpoint_says(
    tmp_path: Path, options: dict[str, Any], text: str, cities: list[str], bad: list[str], mark: str
) -> None:
    """No row is invented or swallowed by a line break in a field."""
    lake, spec = Lake(tmp_path), table(**options)
    land(lake, spec, "20250101-000000001.csv", text.replace("a", f"a{mark}", 1) if mark else text)
    lake.done(spec)
    assert [row[0] for row in rows(lake, spec, "my_city")] == sorted(cities)
    assert [code for code, _ in refused_rows(lake, spec)] == bad
