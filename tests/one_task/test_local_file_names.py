"""Names of change files in local time: an hour of them comes twice when clocks go back."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.file_names import repeated_hour
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.lake import Lake
from tests.harness.landing import write

FIRST, SECOND = "20251026-025959500", "20251026-020000200"
"""Two names in the order in which they were written, in Berlin."""
_COMMIT = datetime(2025, 10, 26, 0, 59, 59, tzinfo=UTC)


def table(**options: Any) -> TableSpec:
    return TableSpec(table="s.t", keys=("id",), settle="0s", options={"timestamp_column": "ts", **options})


def land(lake: Lake, spec: TableSpec, name: str, v: str, written: datetime) -> None:
    rows = {
        "Op": ["U"],
        "ts": pa.array([_COMMIT], pa.timestamp("us", "UTC")),
        "id": pa.array([1], pa.int32()),
        "v": [v],
    }
    folder = Path(lake.layout(spec).landing)
    write(folder, f"2025/10/26/{name}.parquet", pa.table(rows))
    os.utime(folder / f"2025/10/26/{name}.parquet", (written.timestamp(), written.timestamp()))


@pytest.mark.parametrize(("options", "last"), [
    ({"date_partition": "YYYYMMDD"}, "second"),
    ({"date_partition": "YYYYMMDD", "date_partition_timezone": "Europe/Berlin"}, "second"),
    ({"date_partition_timezone": "Europe/Berlin"}, "second"),
    ({"date_partition": "YYYYMMDD", "date_partition_timezone": "UTC"}, "first"),
    ({"date_partition": "YYYYMMDD", "date_partition_timezone": "Asia/Tokyo"}, "first"),
    ({}, "first"),
])  # fmt: skip
@pytest.mark.parametrize("tie_break", ["delete_wins", "last_arrival"])
@pytest.mark.parametrize("batches", [1, 2])
def test_what_was_written_last_wins_a_tie(
    tmp_path: Path, options: dict[str, Any], last: str, tie_break: Any, batches: int
) -> None:
    lake, spec = Lake(tmp_path), table(**options)
    spec = TableSpec(**{**vars(spec), "tie_break": tie_break})
    written = datetime(2025, 10, 26, 1, 0, tzinfo=UTC)
    land(lake, spec, FIRST, "first", written)
    if batches == 2:
        lake.done(spec)
    land(lake, spec, SECOND, "second", written + timedelta(seconds=1))
    lake.done(spec)
    assert lake.replica(spec) == {1: last}
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"
    lake.done(spec, JobOptions(action=Rebuild()))
    assert lake.replica(spec) == {1: last}


@pytest.mark.parametrize(("zone", "hours"), [
    ("Europe/Berlin", ["2025102602"]), ("Europe/London", ["2025102601"]), ("America/New_York", ["2025110201"]),
    ("Australia/Lord_Howe", ["2025040601"]), ("Australia/Sydney", ["2025040602"]), ("Pacific/Auckland", ["2025040602"]),
    ("Africa/Cairo", ["2025103023"]), ("Asia/Tokyo", []), ("UTC", []), ("Etc/GMT+5", []),
])  # fmt: skip
def test_hours_that_come_twice_are_those_of_the_zone(zone: str, hours: list[str]) -> None:
    start = datetime(2025, 1, 1, tzinfo=UTC)
    names = [f"{start + timedelta(hours=hour):%Y%m%d%H}5959999" for hour in range(365 * 24)]
    assert [hour for name in names if (hour := repeated_hour(name, zone))] == hours
    unknown = {hour for name in names if (hour := repeated_hour(name, None))}
    assert zone == "Africa/Cairo" or unknown.issuperset(hours)
    assert len(unknown) == 12
