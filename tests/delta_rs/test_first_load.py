"""A first load of which no file can be read is never green."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.contract.table_spec import InitialLoad
from spark_jobs.batch.runtime import TableOutcome
from tests.delta_rs.small_lake import SmallLake, spec_of
from tests.landing import write_bytes


def code(found: object) -> str | None:
    assert isinstance(found, TableOutcome), found
    return None if found.result.error is None else found.result.error.code


def test_runs_and_verify_fail_until_a_file_is_readable(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of()
    write_bytes(Path(lake.layout(spec).landing), "LOAD00000001.parquet", b"PAR1 and nothing else")
    assert [code(lake.run(spec)) for _ in range(2)] == ["FIRST_LOAD_UNREADABLE"] * 2
    assert code(lake.run(spec, JobOptions(action="verify"))) == "FIRST_LOAD_UNREADABLE"
    lake.load(spec)
    assert code(lake.run(spec)) is None
    assert code(lake.run(spec, JobOptions(action="verify"))) is None
    assert len(lake.replica(spec)) == 3


def test_table_with_empty_folder_is_idle(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of()
    Path(lake.layout(spec).landing).mkdir(parents=True)
    assert code(lake.run(spec)) is None


def test_a_first_load_is_tried_again_by_the_corrected_row(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    wrong = replace(spec_of(), sequence_by=())
    folder = Path(lake.layout(wrong).landing)
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.csv").write_text("id,v\n1,a\n2,b\n")
    assert [code(lake.run(wrong)) for _ in range(2)] == ["FIRST_LOAD_UNREADABLE"] * 2
    right = replace(wrong, options={"csv_header": True, "types": {"id": "int"}})
    assert (lake.done(right).rows_read, lake.replica(right)) == (2, {1: "a", 2: "b"})
    assert lake.done(right, JobOptions(action="errors_list")).details["unresolved"] == 0


def test_a_first_load_does_not_store_what_a_misspelt_mask_protects(tmp_path: Path) -> None:
    lake, spec = (
        SmallLake(tmp_path),
        spec_of(mask={"V": "hash", "vv": "hash"}, exclude_columns=("left out at the source",)),
    )
    lake.load(spec)
    outcome = lake.run(spec)
    assert code(outcome) == "PROTECTED_COLUMN_MISSING"
    assert isinstance(outcome, TableOutcome)
    assert "'vv'" in str(outcome.result.error)
    assert "left out" not in str(outcome.result.error)
    assert not Path(lake.layout(spec).changes).exists()
    right = replace(spec, mask={"v": "hash"})
    assert lake.done(right).main.rows == 3
    lake.change(right, 1, [("I", 7, "x")])
    later = replace(right, mask={"v": "hash", "later": "hash"}, exclude_columns=())
    assert [warning.code for warning in lake.done(later).warnings] == ["COLUMN_NOT_FOUND"]


def test_a_landing_root_that_is_gone_empties_no_table(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of(options={"missing_folder": "empty"})
    lake.load(spec)
    lake.done(spec)
    (tmp_path / "landing").rename(tmp_path / "elsewhere")
    assert [warning.code for warning in lake.done(spec).warnings] == ["FOLDER_MISSING"]
    assert len(lake.replica(spec)) == 3
    (tmp_path / "elsewhere").rename(tmp_path / "landing")
    Path(lake.layout(spec).landing, "LOAD00000001.parquet").unlink()
    Path(lake.layout(spec).landing).rmdir()
    assert lake.done(spec).main.deleted == 3, "the folder is gone, and the root is there"


def test_a_reload_reads_files_again_that_a_wrong_row_could_not(tmp_path: Path) -> None:
    lake = SmallLake(tmp_path)
    wrong = spec_of(options={"csv_columns": ["id", "v"]})
    lake.load(wrong)
    (Path(lake.layout(wrong).landing) / "20240101-000000001.csv").write_text("I,100,7,seven\n")
    assert lake.done(wrong).files_in_quarantine == 1
    right = replace(wrong, options={"csv_columns": ["seq", "id", "v"], "types": {"seq": "bigint", "id": "int"}})
    assert lake.done(right, JobOptions(reload=True)).files_in_quarantine == 0
    assert lake.replica(right) == {0: "load 0", 1: "load 1", 2: "load 2", 7: "seven"}


@pytest.mark.parametrize(
    ("fields", "first"),
    [
        ({}, None),
        ({"initial_load": InitialLoad(), "options": {"verify_connection": "GDDL_SOURCE_SHOP"}}, "source"),
        ({"dialect": "debezium", "options": {"capture": {"connector": "postgresql"}, "verify_connection": "X"}}, "log"),
    ],
)
def test_a_plan_says_what_a_run_reads_before_files(fields: dict[str, Any], first: str | None, tmp_path: Path) -> None:
    found = SmallLake(tmp_path).done(spec_of(**fields), JobOptions(action="plan"))
    assert (found.details["batches"], found.details["reads_first"]) == ([], first)


def test_a_file_without_the_sequence_s_column_is_named_in_the_reason(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), replace(spec_of(), sequence_by=("updated_at",))
    lake.change(spec, 1, [("I", 1, "a")])
    lake.done(spec)
    (row,) = lake.done(spec, JobOptions(action="errors_list")).details["rows"]
    assert row["reason"] == "a change without a sequence: its file has no column 'updated_at'"


def test_explain_counts_files_that_could_not_be_read(tmp_path: Path) -> None:
    lake, spec = SmallLake(tmp_path), spec_of()
    lake.load(spec)
    write_bytes(Path(lake.layout(spec).landing), "20240101-000000009.parquet", b"PAR1 cut")
    lake.done(spec)
    assert lake.done(spec, JobOptions(action="explain", key={"id": "1"})).details["quarantine"]["unread_files"] == 1
