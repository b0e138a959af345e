"""Formats of folders that tell a time: what is one, and that names of folders sort as their times do."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.extensions import DebeziumOptions
from airflow_gddl.contract.file_names import PathFormat, moment
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.dialects.debezium import DebeziumDialect
from tests.harness.sunk_folder import FORMATS, HOURLY

TIMES = st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(2999, 12, 31))  # noqa: DTZ001  as in names


@pytest.mark.parametrize(
    ("text", "path", "time"),
    [
        (HOURLY, "year=2024/month=01/day=31/hour=05/orders+0+0000000042.json", "20240131050000000"),
        (HOURLY, "year=2024/month=01/day=31/hour=05/deeper/x.json", "20240131050000000"),
        (HOURLY, "year=2024/month=01/day=31/x.json", "20240131000000000"),
        (HOURLY, "year=2024/month=13/x.json", "20240101000000000"),
        (HOURLY, "partition=0/year=2024/month=01/day=31/hour=05/x.json", None),
        (HOURLY, "year=2024/month=02/day=30/hour=05/x.json", None),
        (HOURLY, "year=2024.json", None),
        (HOURLY, "orders+0+0000000042.json", None),
        (f"/{HOURLY}/", "year=2024/month=01/day=31/hour=05/x.json", "20240131050000000"),
        ("yyyy/MM/dd/HH", "2024/01/31/23/x.json", "20240131230000000"),
        ("yyyy/MM/dd/HH", "1234/x.json", None),
        ("yyyy-MM-dd", "2024-01-31/x.json", "20240131000000000"),
        ("yyyy-MM-dd", "2024-01-31-orders-0-17.json", None),
        ("yyyyMMddHHmm", "202401312305/x.json", "20240131230500000"),
        ("'dt='yyyy-MM-dd", "dt=2024-01-31/x.json", "20240131000000000"),
        ("'date'=yyyy-MM-dd/'hour'=HH", "date=2024-01-31/hour=05/x.json", "20240131050000000"),
        ("'topics/a.b'/yyyy", "topics/a.b/2024/x.json", "20240101000000000"),
        ("'topics/a.b'/yyyy", "topics/aab/2024/x.json", None),
    ],
)
def test_a_path_tells_when_its_folder_begins(text: str, path: str, time: str | None) -> None:
    assert PathFormat.parsed(text).time(path) == time


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "from the year on"),
        ("'orders'", "from the year on"),
        ("dd/MM/yyyy", "in this order"),
        ("MM/dd", "from the year on"),
        ("yyyy/dd", "in this order"),
        ("yyyy/MM/yyyy", "each once"),
        ("year=YYYY", "y is none of"),
        ("yyyy/M/dd", "M is none of"),
        ("yy/MM", "yy is none of"),
        ("YYYY/DDD", "DDD is none of"),
        ("'year=YYYY", "not closed"),
        ("yyyy//MM", "no name"),
        ("{{timestamp:unit=yyyy}}", "timestamp is|t is"),
    ],
)
def test_what_sorts_otherwise_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PathFormat.parsed(text)


def test_a_job_refuses_it_too() -> None:
    spec = TableSpec(table="s.a", keys=("id",), dialect="debezium")
    with pytest.raises(FatalError, match=r"FIELD_VALUE.*'dd/MM': not year"):
        _ = DebeziumDialect(spec, DebeziumOptions(path_format="dd/MM")).times


@given(text=st.sampled_from(sorted(FORMATS)), time=TIMES, apart=st.integers(-100_000, 100_000), depth=st.integers(0, 4))
def test_names_sort_as_times_do(text: str, time: datetime, apart: int, depth: int) -> None:
    """`depth` folders up: a file may lie in a day's folder where others have their hours."""
    path_format = PathFormat.parsed(text)
    floor = path_format.floor(time)
    assert path_format.time(f"{time:{FORMATS[text]}}/x.json") == f"{floor:%Y%m%d%H%M}00000"
    try:
        other = time + timedelta(minutes=apart)
        folders = f"{other:{FORMATS[text]}}".split("/")
        path = "/".join([*folders[: max(1, len(folders) - depth)], "a.json"])
    except OverflowError:
        return
    found = moment(path_format.time(path) or "")
    if found is None:
        return
    start = path_format.before(floor)
    assert path > path_format.first
    if found >= floor:
        assert path > start
    elif depth == 0:
        assert path < start


@pytest.mark.parametrize("floor", ["2024-01-31T00", "2024-02-01T00", "2024-01-01T00", "2024-01-31T07"])
def test_a_listing_from_where_a_day_begins_has_files_of_the_day_itself(floor: str) -> None:
    start = datetime.fromisoformat(floor)
    name = PathFormat.parsed(HOURLY).before(start)
    assert f"{start:year=%Y/month=%m/day=%d/hour=%H/0.json}" > name
    assert f"{start - timedelta(hours=1):year=%Y/month=%m/day=%d/hour=%H/zz.json}" < name
    if start.hour == 0:
        assert f"{start:year=%Y/month=%m/day=%d/0.json}" > name
