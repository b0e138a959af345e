"""A change file that lacks a key column is put aside as a file, and stops nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import HandleErrors
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.runtime.state.table_status import attention_of
from tests.harness.asked import options_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

SPEC = spec_of(settle="0s")
LIST, REPLAY = JobOptions(action=HandleErrors()), JobOptions(action=HandleErrors(mode="replay"))
BARE = "20240101-000000002.parquet"


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(tmp_path)
    lake.load(SPEC)
    lake.change(SPEC, 1, [("U", 0, "one")])
    write(lake.landing(SPEC), BARE, pa.table({"Op": ["U"], "seq": [200], "v": ["two"]}))
    lake.change(SPEC, 3, [("U", 1, "three")])
    return lake


def test_other_files_go_on_and_the_file_waits(lake: Lake) -> None:
    """Also of a first load, of which it would be the first change file."""
    done = lake.done(SPEC)
    assert (done.rows_read, done.files_in_quarantine) == (5, 1)
    assert attention_of(done, 0.0, 0.01) == ("FILE_UNREADABLE",)
    assert lake.replica(SPEC) == {0: "one", 1: "three", 2: "load 2"}
    (row,) = lake.done(SPEC, LIST).details["rows"]
    assert (row["code"], row["reason"]) == ("FILE_KEY_MISSING", "the file has no key column 'id'")
    assert row["source_file"].endswith(BARE)
    lake.change(SPEC, 4, [("U", 2, "four")])
    assert lake.done(SPEC).rows_read == 1, "it is not read again by itself"


def test_the_file_is_delivered_again(lake: Lake) -> None:
    lake.done(SPEC)
    lake.change(SPEC, 2, [("U", 1, "two"), ("I", 7, "two")])
    done = lake.done(SPEC)
    assert (done.rows_read, done.files_in_quarantine) == (2, 0)
    assert lake.replica(SPEC) == {0: "one", 1: "three", 2: "load 2", 7: "two"}, "its changes come in their order"


def test_the_row_is_corrected_or_the_file_dismissed(lake: Lake) -> None:
    lake.done(SPEC)
    assert lake.done(SPEC, REPLAY).files_in_quarantine == 1, "nothing is better yet"
    write(lake.landing(SPEC), "20240101-000000004.parquet",
          pa.table({"Op": ["U"], "seq": [400], "key": pa.array([2], pa.int32()), "v": ["four"]}))  # fmt: skip
    assert lake.done(SPEC).files_in_quarantine == 2
    renaming = replace(SPEC, rename={"key": "id"})
    assert lake.done(renaming, REPLAY).files_in_quarantine == 1
    assert lake.replica(SPEC)[2] == "four"
    lake.done(renaming, options_of("errors_dismiss", codes=("FILE_KEY_MISSING",), reason="another table's"))
    assert lake.done(renaming, LIST).details["unresolved"] == 0


def test_wrong_keys_of_a_row_are_refused_and_so_is_a_load_without_them(tmp_path: Path, lake: Lake) -> None:
    wrong = replace(SPEC, keys=("nr",))
    error = lake.result(wrong).error
    assert error is not None
    assert error.code == "KEY_COLUMN_MISSING"
    assert not Path(lake.layout(SPEC).changes).exists()
    lake.done(SPEC)
    write(lake.landing(SPEC), "LOAD00000001.parquet", pa.table({"v": ["x"]}))
    error = lake.result(SPEC).error
    assert error is not None
    assert error.code == "KEY_COLUMN_MISSING"
    assert "taken out of the landing folder" in error.message
