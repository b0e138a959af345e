"""Erased keys stay out of a table whose row names its key otherwise than when they were erased."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, Reload
from airflow_gddl.contract.spec import JobOptions, TableSpec
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write, written_before

REFRESH = JobOptions(action=Reload(confirmed=True))


def erasing(**key: str) -> JobOptions:
    return JobOptions(action=Erase(key=key))


def code_of(lake: Lake, row: TableSpec, options: JobOptions | None = None) -> str:
    """Of a run that has to fail."""
    found = lake.run(row, options)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    return found.result.error.code


@pytest.mark.parametrize(
    ("before", "after"),
    [({}, {"keys": ("id", "v")}), ({}, {"mask": {"ID": "hash"}}), ({"mask": {"id": "hash"}}, {"mask": {}})],
    ids=["other columns", "masked", "no more masked"],
)
def test_refresh_by_another_key_is_refused(before: Any, after: Any, tmp_path: Path) -> None:
    row = spec_of(**before)
    lake = Lake(tmp_path)
    lake.load(row, 5)
    lake.done(row)
    lake.done(row, erasing(id="3"))
    held, version = lake.replica(row), DeltaTable(lake.layout(row).replica).version()
    assert code_of(lake, replace(row, **after), REFRESH) == "ERASED_BY_OTHER_KEYS"
    assert DeltaTable(lake.layout(row).replica).version() == version
    lake.done(row, REFRESH)
    assert lake.replica(row) == held


def test_changed_mask_without_refresh_loads_no_late_file(tmp_path: Path) -> None:
    row = spec_of(mask={"id": "hash"})
    lake = Lake(tmp_path)
    lake.load(row, 5)
    lake.done(row)
    lake.done(row, erasing(id="3"))
    lake.change(row, 1, [("U", 3, "back")])
    written_before(Path(lake.layout(row).landing, "20240101-000000001.parquet"))
    assert code_of(lake, replace(row, mask={})) == "MASK_CHANGED"
    lake.done(row)
    assert "back" not in lake.replica(row).values()


def test_order_and_case_of_key_columns_are_ignored(tmp_path: Path) -> None:
    row = replace(spec_of(), keys=("region", "id"))
    lake = Lake(tmp_path)

    def land(number: int, v: str) -> None:
        columns = {"Op": ["I", "I"], "seq": [number, number], "region": ["EU", "US"], "id": ["1", "1"], "v": [v, v]}
        written_before(write(Path(lake.layout(row).landing), f"20240101-{number:09d}.parquet", pa.table(columns)))

    land(1, "first")
    lake.done(row)
    first = lake.done(row, erasing(region="EU", id="1")).details
    land(2, "second")
    other = replace(row, keys=("ID", "Region"))
    assert {w.code: w.count for w in lake.done(other).warnings} == {"ERASED_SKIPPED": 1}
    assert list(lake.replica(row).values()) == ["second"]
    again = lake.done(other, erasing(id="1", region="EU")).details
    assert (again["hash"], again["removed"]) == (first["hash"], first["removed"])


def test_erasure_by_changed_keys_is_refused(tmp_path: Path) -> None:
    row = spec_of()
    lake = Lake(tmp_path)
    lake.load(row, 5)
    lake.done(row)
    other = replace(row, keys=("v",))
    assert code_of(lake, other, erasing(v="load 3")) == "KEYS_CHANGED"
    assert not Path(lake.layout(row).erased).exists()
    lake.done(other, REFRESH)
    lake.done(other, erasing(v="load 3"))
    assert 3 not in lake.replica(row)


def test_keys_may_change_after_erasures_are_revoked(tmp_path: Path) -> None:
    row = spec_of()
    lake = Lake(tmp_path)
    lake.load(row, 5)
    lake.done(row)
    lake.done(row, erasing(id="3"))
    for document in Path(lake.layout(row).erased).iterdir():
        document.unlink()
    lake.done(replace(row, keys=("v",)), REFRESH)
    assert sorted(lake.replica(row)) == [0, 1, 2, 3, 4]
