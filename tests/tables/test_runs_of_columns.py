"""What runs say of rescued values and of commits, what commits say of data, and columns that follow from others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from airflow_gddl.metadata.expression_text import with_expressions
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write


def table(engine: LocalPort, root: Path, **row: Any) -> LakeTable:
    spec = with_expressions(TableSpec(table="s.t", settle="0s", **{"keys": ("id",), "sequence_by": ("seq",), **row}))
    return LakeTable(Lake(root, port=engine.everywhere()), spec)


def land(one: LakeTable, number: int, **columns: Any) -> None:
    write(one.landing, f"20250101-{number:09d}.parquet", pa.table(columns))


def test_run_that_rescues_values_says_so(engine: LocalPort, tmp_path: Path) -> None:
    one = table(engine, tmp_path, schema_evolution=SchemaEvolution(new_column="rescue"))
    land(one, 1, Op=["I"], seq=[1], id=[1], v=["a"])
    assert "VALUES_RESCUED" not in {warning.code for warning in one.run().warnings}
    land(one, 2, Op=["U", "I"], seq=[2, 3], id=[1, 2], v=["b", "c"], new=["x", None])
    assert [(w.code, w.count) for w in one.run().warnings if w.code == "VALUES_RESCUED"] == [("VALUES_RESCUED", 1)]


def test_commits_of_batches_say_that_data_changed(engine: LocalPort, tmp_path: Path) -> None:
    """Streams that read the table skip what says that it has not."""
    one = table(engine, tmp_path)
    land(one, 1, Op=["I", "I"], seq=[1, 2], id=[1, 2], v=["a", "b"])
    one.run()
    land(one, 2, Op=["U", "D"], seq=[3, 4], id=[1, 2], v=["c", "b"])
    one.run()
    commits = sorted((Path(one.layout.replica) / "_delta_log").glob("*.json"))
    actions = [json.loads(line) for commit in commits for line in commit.read_text().splitlines()]
    said = [(kind, action[kind]["dataChange"]) for action in actions for kind in ("add", "remove") if kind in action]
    assert {kind for kind, _ in said} == {"add", "remove"}
    assert all(changes for _, changes in said)


def test_column_that_follows_from_the_key_follows_updates_of_parts(engine: LocalPort, tmp_path: Path) -> None:
    one = table(engine, tmp_path, ignore_null_updates=True, derive={"label": "id * 10 + n"})
    land(one, 1, Op=["I", "I"], seq=[1, 2], id=[1, 2], n=[1, 2], v=["a", "b"])
    one.run()
    land(one, 2, Op=["U", "U"], seq=[3, 4], id=[1, 2], n=pa.array([5, None], pa.int64()), v=[None, "c"])
    one.run()
    assert one.values("replica", "id", "v", "label") == [(1, "a", 15), (2, "c", 22)]


def test_column_follows_from_one_that_is_null_in_all_rows(engine: LocalPort, tmp_path: Path) -> None:
    one = table(engine, tmp_path, derive={"label": "coalesce(w, v)", "size": "length(w)"})
    land(one, 1, Op=["I"], seq=[1], id=[1], v=["a"], w=pa.nulls(1))
    one.run()
    assert one.values("replica", "id", "label") == [(1, "a")]
    land(one, 2, Op=["U"], seq=[2], id=[1], v=["a"], w=["bb"])
    one.run()
    assert one.values("replica", "id", "label", "size") == [(1, "bb", 2)]


@pytest.mark.parametrize("full", [False, True])
def test_idle_run_looks_for_commits_of_others_where_all_files_are_asked_for(
    engine: LocalPort, tmp_path: Path, full: bool
) -> None:
    """It costs a listing of each log."""
    one = table(engine, tmp_path)
    land(one, 1, Op=["I", "I"], seq=[1, 2], id=[1, 2], v=["a", "b"])
    one.run()
    DeltaTable(one.layout.replica).delete("id = 1")
    found = {warning.code for warning in one.run(JobOptions(full_listing=full)).warnings}
    assert ("FOREIGN_COMMIT" in found) is full
