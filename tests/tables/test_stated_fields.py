"""Fields of `_gddl` that the footer of a data file states are as they would be read."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.plan.table_schema import GDDL, ROW_ID, ROW_VERSION
from spark_jobs.tables.data_files import read_groups, read_rows
from spark_jobs.tables.row_ids import COLUMNS, RowIdColumns
from spark_jobs.tables.snapshots import DataFile

_PAIR = pa.struct([("a", pa.int64()), ("b", pa.int64())])


def rows(sequence: pa.Array) -> pa.Table:
    parts = {"sequence": sequence, "op": pa.array(["I"] * 3), "position": pa.array([0, 1, 2], pa.int64())}
    gddl = pa.StructArray.from_arrays(list(parts.values()), names=list(parts))
    return pa.table({"id": [1, 2, 3], GDDL: gddl})


@pytest.mark.parametrize("sequence", [
    pa.array([5, 5, 5]), pa.array([5, None, 6]), pa.array([{"a": 1, "b": at} for at in range(3)], _PAIR),
    pa.array([{"a": 1, "b": None}] * 3, _PAIR),
])  # fmt: skip
@pytest.mark.parametrize("ties", [True, False])
def test_rows_are_those_of_the_file(sequence: pa.Array, ties: bool) -> None:
    assert read(rows(sequence), ties=ties) == rows(sequence).take(pa.array([2, 0])).to_pylist()


def test_positions_of_rows_without_a_sequence_may_be_left_out() -> None:
    wanted = rows(pa.nulls(3, pa.int64())).take(pa.array([2, 0])).to_pylist()
    assert read(rows(pa.nulls(3, pa.int64())), ties=True) == wanted
    found = read(rows(pa.nulls(3, pa.int64())), ties=False)
    assert found == [{**row, GDDL: {**row[GDDL], "position": None}} for row in wanted]


def read(table: pa.Table, *, ties: bool) -> list[dict[str, Any]]:
    """Its third row and its first."""
    sink = io.BytesIO()
    pq.write_table(table, sink)
    found = read_rows(pq.ParquetFile(sink), 0, np.array([2, 0]), DataFile(path="f", size=1), table.schema, ties=ties)
    return [dict(row) for row in found.to_pylist()]


def test_row_ids_of_each_row_group_follow_those_of_the_one_before() -> None:
    """A file states the id of its first row alone."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": range(10), "own": [None, 99, *[None] * 8]}), sink, row_group_size=3)
    known = {"baseRowId": 40, "defaultRowCommitVersion": 7}
    file = DataFile(path="f", size=1, add=known, row_ids=RowIdColumns("own", "version"))
    schema, source = pa.schema([("id", pa.int64()), *COLUMNS]), pq.ParquetFile(sink)
    found = [read_rows(source, group, np.array([1]), file, schema) for group in (2, 0)]
    assert [rows.to_pylist() for rows in found] == [
        [{"id": 7, ROW_ID: 47, ROW_VERSION: 7}], [{"id": 1, ROW_ID: 99, ROW_VERSION: 7}]
    ]  # fmt: skip
    whole = read_groups(source, [0, 1, 3], file, schema.remove(2))
    assert whole.column(ROW_ID).to_pylist() == [40, 99, 42, 43, 44, 45, 49]
    versions = read_groups(source, [1], file, pa.schema([COLUMNS[1]]))
    assert versions.to_pylist() == [{ROW_VERSION: 7}] * 3
