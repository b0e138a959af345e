"""Columns of a file whose names differ by case alone: what the row says of one, to the letter, is meant for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.debezium.probing import text
from tests.debezium.topic import Topic
from tests.harness.lake import Lake, LakeTable, spec_of
from tests.harness.landing import write, write_bytes

ROWS = "Op,seq,id,name,Name\nI,1,1,a,A\nI,2,2,b,B\nU,3,1,c,C\n"


def played(root: Path, **row: Any) -> LakeTable:
    options = {"csv_header": True, **row.pop("options", {})}
    spec: TableSpec = spec_of(options=options, settle="0s", **row)
    lake = Lake(root)
    write_bytes(lake.landing(spec), "20250101-000000001.csv", ROWS.encode())
    table = LakeTable(lake, spec)
    table.run()
    return table


def test_without_a_rule_both_are_refused_with_a_way_out(tmp_path: Path) -> None:
    spec = spec_of(options={"csv_header": True}, settle="0s")
    lake = Lake(tmp_path)
    write_bytes(lake.landing(spec), "20250101-000000001.csv", ROWS.encode())
    refused = LakeTable(lake, spec).refused()
    assert (refused.code, "exclude_columns: [Name]" in refused.message) == ("COLUMN_NAMES_COLLIDE", True)


@pytest.mark.parametrize(("rule", "values"), [
    ({"exclude_columns": ("Name",)}, {"name": ["b", "c"]}),
    ({"exclude_columns": ("name",)}, {"Name": ["B", "C"]}),
    ({"columns": ("name",)}, {"name": ["b", "c"]}),
    ({"columns": ("id", "Name")}, {"Name": ["B", "C"]}),
    ({"rename": {"Name": "title"}}, {"name": ["b", "c"], "title": ["B", "C"]}),
    ({"rename": {"name": "title"}}, {"Name": ["B", "C"], "title": ["b", "c"]}),
    ({"rename": {"name": "Name", "Name": "other"}}, {"Name": ["b", "c"], "other": ["B", "C"]}),
    ({"exclude_columns": ("Name",), "mask": {"name": "null"}}, {"name": [None, None]}),
    ({"rename": {"Name": "title"}, "mask": {"title": "null"}}, {"name": ["b", "c"], "title": [None, None]}),
])  # fmt: skip
def test_a_rule_of_one_of_them(tmp_path: Path, rule: dict[str, Any], values: dict[str, list[Any]]) -> None:
    table = played(tmp_path, **rule)
    found = {name: sorted(row[0] for row in table.values("replica", name)) if any(column) else [None, None]
             for name, column in values.items()}  # fmt: skip
    assert found == values
    columns = {name for name in table.rows("replica")[0] if not name.startswith("_")}
    assert columns - {"seq"} == {"id", *values}


def test_a_declared_type_of_one_of_them(tmp_path: Path) -> None:
    spec = spec_of(options={"csv_header": True, "types": {"n": "int"}}, rename={"N": "other"}, settle="0s")
    lake = Lake(tmp_path)
    write_bytes(lake.landing(spec), "20250101-000000001.csv", b"Op,seq,id,n,N\nI,1,1,5,x\n")
    table = LakeTable(lake, spec)
    table.run()
    assert table.values("replica", "n", "other") == [(5, "x")]


def test_the_key_is_the_column_of_that_name(tmp_path: Path) -> None:
    spec = spec_of(options={"csv_header": True}, exclude_columns=("ID",), settle="0s")
    lake = Lake(tmp_path)
    write_bytes(lake.landing(spec), "20250101-000000001.csv", b"Op,seq,ID,id\nI,1,9,1\nI,2,9,2\n")
    table = LakeTable(lake, spec)
    table.run()
    assert table.values("replica", "id") == [("1",), ("2",)]


@pytest.mark.parametrize("name", ["op", "OP"])
def test_a_column_of_the_source_is_no_operation(engine: LocalPort, tmp_path: Path, name: str) -> None:
    """A full load has no column of operations, change files have one before it."""
    table = LakeTable(Lake(tmp_path, port=engine.everywhere()), spec_of(settle="0s"))
    folder = table.lake.landing(table.spec)
    write(folder, "LOAD00000001.parquet", pa.table({"seq": [0, 0, 0], "id": [1, 2, 3], name: ["D", "I", None]}))
    first = table.run()
    assert (first.quarantined, table.values("replica", "id", name)) == (0, [(1, "D"), (2, "I"), (3, None)])
    changes = {"Op": ["I", "U", "D"], "seq": [1, 2, 3], "id": [4, 2, 3], name: ["D", "I", "U"]}
    write(folder, "20250101-000000001.parquet", pa.table(changes))
    table.run()
    assert table.values("replica", "id", name) == [(1, "D"), (2, "I"), (4, "D")]


def test_a_column_of_the_source_is_no_operation_of_inserts_alone(engine: LocalPort, tmp_path: Path) -> None:
    """Change files of `CdcInsertsOnly` have no column of operations."""
    spec = spec_of(settle="0s", options={"missing_op": "insert"})
    table = LakeTable(Lake(tmp_path, port=engine.everywhere()), spec)
    folder = table.lake.landing(table.spec)
    write(folder, "LOAD00000001.parquet", pa.table({"seq": [0], "id": [1], "op": ["D"]}))
    table.run()
    write(folder, "20250101-000000001.parquet", pa.table({"seq": [1, 2], "id": [1, 2], "op": ["U", "D"]}))
    table.run()
    write(folder, "20250101-000000002.parquet", pa.table({"op": ["D"], "seq": [3], "id": [2]}))
    table.run()
    assert table.values("replica", "id", "op") == [(1, "U")]


@pytest.mark.parametrize("name", ["Op", "op"])
def test_a_load_may_have_operations(tmp_path: Path, name: str) -> None:
    table = LakeTable(Lake(tmp_path), spec_of(settle="0s"))
    rows = pa.table({name: ["I", "I"], "seq": [0, 0], "id": [1, 2]})
    write(table.lake.landing(table.spec), "LOAD00000001.parquet", rows)
    table.run()
    assert {column for column in table.rows("replica")[0] if not column.startswith("_")} == {"seq", "id"}


@pytest.mark.parametrize(("rule", "columns"), [
    ({}, ["_", "id", "v"]), ({"rename": {"_": "row"}}, ["id", "row", "v"]),
    ({"exclude_columns": ["_"], "absent_columns": ["_"]}, ["id", "v"]),
])  # fmt: skip
def test_a_document_with_a_nameless_field(
    engine: LocalPort, tmp_path: Path, rule: dict[str, Any], columns: list[str]
) -> None:
    """It is the column `_`, which the row may rename or leave out."""

    def document(key: int, **more: Any) -> dict[str, Any]:
        source = {"connector": "mongodb", "collection": "t", "rs": "r", "ord": key, "ts_ms": 1}
        return {
            "op": "c",
            "before": None,
            "after": json.dumps({"_id": key, "id": key, "v": "a", **more}),
            "source": source,
        }

    topic = Topic(engine, tmp_path, **rule)
    topic.land(text(document(1)))
    topic.run()
    topic.land(text(document(2, **{"": "x"}), document(3)))
    topic.run()
    assert topic.replica("id", "v") == [(1, "a"), (2, "a"), (3, "a")]
    names = {name for name in topic.rows("replica")[0] if not name.startswith(("_id", "_dbz", "_gddl"))}
    assert sorted(names) == columns


def test_a_header_with_a_nameless_column(tmp_path: Path) -> None:
    """As pandas writes that of an index."""
    spec = spec_of(options={"csv_header": True}, settle="0s", rename={"_": "row"})
    lake = Lake(tmp_path)
    write_bytes(lake.landing(spec), "20250101-000000001.csv", b"Op,seq,,id\nI,1,0,1\n")
    table = LakeTable(lake, spec)
    table.run()
    assert table.values("replica", "id", "row") == [("1", "0")]


def test_events_with_such_columns(engine: LocalPort, tmp_path: Path) -> None:
    """Also of an update that carries one of them alone."""

    def event(op: str, row: dict[str, Any], lsn: int) -> dict[str, Any]:
        return {"op": op, "before": None, "after": row, "source": {"connector": "postgresql", "lsn": lsn, "ts_ms": lsn}}

    topic = Topic(engine, tmp_path, rename={"Name": "title"})
    gone = "__debezium_unavailable_value"
    topic.land(text(event("c", {"id": 1, "name": "a", "Name": "A"}, 1)))
    topic.run()
    topic.land(text(event("u", {"id": 1, "name": gone, "Name": "B"}, 2)))
    topic.run()
    assert topic.replica("id", "name", "title") == [(1, "a", "B")]
