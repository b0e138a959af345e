"""A full load whose change table and replica hold the same rows is encoded once; the other file is a copy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.tables.data_files import FileWriter, Target
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

ROWS = 700_000
"""Of eight bytes that differ, twice: more than the 8 MiB up to which a load is decoded together."""


def loaded(root: Path, **fields: Any) -> tuple[Lake, TableSpec]:
    lake, spec = Lake(root), spec_of(settle="0s", **fields)
    chance = np.random.default_rng(1)
    columns = {
        "id": pa.array(range(ROWS), pa.int64()),
        "v": pa.array(chance.integers(0, 2**62, ROWS)),
        "w": pa.array(chance.random(ROWS)),
        "p": pa.array(["a", "b"] * (ROWS // 2)),
    }
    write(lake.landing(spec), "LOAD00000001.parquet", pa.table(columns))
    assert lake.result(spec).error is None
    return lake, spec


def contents(path: str) -> set[bytes]:
    return {Path(path, name).read_bytes() for name in _names(path)}


def _names(path: str) -> list[str]:
    return list(pa.table(DeltaTable(path).get_add_actions()).column("path").to_pylist())


def _rows(path: str) -> int:
    return int(DeltaTable(path).to_pyarrow_dataset().count_rows())


def test_files_of_both_tables_are_equal(tmp_path: Path) -> None:
    lake, spec = loaded(tmp_path)
    layout = lake.layout(spec)
    assert contents(layout.changes) == contents(layout.replica) != set()
    lake.change(spec, 1, [("D", 7, None)])
    assert lake.result(spec).main.deleted == 1
    assert lake.result(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize(
    "fields", [{"partition_by": ("p",)}, {"cluster_by": ("v",)}, {"delete": "soft"}, {"region": "eu"}]
)
def test_tables_that_differ_have_files_of_their_own(fields: dict[str, Any], tmp_path: Path) -> None:
    lake, spec = loaded(tmp_path, **fields)
    layout = lake.layout(spec)
    assert not contents(layout.changes) & contents(layout.replica)
    assert _rows(layout.replica) == _rows(layout.changes) == ROWS


def target(path: Path, *names: str, indexed: tuple[str, ...] = ()) -> Target:
    schema = pa.schema([(name, pa.int64()) for name in names])
    return Target(path=str(path), schema=schema, indexed=tuple((name,) for name in indexed or names))


@pytest.mark.parametrize(("more", "can"), [(None, True), ([None, None], True), ([1, None], False)])
def test_a_column_of_one_table_alone_is_empty_in_the_copy(
    more: list[int | None] | None, can: bool, tmp_path: Path
) -> None:
    replica, changes = target(tmp_path / "r", "id"), target(tmp_path / "c", "id", "image")
    rows = pa.table({"id": [1, 2], **({} if more is None else {"image": pa.array(more, pa.int64())})})
    assert replica.can_copy(changes, rows) is can
    assert changes.can_copy(replica, rows) is False


@pytest.mark.parametrize("indexed", [("id",), ("id", "v"), ("v", "id")])
def test_each_table_states_the_figures_of_its_own_columns(indexed: tuple[str, ...], tmp_path: Path) -> None:
    replica, changes = target(tmp_path / "r", "id", "v"), target(tmp_path / "c", "id", "v", indexed=indexed)
    rows = pa.table({"id": [1, 2], "v": pa.array([None, 5], pa.int64())})
    storage = Storage()
    mine, copied = replica.write_for_both(storage, rows, changes, 7)
    for one, of in ((mine, replica), (copied, changes)):
        (alone,) = FileWriter(storage, of, 7).data(rows, data_change=True)
        assert json.loads(one["add"]["stats"]) == json.loads(alone["add"]["stats"])
        assert {**one["add"], "path": "", "stats": ""} == {**alone["add"], "path": "", "stats": ""}
        assert Path(of.path, one["add"]["path"]).read_bytes() == Path(of.path, alone["add"]["path"]).read_bytes()
