"""Small files of partitions are compacted between batches, so that their number stays bounded."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.stores import Storage
from spark_jobs.tables import small_files
from spark_jobs.tables.delta_tables import DataFile, Tables, Write
from spark_jobs.tables.places import TaskBounds
from spark_jobs.tables.small_files import FULL, MANY, at_once, join_in_passing
from tests.harness.lake import Lake, spec_of

PARTS, BATCHES = 20, 9


def test_files_of_partitions_that_each_batch_adds_to_stay_few(tmp_path: Path) -> None:
    path, tables = str(tmp_path / "t"), Tables(Storage(), lambda: datetime.now(UTC))

    def rows(batch: int) -> pa.Table:
        return pa.table({"id": [batch * PARTS + n for n in range(PARTS)], "part": [f"p{n}" for n in range(PARTS)]})

    write_deltalake(path, rows(0), partition_by=["part"])
    numbers = []
    for batch in range(1, BATCHES):
        join_in_passing(tables, path)
        tables.commit(path, Write(added=[rows(batch)]))
        numbers.append(len(tables.existing(path).files))
    assert max(numbers) <= MANY + 3 * PARTS
    ids = DeltaTable(path).to_pyarrow_table().column("id").to_pylist()
    assert sorted(ids) == list(range(PARTS * BATCHES))


def test_files_that_are_compacted_in_one_commit_are_no_more_than_a_full_file() -> None:
    def group(count: int, size: int) -> list[DataFile]:
        return [DataFile(f"f{number}", size) for number in range(count)]

    few, many, large = group(4, 1), group(9, 1), group(5, FULL // 5)
    assert at_once([few, large, many]) == [many, few]
    assert at_once([large, few]) == [large]
    assert at_once([]) == []


def test_files_of_tables_whose_changed_rows_leave_them_stay_few(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of tables do that are too large to be in memory as a whole."""
    monkeypatch.setattr(Tables, "bounds", TaskBounds(whole=-1))
    monkeypatch.setattr(small_files, "MANY", 5)
    lake, spec, numbers = Lake(tmp_path), spec_of(history=True), []
    layout = lake.layout(spec)
    lake.load(spec, 20)
    for number in range(1, 9):
        lake.change(spec, number, [("U", number, "new")])
        lake.done(spec)
        numbers.append([len(DeltaTable(path).file_uris()) for path in (layout.replica, layout.history)])
    assert [max(of_table) for of_table in zip(*numbers, strict=True)] == [5, 5]
