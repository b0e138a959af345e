"""A schema that is applied before its data, and columns that are dropped for good."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.conftest import LocalPort
from tests.harness.asked import options_of, planned
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.spark.children import killed_child

SPEC = spec_of(history=True)
TABLES = ("changes", "replica", "history")
VERIFY = JobOptions(action=Verify())
WIDER = {"id": "bigint", "v": "string", "note": "string", "amount": "decimal(10,2)"}


def filled(root: Path, port: LocalPort | None = None, spec: TableSpec = SPEC) -> Lake:
    lake = Lake(root, port=port)
    lake.load(spec, 4)
    lake.change(spec, 1, [("U", 0, "new"), ("D", 3, None)])
    lake.done(spec)
    return lake


def applying(columns: dict[str, str], **fields: Any) -> JobOptions:
    return options_of(action="schema_apply", columns=columns, **fields)


def dropping(*names: str) -> JobOptions:
    return JobOptions(action=Rebuild(drop_columns=names))


def types(lake: Lake, kind: str) -> dict[str, str]:
    fields = DeltaTable(getattr(lake.layout(SPEC), kind)).schema().fields
    return {
        field.name: str(field.type) for field in fields if field.name != "_gddl" and not field.name.startswith("__")
    }


def refused(lake: Lake, options: JobOptions, code: str, spec: TableSpec = SPEC) -> str:
    before = {kind: types(lake, kind) for kind in TABLES}
    found = lake.run(spec, options)
    assert isinstance(found, TableOutcome)
    error = found.result.error
    assert error is not None
    assert error.code == code, error
    assert {kind: types(lake, kind) for kind in TABLES} == before
    return error.message


def test_columns_and_types_come_before_their_data(engine: LocalPort, tmp_path: Path) -> None:
    lake = filled(tmp_path, engine)
    before = sorted((row["id"], row["v"]) for row in lake.rows(lake.layout(SPEC).replica))
    result = lake.done(SPEC, applying(WIDER))
    assert result.details["before"] == {"id": "int", "v": "string", "seq": "bigint"}
    assert result.details["after"] == {**WIDER, "seq": "bigint"}
    assert (result.details["added"], result.details["widened"]) == (["note", "amount"], ["id"])
    for kind in TABLES:
        found = types(lake, kind)
        assert {"id", "v", "note", "amount"} <= found.keys(), kind
        assert "long" in found["id"], kind
        assert "decimal(10,2)" in found["amount"].replace(" ", ""), kind
    assert sorted((row["id"], row["v"]) for row in lake.rows(lake.layout(SPEC).replica)) == before
    assert lake.done(SPEC, applying(WIDER)).details["added"] == [], "again it changes nothing"
    columns = {"Op": ["I"], "seq": [300], "id": pa.array([2**40], pa.int64()), "v": ["x"], "note": ["here"]}
    write(lake.landing(SPEC), "20240103-000000001.parquet", pa.table(columns))
    done = lake.done(SPEC)
    assert (done.schema_changes, [w.code for w in done.warnings if w.code == "FOREIGN_COMMIT"]) == ((), [])
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"
    lake.done(SPEC, JobOptions(action=Rebuild()))
    assert "amount" in types(lake, "replica"), "a rebuild keeps it"


def test_a_dry_run_only_asks(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before = {kind: types(lake, kind) for kind in TABLES}
    assert lake.done(SPEC, applying(WIDER, dry_run=True)).details["added"] == ["note", "amount"]
    assert {kind: types(lake, kind) for kind in TABLES} == before


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"v": "int"}, "v: table string, asked for int: Delta can't widen it to that"),
        ({"id": "smallint"}, "id: table int, asked for smallint: Delta can't widen it to that"),
        ({"note": "interval"}, "note: table missing, asked for interval: no table holds the type"),
        ({"_gddl": "int"}, "the table would name it _gddl_source"),
        ({"note": "void"}, "note: table missing, asked for void: no table holds the type void"),
        ({"note": "array<struct<a:int,b:void>>"}, "no table holds the type void"),
        ({"note": "struct<a:int,A:int>"}, "no table holds fields whose names differ only by case"),
        ({"note": "map<string,struct<`a b`:int>>"}, "the table would name its fields map<string,struct<a_b:int>>"),
        ({"secret": "int"}, "the row keeps it out of the lake"),
        ({"hashed": "int"}, "the metadata row hashes it, so that it is a string"),
    ],
)
def test_what_no_table_can_become_prints_both_schemas(columns: dict[str, str], why: str, tmp_path: Path) -> None:
    lake, spec = filled(tmp_path), replace(SPEC, exclude_columns=("secret",), mask={"hashed": "hash"})
    message = refused(lake, applying({"fine": "int", **columns}), "SCHEMA_NOT_APPLIED", spec)
    assert why in message
    assert "schema of the table:\n  id int\n  v string" in message
    assert "schema that was asked for:\n  fine int" in message


def test_a_table_that_is_not_there_and_an_unfinished_batch(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC, 1)
    error = lake.result(SPEC, applying(WIDER)).error
    assert error is not None
    assert error.code == "SCHEMA_NOT_APPLIED"
    lake.done(SPEC)
    lake.change(SPEC, 1, [("I", 9, "nine")])
    assert killed_child(lake.job([SPEC], run_id="dies"), "append").status == -9
    refused(lake, applying(WIDER), "TABLE_BUSY")
    lake.done(SPEC)
    lake.done(SPEC, applying(WIDER))
    assert lake.replica(SPEC)[9] == "nine"


def with_note(root: Path, port: LocalPort | None = None) -> Lake:
    """A column that came, had values, and was dropped at the source."""
    lake = filled(root, port)
    for number, note in enumerate(("one", "two"), start=2):
        columns = {"Op": ["U"], "seq": [100 * number], "id": pa.array([1], pa.int32()), "v": ["x"], "note": [note]}
        write(lake.landing(SPEC), f"20240102-{number:09d}.parquet", pa.table(columns))
    lake.done(SPEC)
    return lake


def test_a_column_is_dropped_for_good(engine: LocalPort, tmp_path: Path) -> None:
    lake = with_note(tmp_path, engine)
    assert "files deliver it still" in refused(lake, dropping("note"), "COLUMN_NOT_DROPPED")
    lake.change(SPEC, 9, [("U", 2, "later")], day=9)
    lake.done(SPEC)
    right = sorted((row["id"], row["v"]) for row in lake.rows(lake.layout(SPEC).replica))
    versions = len(lake.rows(lake.layout(SPEC).history))
    result = lake.done(SPEC, dropping("note"))
    assert (result.details["rebuild"]["dropped"], "note" in result.details["rebuild"]["columns"]) == (("note",), False)
    assert [kind for kind in TABLES if "note" in types(lake, kind)] == []
    assert sorted((row["id"], row["v"]) for row in lake.rows(lake.layout(SPEC).replica)) == right
    assert len(lake.rows(lake.layout(SPEC).history)) < versions, "a version that only the column made is none"
    for options in (JobOptions(action=Rebuild()), JobOptions()):
        assert [w.code for w in lake.done(SPEC, options).warnings] == []
        assert "note" not in types(lake, "replica"), "neither a rebuild nor a run brings it back"
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


def test_fields_are_added_to_a_struct_under_names_that_delta_has(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    lake.done(SPEC, applying({"place": "struct<a:int>"}))
    assert "names differ only by case" in refused(
        lake, applying({"place": "struct<a:int,A:int>"}), "SCHEMA_NOT_APPLIED"
    )
    assert lake.done(SPEC, applying({"place": "struct<a:bigint,b:int>"})).details["widened"] == ["place"]
    assert lake.replica(SPEC)[0] == "new", "the tables can be read"


def test_files_with_nothing_but_keys_do_not_say_that_a_column_is_dropped(tmp_path: Path) -> None:
    lake = with_note(tmp_path)
    deletes = pa.table({"Op": ["D"], "seq": [900], "id": pa.array([2], pa.int32())})
    write(lake.landing(SPEC), "20240109-000000009.parquet", deletes)
    lake.done(SPEC)
    assert "files deliver it still" in refused(lake, dropping("note"), "COLUMN_NOT_DROPPED")
    lake.change(SPEC, 10, [("U", 0, "later")], day=10)
    lake.done(SPEC)
    lake.done(SPEC, dropping("note"))


@pytest.mark.parametrize("step", ["plan", "append", "tombstones", "replica", "history", "quarantine", "commit"])
def test_a_killed_one_is_resumed(step: str, tmp_path: Path) -> None:
    lake = with_note(tmp_path)
    lake.change(SPEC, 9, [("U", 2, "later")], day=9)
    lake.done(SPEC)
    right = lake.replica(SPEC)
    assert killed_child(lake.job([SPEC], dropping("note"), run_id="dies"), step).status == -9
    assert lake.done(SPEC).mode == "refresh"
    assert [kind for kind in TABLES if "note" in types(lake, kind)] == []
    assert lake.replica(SPEC) == right
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


def test_an_unfinished_rebuild_is_finished_first(tmp_path: Path) -> None:
    lake = with_note(tmp_path)
    lake.change(SPEC, 9, [("U", 2, "later")], day=9)
    lake.done(SPEC)
    assert killed_child(lake.job([SPEC], JobOptions(action=Rebuild()), run_id="dies"), "append").status == -9
    lake.done(SPEC, dropping("note"))
    assert [kind for kind in TABLES if "note" in types(lake, kind)] == []
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


@pytest.mark.parametrize(
    ("name", "fields", "why"),
    [
        ("id", {}, "it is of the key"),
        ("seq", {}, "it orders changes"),
        ("none", {}, "the table has no such column"),
        ("v", {"cluster_by": ("v",)}, "the metadata row names it in cluster_by"),
        ("v", {"track_history_except": ("v",)}, "the metadata row names it in track_history_except"),
    ],
)
def test_a_column_that_is_needed_stays(name: str, fields: dict[str, Any], why: str, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    assert why in refused(lake, dropping(name), "COLUMN_NOT_DROPPED", replace(SPEC, **fields))
    error = lake.result(SPEC, planned(dropping(name))).error
    assert error is not None
    assert error.code == "COLUMN_NOT_DROPPED", "so does a dry run refuse it"
