"""Distinct keys of a load are counted in shares that fit into memory."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_gddl.stores import Storage
from spark_jobs.tables.places import InProcess

COLUMNS: dict[str, list[Any]] = {
    "number": [-3, -2, 2**63 - 1, -(2**63), 0, None],
    "text": ["", "a", "ba", "aa", "ab", "é", "x" * 300, None],
    "bytes": [b"", b"\x00", b"\xff\x00", None],
    "day": [dt.date(2024, 1, 1), dt.date(1, 1, 1), None],
    "none": [None],
}


@pytest.mark.parametrize("names", [["number"], ["text"], ["bytes"], ["day"], ["none", "day"], ["text", "number"]])
@pytest.mark.parametrize("counted", [1, 40, 1 << 30])
def test_distinct_values_do_not_depend_on_the_shares(names: list[str], counted: int, tmp_path: Path) -> None:
    files, expected = [], set()
    for number in range(3):
        rows = [tuple(COLUMNS[name][(number + n) * (1 + at) % len(COLUMNS[name])] for at, name in enumerate(names))
                for n in range(9)]  # fmt: skip
        expected |= set(rows)
        files.append(str(tmp_path / f"{number}.parquet"))
        kinds = {"none": pa.string()}
        columns = [pa.array([row[at] for row in rows], kinds.get(name)) for at, name in enumerate(names)]
        pq.write_table(pa.table(columns, names), files[-1])
    assert InProcess(Storage(), counted=counted).distinct(files, names) == len(expected)
