"""A first load of which no file can be read is never green."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import (
    Explain,
    HandleErrors,
    Plan,
    Rebuild,
    Reload,
    Verify,
)
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.contract.table_spec import InitialLoad
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import TIER, Lake, spec_of
from tests.harness.landing import write, write_bytes


def code(found: object) -> str | None:
    assert isinstance(found, TableOutcome), found
    return None if found.result.error is None else found.result.error.code


def test_runs_and_verify_fail_until_a_file_is_readable(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    write_bytes(Path(lake.layout(spec).landing), "LOAD00000001.parquet", b"PAR1 and nothing else")
    assert [code(lake.run(spec)) for _ in range(2)] == ["FIRST_LOAD_UNREADABLE"] * 2
    assert code(lake.run(spec, JobOptions(action=Verify()))) == "FIRST_LOAD_UNREADABLE"
    lake.load(spec)
    assert code(lake.run(spec)) is None
    assert code(lake.run(spec, JobOptions(action=Verify()))) is None
    assert len(lake.replica(spec)) == 3


LOADS = ("LOAD00000001.parquet", "LOAD00000002.parquet")
GOOD = pa.table({"id": pa.array([7, 8], pa.int32()), "v": ["seven", "eight"]})
DISMISSAL = JobOptions(action=HandleErrors(mode="dismiss", codes=("FILE_UNREADABLE",), reason="lost at the source"))


def failed(outcome: object, name: str) -> str:
    """Code of a run that says which file it could not read."""
    assert isinstance(outcome, TableOutcome), outcome
    error = outcome.result.error
    assert error is not None
    assert (outcome.result.status, name in error.message) == ("failed", True)
    return error.code


@pytest.mark.parametrize("bad", LOADS)
@pytest.mark.parametrize("files", [1, 100])
def test_a_first_load_is_whole_or_it_is_no_replica(bad: str, files: int, tmp_path: Path) -> None:
    """Also where the files of the load are read in several batches."""
    lake, spec = Lake(tmp_path, tier=replace(TIER, max_files_per_batch=files)), spec_of(history=True)
    landing = Path(lake.layout(spec).landing)
    lake.load(spec)
    write(landing, LOADS[1], GOOD)
    write_bytes(landing, bad, b"PAR1 and nothing else")
    lake.change(spec, 1, [("U", 0, "changed"), ("U", 7, "changed")])
    whole_in_one = bad == LOADS[0] or files > 1
    for _ in range(2):
        assert failed(lake.run(spec), bad) == ("FIRST_LOAD_UNREADABLE" if whole_in_one else "LOAD_UNREADABLE")
        assert Path(lake.layout(spec).replica).exists() != whole_in_one
        listed = lake.done(spec, JobOptions(action=HandleErrors()))
        assert (listed.details["unresolved"], listed.details["rows"][0]["source_file"].endswith(bad)) == (1, True)
    lake.load(spec)
    write(landing, LOADS[1], GOOD)
    assert lake.done(spec).status == "succeeded"
    assert lake.replica(spec) == {0: "changed", 1: "load 1", 2: "load 2", 7: "changed", 8: "eight"}
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("bad", LOADS)
def test_a_reload_is_whole_or_changes_nothing(bad: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(sweep_limit=1.0)
    landing = Path(lake.layout(spec).landing)
    lake.load(spec)
    write(landing, LOADS[1], GOOD)
    lake.done(spec)
    write(landing, LOADS[0], GOOD.slice(0, 1))
    write(landing, LOADS[1], GOOD.slice(1, 1))
    good = (landing / bad).read_bytes()
    write_bytes(landing, bad, b"PAR1 and nothing else")
    for number in (1, 2):
        lake.change(spec, number, [("U", 7, f"changed {number}"), ("I", 20 + number, "new")])
        assert failed(lake.run(spec), bad) == "LOAD_UNREADABLE"
        assert lake.replica(spec) == {0: "load 0", 1: "load 1", 2: "load 2", 7: "seven", 8: "eight"}
    write_bytes(landing, bad, good)
    lake.done(spec)
    assert lake.replica(spec) == {7: "changed 2", 8: "eight", 21: "new", 22: "new"}, "changes are newer than the load"
    assert lake.done(spec, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize("way", ["dismissed", "removed"])
def test_a_user_lets_a_table_go_on_without_a_load_file(way: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    landing = Path(lake.layout(spec).landing)
    lake.load(spec)
    write_bytes(landing, LOADS[1], b"PAR1 and nothing else")
    lake.change(spec, 1, [("U", 0, "changed")])
    failed(lake.run(spec), LOADS[1])
    if way == "dismissed":
        assert lake.done(spec, DISMISSAL).details["dismissed"] == 1
    else:
        (landing / LOADS[1]).unlink()
    assert lake.done(spec).status == "succeeded"
    assert lake.replica(spec) == {0: "changed", 1: "load 1", 2: "load 2"}
    assert lake.done(spec).status == "skipped"
    write_bytes(landing, LOADS[1], b"PAR1 and something else")
    assert failed(lake.run(spec), LOADS[1]) == "LOAD_UNREADABLE", "another version is expected again"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (JobOptions(action=Rebuild()), "LOAD_UNREADABLE"),
        (JobOptions(action=Reload()), "RELOAD_UNCONFIRMED"),
    ],
)
def test_no_repair_makes_a_table_of_a_part_of_its_load(options: JobOptions, code: str, tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(history=True)
    lake.load(spec)
    write_bytes(Path(lake.layout(spec).landing), LOADS[1], b"PAR1 and nothing else")
    for _ in range(2):
        assert failed(lake.run(spec, options), LOADS[1]) == code
    assert failed(lake.run(spec), LOADS[1]) == "FIRST_LOAD_UNREADABLE"
    assert not Path(lake.layout(spec).replica).exists()


def test_table_with_empty_folder_is_idle(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    Path(lake.layout(spec).landing).mkdir(parents=True)
    assert code(lake.run(spec)) is None


def test_a_first_load_is_tried_again_by_the_corrected_row(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    wrong = replace(spec_of(), sequence_by=())
    folder = Path(lake.layout(wrong).landing)
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.csv").write_text("id,v\n1,a\n2,b\n")
    assert [code(lake.run(wrong)) for _ in range(2)] == ["FIRST_LOAD_UNREADABLE"] * 2
    right = replace(wrong, options={"csv_header": True, "types": {"id": "int"}})
    assert (lake.done(right).rows_read, lake.replica(right)) == (2, {1: "a", 2: "b"})
    assert lake.done(right, JobOptions(action=HandleErrors())).details["unresolved"] == 0


@pytest.mark.parametrize("codes", [(), ("FILE_UNREADABLE",)])
def test_a_replay_reads_a_first_load_again(codes: tuple[str, ...], tmp_path: Path) -> None:
    """There is no table whose quarantine it could read instead."""
    lake, wrong = Lake(tmp_path), replace(spec_of(), sequence_by=())
    folder, replay = Path(lake.layout(wrong).landing), JobOptions(action=HandleErrors(mode="replay", codes=codes))
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.csv").write_text("id,v\n1,a\n2,b\n")
    assert [code(lake.run(wrong, options)) for options in (None, replay, replay)] == ["FIRST_LOAD_UNREADABLE"] * 3
    right = replace(wrong, options={"csv_header": True, "types": {"id": "int"}})
    assert (lake.done(right, replay).rows_read, lake.replica(right)) == (2, {1: "a", 2: "b"})
    assert lake.done(right, JobOptions(action=HandleErrors())).details["unresolved"] == 0


def test_a_replay_applies_no_change_before_the_first_load(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    replay = JobOptions(action=HandleErrors(mode="replay"))
    write_bytes(Path(lake.layout(spec).landing), LOADS[0], b"PAR1 and nothing else")
    lake.change(spec, 1, [("U", 0, "changed"), ("I", 7, "new")])
    assert [failed(lake.run(spec, options), LOADS[0]) for options in (None, replay, replay)] == [
        "FIRST_LOAD_UNREADABLE"
    ] * 3
    assert not Path(lake.layout(spec).replica).exists()
    lake.load(spec)
    replayed = lake.done(spec, replay)
    assert "UPDATE_WITHOUT_PRIOR" not in {warning.code for warning in replayed.warnings}
    assert (lake.replica(spec)[0], lake.replica(spec)[7], len(lake.replica(spec))) == ("changed", "new", 4)


def test_a_first_load_does_not_store_what_a_misspelt_mask_protects(tmp_path: Path) -> None:
    lake, spec = (
        Lake(tmp_path),
        spec_of(mask={"V": "hash", "vv": "hash"}, exclude_columns=("left out",), absent_columns=("left out",)),
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
    assert code(lake.run(later)) == "PROTECTED_COLUMN_MISSING"


def test_a_landing_root_that_is_gone_empties_no_table(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of(options={"missing_folder": "empty"})
    lake.load(spec)
    lake.done(spec)
    (tmp_path / "landing").rename(tmp_path / "elsewhere")
    gone = lake.run(spec)
    assert isinstance(gone, TableOutcome)
    assert (code(gone), gone.retriable) == ("LANDING_MISSING", True)
    assert len(lake.replica(spec)) == 3
    (tmp_path / "elsewhere").rename(tmp_path / "landing")
    Path(lake.layout(spec).landing, "LOAD00000001.parquet").unlink()
    Path(lake.layout(spec).landing).rmdir()
    assert lake.done(spec).main.deleted == 3, "the folder is gone, and the root is there"


def test_a_reload_reads_files_again_that_a_wrong_row_could_not(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    wrong = spec_of(options={"csv_columns": ["id", "v"]})
    lake.load(wrong)
    (Path(lake.layout(wrong).landing) / "20240101-000000001.csv").write_text("I,100,7,seven\n")
    assert lake.done(wrong).files_in_quarantine == 1
    right = replace(wrong, options={"csv_columns": ["seq", "id", "v"], "types": {"seq": "bigint", "id": "int"}})
    assert lake.done(right, JobOptions(action=Reload())).files_in_quarantine == 0
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
    (tmp_path / "landing").mkdir()
    found = Lake(tmp_path).done(spec_of(**fields), JobOptions(action=Plan()))
    assert (found.details["batches"], found.details["reads_first"]) == ([], first)


def test_a_file_without_the_sequence_s_column_is_named_in_the_reason(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(spec_of(), sequence_by=("updated_at",))
    lake.change(spec, 1, [("I", 1, "a")])
    lake.done(spec)
    (row,) = lake.done(spec, JobOptions(action=HandleErrors())).details["rows"]
    assert row["reason"] == "a change without a sequence: its file has no column 'updated_at'"


@pytest.mark.parametrize("options", [JobOptions(action=Verify()), JobOptions(action=Verify(since_seconds=3600))])
def test_verify_says_why_there_is_nothing_to_compare(options: JobOptions, tmp_path: Path) -> None:
    found = Lake(tmp_path).done(spec_of(), options)
    assert (found.status, [warning.code for warning in found.warnings]) == ("skipped", ["TABLE_NOT_LOADED"])


def test_explain_counts_files_that_could_not_be_read(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    write_bytes(Path(lake.layout(spec).landing), "20240101-000000009.parquet", b"PAR1 cut")
    lake.done(spec)
    assert lake.done(spec, JobOptions(action=Explain(key={"id": "1"}))).details["quarantine"]["unread_files"] == 1
