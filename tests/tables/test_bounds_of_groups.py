"""Least and greatest values of row groups, as footers state them."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from spark_jobs.tables.data_files import bounds


def file(table: pa.Table, *, with_statistics: bool = True) -> pq.ParquetFile:
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=2, write_statistics=with_statistics)
    return pq.ParquetFile(sink)


ROWS = pa.table({"id": [3, 1, 7, 5], "v": ["b", "a", None, None], "s": [{"x": 1}] * 4})


@pytest.mark.parametrize(("group", "name", "found"), [
    (0, "id", (1, 3)), (1, "id", (5, 7)), (0, "v", ("a", "b")), (1, "v", None), (0, "s.x", (1, 1)), (0, "none", None),
])  # fmt: skip
def test_bounds_are_those_of_the_group(group: int, name: str, found: tuple[object, object] | None) -> None:
    assert bounds(file(ROWS), group, name) == found


def test_column_with_the_path_of_a_field_has_none() -> None:
    """The footer names both alike."""
    assert bounds(file(ROWS.append_column("s.x", pa.array([9, 9, 9, 9]))), 0, "s.x") is None


def test_footer_without_statistics_states_none() -> None:
    assert bounds(file(ROWS, with_statistics=False), 0, "id") is None
