"""Tables that somebody else wrote to, or whose folders are gone; on both engines."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Maintain, Rebuild, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable

pytestmark = pytest.mark.deep_on_many

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), history=True)
PERSON = JobOptions(full_listing=True)
REFRESH = JobOptions(action=Rebuild())


def codes(result: JobResult) -> list[str]:
    return [warning.code for warning in result.warnings]


@pytest.fixture
def table(engine: LocalPort, tmp_path: Path) -> LakeTable:
    """Two batches, by the engine without Spark: rows 1 to 3 of which 3 is deleted again."""
    lake = Lake(tmp_path)
    lake.change(SPEC, 1, [("I", 1, "a"), ("I", 2, "a"), ("I", 3, "a")])
    lake.done(SPEC)
    lake.change(SPEC, 2, [("U", 1, "b"), ("D", 3, "b")])
    lake.done(SPEC)
    return LakeTable(replace(lake, port=engine.everywhere()), SPEC)


def change(table: LakeTable, number: int, *rows: tuple[str, int, str]) -> None:
    table.lake.change(SPEC, number, rows)


def restored(path: str) -> None:
    DeltaTable(path).restore(max(0, DeltaTable(path).version() - 1))


def deleted(path: str) -> None:
    DeltaTable(path).delete("id = 2")


Deed = Callable[[str], Any]


@pytest.mark.parametrize(("deed", "operation"), [(restored, "RESTORE"), (deleted, "DELETE")])
def test_foreign_commit_is_reported_until_a_full_refresh(table: LakeTable, deed: Deed, operation: str) -> None:
    deed(table.layout.replica)
    idle = table.run(PERSON)
    assert (idle.status, codes(idle)) == ("skipped", ["FOREIGN_COMMIT"])
    for number in (3, 4):
        change(table, number, ("I", 4, "c"))
        (warning,) = table.run().warnings
        assert (warning.code, warning.count) == ("FOREIGN_COMMIT", 1)
        assert warning.sample[0].startswith("replica: version ")
        assert warning.sample[0].endswith(operation)
    assert codes(table.lake.result(SPEC, JobOptions(action=Verify()))) == ["FOREIGN_COMMIT"]
    assert codes(table.run(REFRESH)) == []
    assert table.lake.replica(SPEC) == {1: "b", 2: "a", 4: "c"}
    change(table, 5, ("U", 4, "d"))
    assert codes(table.run()) == []


def test_foreign_commit_without_data_change_is_ignored(table: LakeTable) -> None:
    for path in (table.layout.replica, table.layout.changes, table.layout.history):
        DeltaTable(path).optimize.compact()
        DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
        DeltaTable(path).alter.set_table_properties({"delta.logRetentionDuration": "interval 60 days"})
    assert codes(table.run(PERSON)) == []
    table.run(JobOptions(action=Maintain()))
    change(table, 3, ("U", 1, "c"), ("D", 2, "c"))
    assert codes(table.run()) == []
    assert table.lake.replica(SPEC) == {1: "c"}


@pytest.mark.parametrize("name", ["replica", "history", "changes", "tombstones"])
def test_missing_table_folder_is_reported_and_restored_by_a_refresh(table: LakeTable, name: str) -> None:
    shutil.rmtree(getattr(table.layout, name))
    for options in (PERSON, JobOptions(action=Verify())):
        error = table.refused(options)
        assert error.code == "TABLES_MISSING"
        assert "gddl rebuild --table" in error.message
    change(table, 3, ("I", 4, "c"))
    failed = table.refused()
    assert failed.code == "TABLES_MISSING"
    assert name in failed.message or name == "changes"
    table.run(REFRESH)
    assert table.lake.replica(SPEC) == {1: "b", 2: "a", 4: "c"}
    assert table.run(JobOptions(action=Verify())).details["verdict"] == "equal"


def test_foreign_rows_stop_the_table_until_removed(table: LakeTable) -> None:
    path = table.layout.replica
    strange = pa.table({"seq": pa.array([1], pa.int64()), "id": pa.array([7], pa.int32()), "v": ["x"]})
    write_deltalake(path, strange, mode="append", schema_mode="merge")
    change(table, 3, ("U", 7, "c"))
    assert table.refused().code == "FOREIGN_ROWS"
    DeltaTable(path).delete("id = 7")
    assert codes(table.run()) == ["FOREIGN_COMMIT", "UPDATE_WITHOUT_PRIOR"]
    assert table.lake.replica(SPEC) == {1: "b", 2: "a", 7: "c"}
