"""Reload of a time: its files are read as if they had been written again, and what repeats is recognized."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Erase, Reload, Verify
from airflow_gddl.contract.spec import JobOptions, TableSpec
from tests.harness.asked import options_of, planned
from tests.harness.damages import DAMAGES
from tests.harness.lake import Lake, spec_of
from tests.spark.children import killed_child

SPEC = spec_of(history=True, settle="0s")
DAY = 86_400
FIRST = 1_704_067_200
"""The first of January 2024; a file of day N lands on the N-th."""
VERIFY = JobOptions(action=Verify())


def option(first: int, last: int, **fields: Any) -> JobOptions:
    """A reload of the files of these days, both included."""
    since, until = f"2024-01-{first:02d}", f"2024-01-{last + 1:02d}T00:00:00Z"
    fields = {"confirmed": True, **fields}
    return options_of(action="reload", full_listing=True, landed_since=since, landed_until=until, **fields)


def day(lake: Lake, number: int, rows: Sequence[tuple[str, int, str | None]], spec: TableSpec = SPEC) -> Path:
    lake.change(spec, number, rows, day=number)
    return dated(lake.landing(spec) / f"202401{number:02d}-{number:09d}.parquet", number)


def dated(path: Path, day: float) -> Path:
    moment = FIRST + (day - 1) * DAY + 3600
    os.utime(path, (moment, moment))
    return path


def filled(root: Path, spec: TableSpec = SPEC) -> Lake:
    """Three days of changes after a full load."""
    lake = Lake(root)
    lake.load(spec, 5)
    dated(lake.landing(spec) / "LOAD00000001.parquet", 1)
    day(lake, 2, [("U", 0, "new"), ("D", 4, None)], spec)
    day(lake, 3, [("U", 1, "two"), ("I", 7, "seven")], spec)
    day(lake, 4, [("U", 2, "three"), ("U", 7, "more")], spec)
    lake.done(spec)
    return lake


def test_files_of_the_time_are_read_again(tmp_path: Path) -> None:
    """One change is another, one is new; one that is gone stays; a later file has the last word on key 7."""
    lake = filled(tmp_path)
    os.utime(day(lake, 3, [("U", 1, "TWO"), ("I", 8, "eight")]), (FIRST, FIRST))
    before = lake.replica(SPEC)
    result = lake.done(SPEC, option(1, 3))
    assert (result.files, result.mode, result.details) == (2, "refresh", None)
    assert lake.replica(SPEC) == {**before, 1: "TWO", 8: "eight"}
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"
    assert lake.done(SPEC).status == "skipped", "the ledger has the files as they are"


def test_files_as_they_were_change_nothing(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    tables = [lake.layout(SPEC).changes, lake.layout(SPEC).replica, lake.layout(SPEC).history]
    before = [lake.rows(path) for path in tables]
    result = lake.done(SPEC, option(2, 4))
    assert (result.rows_read, result.redelivered, result.changes_written) == (6, 6, 0)
    assert [lake.rows(path) for path in tables] == before


def test_files_are_of_the_time_when_they_landed_or_were_written_again(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    dated(day(lake, 3, [("U", 1, "two"), ("I", 7, "seven"), ("I", 8, "eight")]), 20)
    assert lake.done(SPEC, option(20, 20)).changes_written == 1
    dated(day(lake, 2, [("U", 0, "new"), ("D", 4, None), ("I", 9, "nine")]), 25)
    assert lake.done(SPEC, option(2, 2)).changes_written == 1
    assert lake.replica(SPEC) == {0: "new", 1: "two", 2: "three", 3: "load 3", 7: "more", 8: "eight", 9: "nine"}


def test_files_that_wait_are_loaded_too(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    dated(day(lake, 9, [("I", 9, "nine")]), 3.5)
    assert lake.done(SPEC, option(3, 3)).files == 2
    assert lake.replica(SPEC)[9] == "nine"


def test_truncates_of_its_files_are_applied_and_a_new_one_holds_none_of_them(tmp_path: Path) -> None:
    lake, reporting = filled(tmp_path), replace(SPEC, truncate="report")
    day(lake, 3, [("U", 1, "two"), ("T", None, None), ("I", 7, "seven")])  # type: ignore[list-item] # a truncate has no key
    lake.done(reporting)
    day(lake, 9, [("T", None, None), ("I", 9, "nine")])  # type: ignore[list-item] # a truncate has no key
    result = lake.done(SPEC, option(3, 3))
    assert {"TRUNCATE_APPLIED", "TRUNCATE_HELD"} <= {one.code for one in result.warnings}
    assert lake.replica(SPEC) == {2: "three", 7: "more"}
    lake.done(SPEC, options_of(action="release", held="truncate"))
    assert lake.replica(SPEC) == {9: "nine"}
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


def test_a_sweep_that_waits_for_load_files_stays_so(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    load = lake.landing(SPEC) / "LOAD00000001.parquet"
    second = load.with_name("LOAD00000002.parquet")
    second.write_bytes(load.read_bytes())
    lake.done(SPEC)
    lake.load(SPEC, 2)
    assert "SWEEP_PENDING" in {one.code for one in lake.done(SPEC).warnings}
    before = lake.replica(SPEC)
    result = lake.done(SPEC, option(2, 4))
    assert "SWEEP_PENDING" in {one.code for one in result.warnings}
    assert lake.replica(SPEC) == before


def test_files_that_may_still_be_written_are_refused(tmp_path: Path) -> None:
    lake, spec = filled(tmp_path), replace(SPEC, settle="1h")
    day(lake, 3, [("U", 1, "TWO")]).touch()
    error = lake.result(spec, option(1, 30)).error
    assert error is not None
    assert error.code == "FILES_CHANGED"


def test_a_time_without_files_or_with_a_full_load_alone(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    for first in (1, 20):
        error = lake.result(SPEC, option(first, first)).error
        assert error is not None
        assert error.code == "RANGE_EMPTY"


@pytest.mark.parametrize(
    ("fields", "code"), [({"keys": ("v",)}, "KEYS_CHANGED"), ({"sequence_by": ("v",)}, "SEQUENCE_CHANGED")]
)
def test_a_row_that_needs_a_rebuild_is_refused_as_by_any_run(fields: dict[str, Any], code: str, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before = lake.rows(lake.layout(SPEC).changes)
    for options in (option(1, 4), planned(option(1, 4))):
        error = lake.result(replace(SPEC, **fields), options).error
        assert error is not None
        assert error.code == code, error
    assert lake.rows(lake.layout(SPEC).changes) == before


def test_a_damaged_table_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "TWO")])
    before = lake.rows(lake.layout(SPEC).changes)
    DAMAGES["data_file_gone"](Path(lake.layout(SPEC).replica))
    error = lake.result(SPEC, option(3, 3)).error
    assert error is not None
    assert error.code == "TABLE_DAMAGED", error
    assert lake.rows(lake.layout(SPEC).changes) == before


def test_a_started_batch_is_finished_first(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 5, [("I", 5, "five")])
    assert killed_child(lake.job([SPEC], run_id="dies"), "append").status == -9
    result = lake.done(SPEC, option(3, 3))
    assert (result.batches, result.error) == (2, None)
    assert lake.replica(SPEC)[5] == "five"


@pytest.mark.parametrize("step", ["plan", "append", "replica"])
def test_a_killed_one_is_finished_by_a_usual_run(step: str, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "two"), ("I", 7, "seven"), ("I", 8, "eight")])
    assert killed_child(lake.job([SPEC], option(3, 3), run_id="dies"), step).status == -9
    lake.done(SPEC)
    assert lake.replica(SPEC)[8] == "eight"
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


@pytest.mark.parametrize("asked", [JobOptions(), option(3, 3)], ids=["run", "time"])
def test_an_unfinished_reload_of_all_files_is_finished_first(asked: JobOptions, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    (lake.landing(SPEC) / "20240104-000000004.parquet").unlink()
    job = lake.job([SPEC], options_of(action="reload", confirmed=True), run_id="dies")
    assert killed_child(job, "tombstones").status == -9
    day(lake, 9, [("I", 9, "nine")])
    lake.done(SPEC, asked)
    assert lake.replica(SPEC) == {0: "new", 1: "two", 2: "load 2", 3: "load 3", 7: "seven", 9: "nine"}
    assert lake.done(SPEC, VERIFY).details["verdict"] == "equal"


def test_erased_keys_stay_out(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    lake.done(SPEC, JobOptions(action=Erase(key={"id": "1"})))
    lake.done(SPEC, option(2, 4))
    assert lake.replica(SPEC) == {0: "new", 2: "three", 3: "load 3", 7: "more"}


def test_the_quarantine_of_its_files_is_as_they_are_now(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    day(lake, 3, [("U", 1, "two"), ("X", 7, "seven")])
    lake.done(SPEC)
    day(lake, 5, [("X", 5, "later")])
    assert lake.done(SPEC).in_quarantine == 2
    day(lake, 3, [("U", 1, "two"), ("I", 7, "seven")])
    result = lake.done(SPEC, option(3, 3))
    assert result.in_quarantine == 1
    day(lake, 3, [("U", 1, "two"), ("Y", 7, "seven")])
    assert lake.done(SPEC, option(3, 3)).in_quarantine == 2


def test_a_dry_run_shows_its_files(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    details = lake.done(SPEC, planned(option(3, 4))).details
    assert [len(batch["files"]) for batch in details["batches"]] == [2]
    error = lake.result(SPEC, planned(option(20, 21))).error
    assert error is not None
    assert error.code == "RANGE_EMPTY"


@pytest.mark.parametrize(
    ("since", "until"), [("yesterday", ""), ("2024-01-05", "2024-01-02"), ("2024-01-05", "2024-01-05T00:00:00Z")]
)
def test_a_range_that_is_no_time_or_empty_is_refused(since: str, until: str, tmp_path: Path) -> None:
    options = JobOptions(action=Reload(landed_since=since, landed_until=until))
    error = filled(tmp_path).result(SPEC, options).error
    assert error is not None
    assert error.code == "RANGE_INVALID"
