"""The order of rows is the same with every pyarrow that is supported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.rules import arrays


@pytest.mark.filterwarnings("ignore:Specifying null_placement in SortOptions is deprecated")
@pytest.mark.parametrize("nulls_by_key", [False, arrays._NULLS_BY_KEY])
def test_nulls_come_first_in_each_column(monkeypatch: pytest.MonkeyPatch, nulls_by_key: bool) -> None:
    monkeypatch.setattr(arrays, "_NULLS_BY_KEY", nulls_by_key)
    columns = [pa.array([3, None, 1, None, 3]), pa.array(["b", "c", None, None, "a"])]
    assert arrays.sorted_rows(columns).tolist() == [3, 1, 2, 4, 0]
