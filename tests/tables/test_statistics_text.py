"""Statistics of data files as the log has them: decimals are numbers with all their digits, texts stay texts."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from spark_jobs.rules.texts import FIRST_DAY, LAST_DAY, outside_years
from spark_jobs.tables.data_files import statistics

_ROWS = pa.table({"price": [Decimal("0.10"), Decimal("12.50")], "name": ["ä", None], "day": [date(2024, 1, 2)] * 2})


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        (["name"], '{"numRecords":2,"minValues":{"name":"ä"},"maxValues":{"name":"ä"},"nullCount":{"name":1}}'),
        (
            ["price", "day"],
            (
                '{"numRecords":2,"minValues":{"price":0.10,"day":"2024-01-02"},'
                '"maxValues":{"price":12.50,"day":"2024-01-02"},"nullCount":{"price":0,"day":0}}'
            ),
        ),
    ],
)
def test_statistics_are_compact_json_with_decimals_as_they_are(columns: list[str], text: str) -> None:
    assert statistics(_ROWS, [(name,) for name in columns]) == text


@pytest.mark.parametrize(
    ("days", "outside"),
    [
        ([FIRST_DAY, None, LAST_DAY], None),
        ([], None),
        ([None], None),
        ([FIRST_DAY - 1, None, 0], [True, False, False]),
        ([0, LAST_DAY + 1], [False, True]),
    ],
)
def test_days_outside_the_years_1_to_9999_are_marked(days: list[int | None], outside: list[bool] | None) -> None:
    found = outside_years(pa.array(days, pa.int32()).cast(pa.date32()))
    assert (None if found is None else np.asarray(found).tolist()) == outside


def test_types_without_an_order_have_no_bounds() -> None:
    """A list has none for readers, and the true and the false of a column are its bounds."""
    kinds = {"list": pa.list_(pa.int64()), "map": pa.map_(pa.string(), pa.int64()), "bytes": pa.binary()}
    values = {"list": [[1], None], "map": [[("a", 1)], None], "bytes": [b"a", None]}
    rows = pa.table({name: pa.array(values[name], kind) for name, kind in kinds.items()})
    rows = rows.append_column("flag", pa.array([True, False]))
    assert json.loads(statistics(rows, [(name,) for name in rows.column_names])) == {
        "numRecords": 2, "minValues": {"flag": False}, "maxValues": {"flag": True},
        "nullCount": {"list": 1, "map": 1, "bytes": 1, "flag": 0},
    }  # fmt: skip
