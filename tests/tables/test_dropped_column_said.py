"""A column that the source has dropped is named, and a late file that brings it is not said to be without effect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.runtime.state.table_runs import TableRecord
from airflow_gddl.runtime.state.table_status import attention_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

SPEC = spec_of(settle="0s")


def land(lake: Lake, number: int, seq: int, **values: object) -> None:
    row = {"Op": ["U"], "seq": [seq], "id": pa.array([1], pa.int32()), **{name: [v] for name, v in values.items()}}
    write(lake.landing(SPEC), f"20240101-{number:09d}.parquet", pa.table(row))


def test_a_dropped_column_is_said_once_and_a_late_change_of_it_is_applied(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    land(lake, 1, 10, v="ten", n=10)
    lake.done(SPEC)
    land(lake, 2, 30, v="thirty")
    done = lake.done(SPEC)
    (warning,) = done.warnings
    assert (warning.code, warning.sample, "n" in warning.message) == ("COLUMN_DROPPED", ("n",), True)
    assert attention_of(done, 0.0, 0.01) == ("COLUMN_DROPPED",)
    land(lake, 3, 40, v="forty")
    assert lake.done(SPEC).warnings == (), "once"
    land(lake, 4, 20, v="twenty", n=20)
    done = lake.done(SPEC)
    (late,) = done.warnings
    assert (late.code, done.late_ignored) == ("BATCH_LATE", 1)
    assert "applied only in columns that no newer change of their key carries" in late.message
    (row,) = [one for one in lake.rows(lake.layout(SPEC).replica) if one["id"] == 1]
    assert (row["v"], row["n"]) == ("forty", 20)


def test_computed_and_technical_columns_are_not_dropped(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    land(lake, 1, 10, v="ten")
    assert lake.done(SPEC).warnings == (), "a full load lacks the sequence, change files the full load's nothing"
    write(lake.landing(SPEC), "20240101-000000002.parquet",
          pa.table({"Op": ["D"], "seq": [20], "id": pa.array([2], pa.int32())}))  # fmt: skip
    assert "COLUMN_DROPPED" not in [one.code for one in lake.done(SPEC).warnings], "a delete has the key alone"


def test_status_does_not_count_an_erased_row(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    record = TableRecord().after(lake.done(SPEC), 0.0)
    assert record.rows == 3
    erased = replace(lake.done(SPEC, JobOptions(action=Erase(key={"id": "1"}))), run_id="erase")
    assert record.after(erased, 0.0).rows == 2
    failed = replace(erased, status="failed")
    assert record.after(failed, 0.0).rows == 3
