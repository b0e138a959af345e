"""Files of AWS DMS that come later than others that were written after them, as copies may; on both engines."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.spec import TableSpec
from tests.conftest import LocalPort
from tests.harness.lake import Lake, LakeTable
from tests.harness.landing import write

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), settle="0s", sweep_limit=1.0, sweep_after="0s")
HOUR = 3_600


@pytest.fixture
def table(engine: LocalPort, tmp_path: Path) -> LakeTable:
    """Rows 1 and 2 by a load, and row 3 by a change that came an hour after it."""
    table = LakeTable(Lake(tmp_path, port=engine.everywhere()), SPEC)
    load(table, {1: "a", 2: "a"}, at=1)
    table.run()
    change(table, ("I", 3, "a"), at=2)
    table.run()
    return table


def load(table: LakeTable, rows: dict[int, str], at: int) -> None:
    """Write the load's file; `at`: hours."""
    columns = {"id": pa.array(rows, pa.int32()), "v": pa.array(rows.values(), pa.string())}
    write(table.landing, "LOAD00000001.parquet", pa.table(columns))
    written(table.landing / "LOAD00000001.parquet", at)


def change(table: LakeTable, row: tuple[str, int, str], at: int) -> None:
    table.lake.change(SPEC, at, [row])
    written(table.landing / f"20240101-{at:09d}.parquet", at)


def written(path: Path, at: int) -> None:
    os.utime(path, (1_700_000_000 + at * HOUR,) * 2)


def test_a_change_written_before_a_reload_that_comes_after_it_undoes_nothing(table: LakeTable) -> None:
    """It is of the generation that the reload has ended, as where both wait together."""
    load(table, {1: "loaded"}, at=5)
    table.run()
    change(table, ("U", 2, "b"), at=4)
    change(table, ("U", 1, "new"), at=6)
    result = table.run()
    assert (table.lake.replica(SPEC), result.late_ignored) == ({1: "new"}, 1)
    table.run(action="rebuild")
    assert table.lake.replica(SPEC) == {1: "new"}


def test_a_reload_that_comes_after_changes_made_since_is_refused(table: LakeTable) -> None:
    change(table, ("U", 1, "new"), at=6)
    table.run()
    load(table, {1: "loaded"}, at=5)
    error = table.refused()
    assert error.code == "GENERATIONS_UNKNOWN"
    assert "000000006.parquet" in error.message
    assert table.lake.replica(SPEC) == {1: "new", 2: "a", 3: "a"}
    table.run(action="reload", confirmed=True)
    assert table.lake.replica(SPEC) == {1: "new"}
    change(table, ("U", 1, "newer"), at=7)
    table.run()
    assert table.lake.replica(SPEC) == {1: "newer"}


def test_a_reload_that_has_all_changes_is_taken_when_the_row_says_so(table: LakeTable) -> None:
    load(table, {1: "loaded"}, at=1)
    one = replace(table, spec=replace(SPEC, generations="one"))
    one.run()
    assert table.lake.replica(SPEC) == {1: "loaded"}
