"""The order of rows is the same with every pyarrow that is supported."""

from __future__ import annotations

import pyarrow as pa
import pytest

from spark_jobs.rules import arrays


@pytest.mark.filterwarnings("ignore:Specifying null_placement in SortOptions is deprecated")
@pytest.mark.parametrize("nulls_by_key", [False, arrays.NULLS_BY_KEY])
def test_nulls_come_first_in_each_column(nulls_by_key: bool) -> None:
    rows = pa.table({"n": [3, None, 1, None, 3], "v": ["b", "c", None, None, "a"]})
    assert arrays.ascending(rows, ["n", "v"], nulls_by_key=nulls_by_key).to_pylist() == [3, 1, 2, 4, 0]
    assert arrays.sorted_rows(rows.columns).tolist() == [3, 1, 2, 4, 0]
