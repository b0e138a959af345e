"""Large parquet files are read by ranges of rows that fit into memory, and a text that does not fit is said so."""

from __future__ import annotations

import datetime as dt
import mmap
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.contract.extensions import DmsOptions
from airflow_gddl.stores import Storage
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.probe import probe, ranges_of
from spark_jobs.rooms.dialects.protocol import Probed, RowRange, Unreadable
from spark_jobs.rules.arrays import TextOverflowError, flat
from spark_jobs.rules.file_rows import FileRows, read_file
from spark_jobs.tables.file_parts import PartBounds, splits

ROWS = 50


def file_of(folder: Path, *, groups: int = 20, int96: bool = False) -> Probed:
    """A file of `ROWS` rows with texts, lists and times, of row groups of so many rows."""
    path = folder / "LOAD00000001.parquet"
    moment = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = pa.table(
        {
            "id": pa.array(range(ROWS), pa.int64()),
            "doc": pa.array([None if n % 7 == 3 else "x" * (n * 40) for n in range(ROWS)], pa.string()),
            "list": pa.array([[n] * (n % 4) for n in range(ROWS)], pa.list_(pa.int32())),
            "at": pa.array([moment + dt.timedelta(microseconds=n) for n in range(ROWS)], pa.timestamp("ns")),
        }
    )
    pq.write_table(rows, path, row_group_size=groups, use_deprecated_int96_timestamps=int96)
    file = PlannedFile(
        path=str(path), kind="load", format="parquet", size=path.stat().st_size, etag="e", modified="m",
        fingerprint="f", generation=1,
    )  # fmt: skip
    return probe(Storage(), file, DmsOptions())


def values(rows: FileRows | Unreadable) -> list[list[Any]]:
    assert isinstance(rows, FileRows), rows
    return [column.to_pylist() for column in rows.columns]


@pytest.mark.parametrize("int96", [False, True])
@pytest.mark.parametrize("large", [1, 400, 3_000, 1 << 20])
def test_ranges_hold_each_row_once(large: int, int96: bool, tmp_path: Path) -> None:
    probed = file_of(tmp_path, int96=int96)
    ranges = tuple(ranges_of(pq.read_metadata(probed.file.path), large))
    whole = values(read_file(Storage(), probed))
    sliced = replace(probed, ranges=ranges)
    assert any(one.is_slice for one in ranges) == (large < 1 << 20)
    for step in (1, 2, len(ranges)):
        parts = [range(at, min(at + step, len(ranges))) for at in range(0, len(ranges), step)]
        read = [read_file(Storage(), sliced, part) for part in parts]
        firsts = [rows.first for rows in read if isinstance(rows, FileRows)]
        assert firsts == [sum(one.rows for one in ranges[: part.start]) for part in parts]
        assert [list(chain(*columns)) for columns in zip(*map(values, read), strict=True)] == whole


def test_ranges_of_a_small_file_are_its_row_groups(tmp_path: Path) -> None:
    assert [(one.group, one.start, one.rows, one.is_slice) for one in file_of(tmp_path).ranges] == [
        (0, 0, 20, False), (1, 0, 20, False), (2, 0, 10, False),
    ]  # fmt: skip


def test_slices_of_a_group_have_as_many_rows_each(tmp_path: Path) -> None:
    meta = pq.read_metadata(file_of(tmp_path, groups=ROWS).file.path)
    ranges = list(ranges_of(meta, -(-meta.row_group(0).total_byte_size // 4)))
    assert [(one.start, one.rows) for one in ranges] == [(0, 13), (13, 13), (26, 13), (39, 11)]
    assert sum(one.size for one in ranges) <= meta.row_group(0).total_byte_size


def test_no_part_holds_more_in_memory_than_a_task_has(tmp_path: Path) -> None:
    """The file has a few bytes, as one of repeated text, and its ranges 300 MiB each."""
    small = file_of(tmp_path)
    sizes = [size * 1024**2 for size in (300, 300, 100, 90, 600)]
    ranges = tuple(RowRange(0, 10 * n, 10, size, is_slice=True) for n, size in enumerate(sizes))
    parts = splits([[replace(small, ranges=ranges)]], {small.file.path: 0}, 2, PartBounds(least=1 << 30, most=1 << 30))
    assert [part.ranges for part in parts] == [range(1), range(1, 4), range(4, 5)]
    whole = splits([[small]], {small.file.path: 0}, 2, PartBounds(least=1 << 30, most=1 << 30))
    assert [part.ranges for part in whole] == [None]


def gibibyte() -> pa.StringArray:
    """One text of 1 GiB, of pages that the system gives out when they are written."""
    offsets = pa.py_buffer(np.array([0, 1 << 30], np.int32))
    return pa.StringArray.from_buffers(1, offsets, pa.py_buffer(mmap.mmap(-1, 1 << 30)))


def test_texts_that_no_array_holds_are_an_error_with_their_size() -> None:
    one = gibibyte()
    with pytest.raises(TextOverflowError, match="2,147,483"):
        flat(pa.chunked_array([one, one]))


def test_file_whose_only_range_has_too_much_text_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    probed, one = file_of(tmp_path, groups=ROWS), gibibyte()
    beside = [pa.array([0], kind) for kind in (pa.int64(),)] * 2
    rows = pa.table({"id": pa.chunked_array(beside), "doc": pa.chunked_array([one, one])})
    monkeypatch.setattr(pq.ParquetFile, "read_row_groups", lambda *_, **__: rows)
    lean = replace(probed, columns=probed.columns[:2])
    read = read_file(Storage(), lean)
    assert isinstance(read, Unreadable)
    assert read.code == "FILE_TOO_LARGE"
    assert "smaller row groups" in read.reason
    with pytest.raises(TextOverflowError):  # another engine may read it in parts
        read_file(Storage(), replace(lean, ranges=(*probed.ranges, *probed.ranges)))
