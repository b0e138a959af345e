"""CSV without a header to which columns were added: each line is read by the form that it has, or is named.

The model writes lines of a table as AWS DMS does: the operation (or none), then the columns that the table had then.
"""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.option_checks import check_options
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.lake import Lake, LakeTable, spec_of
from tests.harness.landing import write_bytes


def table(root: Path, columns: list[str], **options: Any) -> LakeTable:
    return LakeTable(Lake(root), spec_of(options={"csv_columns": columns, "csv_null": "NULL", **options}, settle="0s"))


def landed(one: LakeTable, name: str, text: str) -> LakeTable:
    write_bytes(one.lake.landing(one.spec), name, text.encode())
    return one


def codes(one: LakeTable) -> list[str]:
    return sorted(row["code"] for row in one.rows("errors") if row["resolved_at"] is None)


def test_lines_from_before_lack_the_column_and_updates_do_not_carry_it(tmp_path: Path) -> None:
    one = table(tmp_path, ["seq", "id", "a", "b"], csv_added=["b"])
    landed(one, "LOAD00000001.csv", "I,NULL,1,x\nI,NULL,2,y\n")
    landed(one, "20250101-000000002.csv", "I,4,3,z,new\nU,5,1,x2,first\n")
    one.run()
    landed(one, "20250101-000000001.csv", "U,2,1,late\nI,3,4,w\nU,6,2,y2,second\n")
    one.run()
    assert codes(one) == []
    assert one.values("replica", "id", "a", "b") == [
        ("1", "x2", "first"), ("2", "y2", "second"), ("3", "z", "new"), ("4", "w", None),
    ]  # fmt: skip
    landed(one, "20250101-000000003.csv", "U,7,3,z2\n")
    one.run()
    assert one.values("replica", "a", "b")[3] == ("z2", "new")
    one.run(action="rebuild")
    assert one.values("replica", "a", "b")[3] == ("z2", "new")


@pytest.mark.parametrize(("kind", "text", "good"), [
    ("20250101-000000001", "I,1,1,x\nI,2,2,y,new\nI,3,3,z\n", ["1", "2"]),
    ("20250101-000000001", "I,1,1,x\nI,2\nI,3,3,z,new,more\nI,4,4,w,v\n", ["1", "4"]),
    ("20250101-000000001", 'I,1,1,5" disk\nI,2,2,y,new\n', ["2"]),
])  # fmt: skip
def test_a_line_of_no_known_form_is_no_row(tmp_path: Path, kind: str, text: str, good: list[str]) -> None:
    """Also one that lacks a column behind a line that has it: it is cut, or of another table."""
    one = landed(table(tmp_path, ["seq", "id", "a", "b"], csv_added=["b"]), f"{kind}.csv", text)
    one.run()
    assert [row[0] for row in one.values("replica", "id")] == good
    assert set(codes(one)) == {"ROW_MALFORMED"}


SHIFTED = {
    "an older load": (["id", "a", "seq", "b"], {}, "LOAD00000001.csv", "I,1,x,0\nI,2,y,0\n"),
    "older changes": (["seq", "id", "a", "b"], {}, "20250101-000000001.csv", "I,1,1,x\nU,2,1,y\n"),
    "older inserts": (["seq", "id", "a", "b"], {"missing_op": "insert"}, "20250101-000000001.csv", "I,1,1,x\n"),
    "a newer load": (["id", "a"], {}, "LOAD00000001.csv", "1,x,new\n2,y,new\n"),
    "newer inserts": (["seq", "id"], {"missing_op": "insert"}, "20250101-000000001.csv", "1,1,new\n2,2,new\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHIFTED)
def test_a_file_whose_first_fields_are_others_is_refused(tmp_path: Path, name: str) -> None:
    """No value of a column is read as the operation, and no operation as a value."""
    columns, options, file, text = SHIFTED[name]
    one = landed(table(tmp_path, columns, **options), file, text)
    assert one.refused().code == "FIRST_LOAD_UNREADABLE"
    assert one.values("replica", "id") == []
    assert codes(one) == ["FILE_UNREADABLE"]


def test_a_line_without_an_operation_among_others_is_no_row(tmp_path: Path) -> None:
    one = landed(table(tmp_path, ["id", "a"]), "LOAD00000001.csv", "I,1,x\n,2,y\nI,3,z\n")
    one.run()
    assert ([row[0] for row in one.values("replica", "id")], codes(one)) == (["1", "3"], ["ROW_MALFORMED"])


def test_the_way_out_of_a_refused_file(tmp_path: Path) -> None:
    columns, _, file, text = SHIFTED["an older load"]
    one = landed(table(tmp_path, columns), file, text)
    refused = one.refused()
    assert "csv_added" in str([row["reason"] for row in one.rows("errors")]), refused
    named = table(tmp_path, columns, csv_added=["b"])
    named.lake.done(named.spec, JobOptions(action=HandleErrors(mode="replay")))
    named.run()
    assert named.values("replica", "id", "a", "b") == [("1", "x", None), ("2", "y", None)]
    assert codes(named) == []


@pytest.mark.parametrize("seed", range(30))
def test_drawn_histories_of_columns(tmp_path: Path, seed: int) -> None:
    """Columns are added anywhere; loads and changes, with the operation or without, are of the form of their time."""
    rng = random.Random(seed)  # noqa: S311 - a history, no secret
    columns = ["id", "a"]
    added: list[str] = []
    with_op = rng.random() < 0.7
    rows: dict[str, dict[str, str | None]] = {}
    parts: list[tuple[str, list[str]]] = []
    for number in range(4):
        lines = []
        for _ in range(rng.randint(1, 3)):
            if rng.random() < 0.4:
                new = f"c{len(added)}"
                columns.insert(rng.randint(1, len(columns)), new)
                added.append(new)
            key = str(len(rows))
            values = {name: rng.choice(["x", "NULL", "", 'say "a, b"', "I"]) for name in columns if name != "id"}
            rows[key] = {name: None if value == "NULL" else value for name, value in values.items()}
            fields = [key if name == "id" else values[name] for name in columns]
            written = ['"' + f.replace('"', '""') + '"' if '"' in f else f for f in (["I"] if with_op else []) + fields]
            lines.append(",".join(written))
        parts.append((f"LOAD0000000{number + 1}.csv", lines))
    one = table(tmp_path, columns, csv_added=added)
    for name, lines in parts:
        landed(one, name, "\n".join(lines) + "\n")
    one.run()
    assert codes(one) == []
    wanted = [(key, *(rows[key].get(name) for name in columns if name != "id")) for key in sorted(rows)]
    assert one.values("replica", "id", *[name for name in columns if name != "id"]) == wanted


def test_added_columns_are_among_the_columns() -> None:
    spec = TableSpec(table="s.t", keys=("id",), options={"csv_columns": ["id", "b"], "csv_added": ["b", "c"]})
    assert [(p.path, p.value) for p in check_options(spec)] == [(("options", "csv_added"), "c")]


def test_columns_are_named_once(tmp_path: Path) -> None:
    spec = TableSpec(table="s.t", keys=("id",), options={"csv_columns": ["id", "b", "b"]})
    assert [(p.path, p.value) for p in check_options(spec)] == [(("options", "csv_columns"), "b")]
    one = LakeTable(Lake(tmp_path), spec_of(settle="0s"))
    for name, arrays in (("1", ([1], ["a"])), ("2", ([2], ["b"], ["c"]))):
        columns = ["Op", "seq", "id", *["v"] * (len(arrays) - 1)]
        rows = pa.Table.from_arrays([pa.array(values) for values in (["I"], *arrays[:1], *arrays)], names=columns)
        pq.write_table(rows, sink := io.BytesIO())
        write_bytes(one.lake.landing(one.spec), f"20240101-00000000{name}.parquet", sink.getvalue())
    one.run()
    assert one.values("replica", "id", "v") == [(1, "a")]
    assert codes(one) == ["FILE_UNREADABLE"]


@pytest.mark.parametrize(("name", "text"), [
    ("LOAD00000001.csv", "id,A\n1,x\n2,y\n"),
    ("LOAD00000001.csv", "op,id,a\nI,1,x\nI,2,y\n"),
])  # fmt: skip
def test_the_names_of_columns_are_no_row(tmp_path: Path, name: str, text: str) -> None:
    """`AddColumnName` of the endpoint is true, and the row does not say so: a full load has no operation to check."""
    one = landed(table(tmp_path, ["id", "a"]), name, text)
    assert one.refused().code == "FIRST_LOAD_UNREADABLE"
    assert "csv_header: true" in one.rows("errors")[0]["reason"]
    told = LakeTable(one.lake, spec_of(options={"csv_header": True}, settle="0s"))
    told.run()
    assert told.values("replica", "id") == [("1",), ("2",)]
    assert codes(told) == []


@pytest.mark.parametrize(("text", "good", "bad"), [
    ("id,a\n1,x\nid,a\n2,y\n", ["1", "2"], 1),
    ("id,a\n1,x\nid,b\n2,y\n", ["1", "2", "id"], 0),
    ("id\n1\nid\n2\n", ["1", "2", "id"], 0),
])  # fmt: skip
def test_a_header_among_rows_is_no_row(tmp_path: Path, text: str, good: list[str], bad: int) -> None:
    """Files that were put together, each with its header; a column of one table may have its name as a value."""
    one = LakeTable(Lake(tmp_path), spec_of(options={"csv_header": True}, settle="0s"))
    landed(one, "LOAD00000001.csv", text).run()
    assert [row[0] for row in one.values("replica", "id")] == good
    assert codes(one) == ["ROW_MALFORMED"] * bad


@pytest.mark.parametrize(("name", "text"), [
    ("LOAD00000001.csv", "5,1,x\n6,2,y\n"),
    ("20240101-000000001.csv", "I,5,1,x\nI,6,2,y\n"),
])  # fmt: skip
def test_a_row_where_the_names_should_be_is_no_header(tmp_path: Path, name: str, text: str) -> None:
    """`AddColumnName` of the endpoint is false, and the row says that it is true."""
    one = LakeTable(Lake(tmp_path), spec_of(options={"csv_header": True}, settle="0s"))
    error = landed(one, name, text).refused()
    assert (error.code, "csv_header: false" in error.message) == ("KEY_COLUMN_MISSING", True)
    assert text.splitlines()[0].split(",")[-1] not in error.message.split(), "values may be secret"
    told = LakeTable(one.lake, spec_of(options={"csv_columns": ["seq", "id", "v"]}, settle="0s"))
    told.run()
    assert told.values("replica", "id", "v") == [("1", "x"), ("2", "y")]


def test_a_header_without_the_key_is_a_header(tmp_path: Path) -> None:
    one = LakeTable(Lake(tmp_path), spec_of(options={"csv_header": True}, settle="0s"))
    error = landed(one, "20240101-000000001.csv", "Op,seq,nr,v\nI,5,1,x\n").refused()
    assert (error.code, "csv_header" in error.message) == ("KEY_COLUMN_MISSING", False)


def test_fields_are_told_apart_by_a_control_character(tmp_path: Path) -> None:
    one = table(tmp_path, ["seq", "id", "v"], csv_delimiter=r"\x01")
    landed(one, "20240101-000000001.csv", "I\x015\x011\x01a,b\rc\nI\x016\x012\x01c\n").run()
    assert one.values("replica", "id", "v") == [("1", "a,b\rc"), ("2", "c")]
