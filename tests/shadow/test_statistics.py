"""Statistics of a data file against its rows: what holds, and each that does not."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.stores import Storage
from spark_jobs.features.shadow.statistics import FileStatistics
from spark_jobs.tables.data_files import statistics

MOMENT = datetime(2024, 5, 6, 7, 8, 9, 123_456, UTC)
ROWS = pa.table({
    "i": pa.array([3, None, 1], pa.int32()),
    "d": pa.array([Decimal("1.10"), Decimal("-2.55"), None], pa.decimal128(30, 2)),
    "f": pa.array([1.5, -0.25, None], pa.float32()),
    "s": ["b", "ab\U0001f600", None],
    "b": pa.array([True, False, True]),
    "on": pa.array([date(2024, 1, 1), date(1, 1, 1), None], pa.date32()),
    "at": pa.array([MOMENT, MOMENT - timedelta(days=1), None], pa.timestamp("us", "UTC")),
    "local": pa.array([MOMENT.replace(tzinfo=None), None, None], pa.timestamp("us")),
    "struct": pa.array([{"x": 1}, None, {"x": None}], pa.struct([("x", pa.int64())])),
    "list": pa.array([[1], None, []], pa.list_(pa.int64())),
})  # fmt: skip
PATHS = [(name,) for name in ROWS.column_names if name != "struct"] + [("struct", "x")]


def wrong(folder: Path, stated: Any, rows: pa.Table = ROWS, name: str = "part.parquet") -> list[str]:
    pq.write_table(rows, folder / name, row_group_size=2)
    text = stated if isinstance(stated, str) else json.dumps(stated)
    return list(json.loads(FileStatistics()(Storage(), (str(folder / name), text))))


def test_our_statistics_hold(tmp_path: Path) -> None:
    text = statistics(ROWS, PATHS)
    assert {"i", "d", "f", "s", "on", "at", "local", "struct"} <= json.loads(text)["minValues"].keys()
    assert wrong(tmp_path, text) == []


def test_nothing_stated_is_nothing_wrong(tmp_path: Path) -> None:
    assert wrong(tmp_path, {"numRecords": 3}) == []
    assert wrong(tmp_path, {}) == ["part.parquet has 3 rows, not numRecords None"]


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("minValues", "i", 2), ("maxValues", "i", 2), ("minValues", "d", -2.54), ("maxValues", "d", 1.09),
        ("minValues", "f", -0.2), ("maxValues", "f", 1.25), ("minValues", "s", "ac"), ("maxValues", "s", "a"),
        ("minValues", "on", "0001-01-02"), ("maxValues", "on", "2023-12-31"),
        ("minValues", "at", "2024-05-05T07:08:09.124Z"), ("maxValues", "at", "2024-05-06T07:08:09.122Z"),
        ("maxValues", "local", "2024-05-06T07:08:09.122"),
        ("minValues", "struct", {"x": 2}), ("maxValues", "struct", {"x": 0}),
    ],
)  # fmt: skip
def test_bound_that_a_value_is_outside_of(kind: str, column: str, value: Any, tmp_path: Path) -> None:
    name = f"{column}.x" if column == "struct" else column
    found = wrong(tmp_path, {"numRecords": 3, kind: {column: value}})
    assert found == [f"part.parquet has values of {name} outside of minValues and maxValues"]


@pytest.mark.parametrize(
    ("kind", "column", "value"),
    [
        ("minValues", "s", "a"), ("maxValues", "s", "b\U0010ffff"), ("maxValues", "at", "2024-05-06T07:08:09.123Z"),
        ("minValues", "at", "2024-05-05T07:08:09.123Z"), ("maxValues", "local", "2024-05-06T07:08:09.123"),
        ("maxValues", "i", 4),
    ],
)  # fmt: skip
def test_bound_may_be_wider_and_times_in_milliseconds(kind: str, column: str, value: Any, tmp_path: Path) -> None:
    assert wrong(tmp_path, {"numRecords": 3, kind: {column: value}}) == []


def test_counts_that_are_wrong(tmp_path: Path) -> None:
    found = wrong(tmp_path, {"numRecords": 4, "nullCount": {"i": 0, "struct": {"x": 1}, "list": 1}})
    assert found == [
        "part.parquet has 3 rows, not numRecords 4",
        "part.parquet has 1 nulls in i, not nullCount 0",
        "part.parquet has 2 nulls in struct.x, not nullCount 1",
    ]


def test_column_that_the_file_lacks_is_null_everywhere(tmp_path: Path) -> None:
    assert wrong(tmp_path, {"numRecords": 3, "nullCount": {"new": 3}}) == []
    assert wrong(tmp_path, {"numRecords": 3, "nullCount": {"new": 0}}) == [
        "part.parquet has 3 nulls in new, not nullCount 0"
    ]


def test_nan_is_above_every_upper_bound(tmp_path: Path) -> None:
    rows = pa.table({"f": [1.0, float("nan")]})
    assert wrong(tmp_path, {"numRecords": 2, "minValues": {"f": 1.0}}, rows) == []
    assert len(wrong(tmp_path, {"numRecords": 2, "maxValues": {"f": 1.0}}, rows)) == 1


def test_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        FileStatistics()(Storage(), (str(tmp_path / "lost.parquet"), "{}"))
