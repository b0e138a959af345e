"""Tables of thousands of columns: CPU time grows with the columns, not with their square."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import SchemaEvolution
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

pytestmark = pytest.mark.wide

FEW, MANY = 400, 2_400
_GROWTH, _NOTICED = 3.0, 0.5
"""Times the columns: 1 where time is linear, 6 where it is quadratic; and the least CPU seconds of few columns."""


def columns(count: int, prefix: str = "c") -> dict[str, Any]:
    return {f"{prefix}{number}": pa.array([number], pa.int32()) for number in range(count)}


def variants(count: int) -> Mapping[str, tuple[TableSpec, dict[str, Any]]]:
    """A row, and the columns of a change after a load of `columns`."""
    same, texts = columns(count), {name: ["x"] for name in columns(count)}
    images = {f"BI_{name}": value for name, value in same.items()}
    as_text = SchemaEvolution(type_change="text")
    return {
        "added": (spec_of(settle="0s"), columns(count, "d")),
        "nulls": (spec_of(settle="0s", ignore_null_updates=True), same),
        "listed": (spec_of(settle="0s", columns_to_update="u"), {**same, "u": [",".join(same)]}),
        "images": (spec_of(settle="0s", before_image_prefix="BI_", history=True), same | images),
        "masked": (spec_of(settle="0s", mask=dict.fromkeys(same, "hash")), same),
        "text": (spec_of(settle="0s", schema_evolution=as_text), texts),
    }


def seconds(folder: Path, name: str, count: int) -> float:
    """CPU seconds of a load, a change and a rebuild."""
    lake, (spec, change) = Lake(folder / f"{name}-{count}"), variants(count)[name]
    landing, key = Path(lake.layout(spec).landing), pa.array([1], pa.int32())
    write(landing, "LOAD00000001.parquet", pa.table({"id": key, **columns(count)}))
    start = time.process_time()
    lake.done(spec)
    spent = time.process_time() - start
    write(landing, "20240101-000000001.parquet", pa.table({"Op": ["U"], "seq": [1], "id": key, **change}))
    start = time.process_time()
    lake.done(spec)
    lake.done(spec, JobOptions(action=Rebuild()))
    spent += time.process_time() - start
    (row,) = pa.table(DeltaTable(lake.layout(spec).replica).scan()).to_pylist()
    assert row["_gddl"]["op"] == "U"
    if name != "masked":
        wanted = {column: value[0] if isinstance(value, list) else value[0].as_py() for column, value in change.items()}
        known = {column: value for column, value in wanted.items() if column in row}
        assert {column: row[column] for column in known} == known
    assert len(row) >= count
    return spent


@pytest.mark.parametrize(
    "name", [name if name == "added" else pytest.param(name, marks=pytest.mark.deep) for name in variants(1)]
)
def test_time_grows_with_the_columns(name: str, tmp_path: Path) -> None:
    seconds(tmp_path / "warm", name, 10)
    few = max(seconds(tmp_path, name, FEW), _NOTICED)
    assert seconds(tmp_path, name, MANY) < _GROWTH * MANY / FEW * few


@pytest.mark.deep
def test_a_hundred_thousand_columns_are_loaded(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(settle="0s")
    table = pa.table({"Op": ["I"], "seq": [1], "id": pa.array([1], pa.int32()), **columns(100_000)})
    write(Path(lake.layout(spec).landing), "20240101-000000001.parquet", table)
    lake.done(spec)
    assert len(DeltaTable(lake.layout(spec).replica).schema().fields) == 100_003  # with seq, id and _gddl
