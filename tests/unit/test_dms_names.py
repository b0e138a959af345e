from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_gddl.contract.extensions import DateDelimiter, DatePartition, DmsOptions
from airflow_gddl.contract.file_names import change_time, classify, digits_of, is_temporary, moment
from airflow_gddl.contract.spec import TableSpec
from spark_jobs.rooms.dialects.dms import DmsDialect
from spark_jobs.rooms.dialects.protocol import EVERYTHING, Window

OPTIONS = DmsOptions()


def windows(options: DmsOptions, cursor: str, since: datetime, until: datetime) -> tuple[Window, ...]:
    return DmsDialect(TableSpec(table="s.t", keys=("id",)), options).windows(cursor, since, until)


@pytest.mark.parametrize(
    ("name", "kind", "file_format"),
    [
        ("LOAD00000001.parquet", "load", "parquet"),
        ("LOAD0000000A.csv", "load", "csv"),
        ("load0000000a.CSV.GZ", "load", "csv"),
        ("LOAD00000001.parquet.gz", "load", "parquet"),
        ("LOAD00000001-part2.snappy.parquet", "load", "parquet"),
        ("SEGMENT1_LOAD00000001.parquet", "load", "parquet"),
        ("LOAD_2_00000001.csv", "load", "csv"),
        ("east/LOAD00000001.parquet", "load", "parquet"),
        ("20240131-235959123.parquet", "change", "parquet"),
        ("20240131-235959123.Csv.Gz", "change", "csv"),
        ("20141029-1134010000.csv", "change", "csv"),
        ("20240131-235959123_2.parquet", "change", "parquet"),
        ("20240131-235959123-0001.snappy.parquet", "change", "parquet"),
        ("2024/01/31/20240131-235959123.parquet", "change", "parquet"),
        ("2024-01-31-23/20240131-235959123.parquet", "change", "parquet"),
        ("01202431/20240131-235959123.parquet", "change", "parquet"),
    ],
)
def test_data_files_are_loads_or_changes(name: str, kind: str, file_format: str) -> None:
    found = classify(name)
    assert found is not None
    assert found[:2] == (kind, file_format)
    assert not is_temporary(name)


@pytest.mark.parametrize(
    "name",
    [
        ".20240131-235959123.parquet",
        "_SUCCESS",
        "_temporary/LOAD00000001.parquet",
        "2024/.staging/20240131-235959123.parquet",
        "LOAD00000001.parquet.tmp",
        "LOAD00000001.parquet.crc",
        "LOAD00000001.parquet._COPYING_",
        "LOAD00000001.parquet~",
        "20240131-235959123.csv.filepart",
        "2024_$folder$",
    ],
)
def test_temporary_files_are_left_out_silently(name: str) -> None:
    assert classify(name) is None
    assert is_temporary(name)


@pytest.mark.parametrize(
    "name",
    [
        "readme.txt",
        "LOADER.parquet",
        "LOAD00000001.json",
        "LOAD00000001.dfm",
        "20240131.parquet",
        "x20240131-235959123.csv",
        "LOAD.parquet",
        "20240131-2359.csv",
        "LOAD00000001",
        "LOAD00000001.parquet.zip",
    ],
)
def test_unknown_names_are_left_out_but_not_temporary(name: str) -> None:
    assert classify(name) is None
    assert not is_temporary(name)


def order(name: str) -> tuple[str, ...]:
    found = classify(name)
    assert found is not None
    return found[2]


def shuffled(names: list[str]) -> list[str]:
    return [*names[1::2], *names[::2]]


def test_load_counters_are_hexadecimal() -> None:
    names = ["LOAD00000009.csv", "LOAD0000000A.csv", "LOAD0000000b.csv", "LOAD0000000F.csv", "LOAD00000010.csv"]
    assert sorted(shuffled(names), key=order) == names
    parts = ["SEGMENT2_LOAD00000001.csv", "SEGMENT2_LOAD00000002.csv", "SEGMENT10_LOAD00000001.csv"]
    assert sorted(shuffled(parts), key=order) == parts
    assert order("LOAD9.csv") < order("LOAD0000000A.csv")


def test_changes_are_ordered_by_the_time_in_the_name_then_by_path() -> None:
    names = [
        "20231231-235959999.parquet",
        "2024/01/01/20240101-000000000.parquet",
        "20240101-000000001.parquet",
        "b/20240101-000000001.parquet",
        "01202431/20240131-000000000.parquet",
    ]
    assert sorted(shuffled(names), key=order) == names


@given(st.datetimes(min_value=datetime(1970, 1, 1), max_value=datetime(9000, 1, 1)))  # noqa: DTZ001  names carry no zone
def test_digits_and_moments_are_inverse(time: datetime) -> None:
    whole = time.replace(microsecond=time.microsecond // 1000 * 1000)
    digits = digits_of(time)
    assert moment(digits) == whole
    assert change_time(f"a/{digits[:8]}-{digits[8:]}.csv") == digits


def test_a_name_with_an_impossible_time_has_no_moment() -> None:
    digits = change_time("20240230-256199000.csv")
    assert digits == "20240230256199000"
    assert moment(digits) is None
    assert change_time("LOAD00000001.csv") is None


FORMATS = {
    "YYYYMMDD": ["%Y", "%m", "%d"],
    "YYYYMMDDHH": ["%Y", "%m", "%d", "%H"],
    "YYYYMM": ["%Y", "%m"],
    "MMYYYYDD": ["%m", "%Y", "%d"],
    "DDMMYYYY": ["%d", "%m", "%Y"],
}
DELIMITERS = {"slash": "/", "dash": "-", "underscore": "_", "none": ""}


def path_of(time: datetime, options: DmsOptions, zone_hours: int = 0) -> str:
    name = f"{time:%Y%m%d-%H%M%S}{time.microsecond // 1000:03d}.parquet"
    if options.date_partition == "none":
        return name
    local = time + timedelta(hours=zone_hours)
    parts = [f"{local:{part}}" for part in FORMATS[options.date_partition]]
    return f"{DELIMITERS[options.date_delimiter].join(parts)}/{name}"


@given(
    partition=st.sampled_from([*FORMATS, "none"]),
    delimiter=st.sampled_from(list(DELIMITERS)),
    newest=st.datetimes(min_value=datetime(2001, 1, 1), max_value=datetime(2060, 1, 1)),  # noqa: DTZ001  as in names
    age=st.timedeltas(timedelta(), timedelta(days=7)),
    zone_hours=st.integers(-12, 14),
)
def test_windows_cover_the_lookback_in_any_layout(
    partition: DatePartition, delimiter: DateDelimiter, newest: datetime, age: timedelta, zone_hours: int
) -> None:
    options = DmsOptions(date_partition=partition, date_delimiter=delimiter)
    found = windows(options, path_of(newest, options), newest - timedelta(days=7), newest)
    assert found != EVERYTHING
    late = path_of(newest - age, options, zone_hours)
    assert any(window.covers(late) for window in found), late
    old = path_of(newest - timedelta(days=400), options, zone_hours)
    assert not any(window.covers(old) for window in found), old
    for load in ("LOAD00000001.parquet", "SEGMENT1_LOAD00000001.csv", "east/LOAD00000001.csv"):
        assert any(window.covers(load) for window in found)


def test_unconfigured_layouts_are_listed_in_full() -> None:
    since, until = datetime(2024, 1, 1), datetime(2024, 1, 8)  # noqa: DTZ001  as in names
    assert windows(OPTIONS, "2024/01/08/20240108-000000000.csv", since, until) == EVERYTHING
    wide = DmsOptions(date_partition="DDMMYYYY")
    assert windows(wide, "08/01/2024/20240108-000000000.csv", datetime(2023, 1, 1), until) == EVERYTHING  # noqa: DTZ001  as in names


def test_flat_files_before_date_folders_are_covered() -> None:
    options = DmsOptions(date_partition="YYYYMMDD", date_delimiter="underscore")
    since, until = datetime(2024, 1, 1), datetime(2024, 1, 8)  # noqa: DTZ001  as in names
    found = windows(options, "20240108-000000000.csv", since, until)
    assert any(window.covers("20240105-000000000.csv") for window in found)
    assert any(window.covers("2024_01_09/20240109-000000000.csv") for window in found)


def test_days_are_listed_one_by_one_where_folders_do_not_sort() -> None:
    options = DmsOptions(date_partition="MMYYYYDD")
    since, until = datetime(2024, 1, 31, 12), datetime(2024, 2, 1, 12)  # noqa: DTZ001  as in names
    found = windows(options, "02/2024/01/20240201-120000000.csv", since, until)
    folders = ["01/2024/30", "01/2024/31", "02/2024/01", "02/2024/02"]
    assert found == (*(Window(folder=folder) for folder in folders), Window(start_after=":"))
