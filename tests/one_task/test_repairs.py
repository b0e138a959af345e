"""Rebuild and reload: what each reads, what it keeps and drops, and when it is refused."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_gddl.contract.actions import Erase, Explain, Plan, Rebuild, Reload, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions
from spark_jobs.batch.totals import TableOutcome
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.one_task.test_verify_source import SPEC as WITH_SOURCE
from tests.spark.children import killed_child

REBUILD = JobOptions(action=Rebuild())
RELOAD = JobOptions(action=Reload())
CONFIRMED = JobOptions(action=Reload(confirmed=True))
SPEC = replace(WITH_SOURCE, options={})


def filled(root: Path) -> Lake:
    lake = Lake(root)
    lake.load(SPEC, 5)
    lake.change(SPEC, 1, [("U", 0, "new"), ("D", 4, None)])
    lake.done(SPEC)
    return lake


def failed(lake: Lake, options: JobOptions, code: str) -> str:
    """The message of a run that has to fail."""
    found = lake.run(SPEC, options)
    assert isinstance(found, TableOutcome)
    return of_failure(found.result, code)


def of_failure(result: JobResult, code: str) -> str:
    assert result.error is not None
    assert result.error.code == code
    return result.error.message


def landing(lake: Lake, name: str = "") -> Path:
    return Path(lake.layout(SPEC).landing, name)


def generations(lake: Lake) -> list[int]:
    rows = DeltaTable(lake.layout(SPEC).changes).to_pyarrow_table()
    return sorted(pc.struct_field(rows.column("_gddl"), "generation").to_pylist())


def damaged(lake: Lake) -> dict[int, str]:
    """The right rows of a replica that then loses one and holds a wrong one."""
    replica, right = lake.layout(SPEC).replica, lake.replica(SPEC)
    DeltaTable(replica).delete("id = 2")
    DeltaTable(replica).update(updates={"v": "'wrong'"}, predicate="id = 1")
    return right


@pytest.mark.parametrize("files", [True, False], ids=["with_files", "without_files"])
def test_rebuild_repairs_a_replica(files: bool, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    right = damaged(lake)
    if not files:
        for path in landing(lake).iterdir():
            path.unlink()
    reported = lake.done(SPEC, REBUILD)
    assert (reported.mode, reported.main.rows, reported.files, lake.replica(SPEC)) == ("refresh", 4, 0, right)
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


def test_rebuild_needs_no_table_that_the_row_no_longer_asks_for(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), replace(SPEC, history=True)
    lake.load(spec, 5)
    lake.done(spec)
    shutil.rmtree(lake.layout(spec).history)
    assert lake.done(SPEC, REBUILD).main.rows == 5
    assert lake.done(SPEC).status == "skipped"


def test_rebuild_loads_what_waits(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    damaged(lake)
    lake.change(SPEC, 2, [("I", 9, "after")])
    reported = lake.done(SPEC, REBUILD)
    assert (reported.mode, reported.batches, reported.files) == ("refresh", 2, 1)
    assert sorted(lake.replica(SPEC)) == [0, 1, 2, 3, 9]


def test_rebuild_drops_a_batch_that_was_never_committed(tmp_path: Path) -> None:
    """Its changes are in the change table, its files in no ledger: they are loaded once."""
    lake = filled(tmp_path)
    lake.change(SPEC, 2, [("I", 9, "after")])
    assert killed_child(lake.job([SPEC], run_id="dies"), "append").status == -9
    count = DeltaTable(lake.layout(SPEC).changes).to_pyarrow_table().num_rows
    reported = lake.done(SPEC, REBUILD)
    assert (reported.files, lake.replica(SPEC)[9]) == (1, "after")
    assert DeltaTable(lake.layout(SPEC).changes).to_pyarrow_table().num_rows == count


@pytest.mark.parametrize("step", ["plan", "append", "tombstones", "replica", "quarantine", "commit", "committed"])
def test_killed_rebuild_is_resumed(step: str, tmp_path: Path) -> None:
    """By a usual run, with masks that the change table is rewritten for."""
    lake = filled(tmp_path)
    masked = replace(SPEC, mask={"v": "hash"})
    assert killed_child(lake.job([masked], REBUILD, run_id="dies"), step).status == -9
    lake.done(masked)
    other = Lake(tmp_path / "other")
    other.load(masked, 5)
    other.change(masked, 1, [("U", 0, "new"), ("D", 4, None)])
    other.done(masked)
    assert lake.replica(masked) == other.replica(masked)
    assert lake.done(masked, JobOptions(action=Verify())).details["verdict"] == "equal"
    assert "load" not in str(DeltaTable(lake.layout(SPEC).changes).to_pyarrow_table().column("v").to_pylist())


def test_rebuild_removes_rows_of_another_writer(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    right, changes = lake.replica(SPEC), lake.layout(SPEC).changes
    strange = DeltaTable(changes).to_pyarrow_table().slice(0, 1).drop_columns(["_gddl"])
    write_deltalake(changes, strange, mode="append", schema_mode="merge")
    lake.change(SPEC, 2, [("I", 9, "after")])
    failed(lake, JobOptions(), "FOREIGN_ROWS")
    lake.done(SPEC, REBUILD)
    assert lake.replica(SPEC) == {**right, 9: "after"}
    assert DeltaTable(changes).to_pyarrow_table().column("_gddl").null_count == 0


def test_values_masked_for_good_need_their_files(tmp_path: Path) -> None:
    lake, masked = Lake(tmp_path), replace(SPEC, mask={"v": "hash"})
    lake.load(masked, 3)
    lake.done(masked)
    assert "v is stored masked" in failed(lake, REBUILD, "REBUILD_NEEDS_FILES")
    assert len(lake.replica(masked)[0]) == 64
    lake.done(SPEC, CONFIRMED)
    assert lake.replica(SPEC)[0] == "load 0"


def test_reload_takes_the_files_alone_and_asks_first(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    for path in landing(lake).iterdir():
        path.unlink()
    lake.change(SPEC, 9, [("I", 9, "only")])
    before, changes = lake.replica(SPEC), generations(lake)
    message = failed(lake, RELOAD, "RELOAD_UNCONFIRMED")
    assert "the 1 files that are there hold 1 rows" in message
    assert "4 of 4 rows; 7 changes that no file holds" in message
    assert (lake.replica(SPEC), generations(lake)) == (before, changes)
    assert list(Path(lake.layout(SPEC).state).rglob("refresh/**/*.parquet")) == []
    reported = lake.done(SPEC, CONFIRMED)
    assert reported.details["reload"] == {
        "files": 1, "rows": 1, "rows_before": 4, "appear": 1, "vanish": 4, "change": 0, "columns": (), "archived": 7,
    }  # fmt: skip
    assert lake.replica(SPEC) == {9: "only"}
    assert generations(lake) == [0] * 7 + [1]
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"
    lake.done(SPEC, REBUILD)
    assert (lake.replica(SPEC), generations(lake)) == ({9: "only"}, [0] * 7 + [1])


def test_archived_changes_are_no_redelivery(tmp_path: Path) -> None:
    """A file that comes back after a reload is loaded again: what it brings is new."""
    lake = filled(tmp_path)
    kept = {path: path.read_bytes() for path in landing(lake).iterdir()}
    for path in kept:
        path.unlink()
    lake.change(SPEC, 9, [("I", 9, "only")])
    lake.done(SPEC, CONFIRMED)
    for path, content in kept.items():
        path.write_bytes(content)
    reported = lake.done(SPEC)
    assert (reported.files, reported.redelivered) == (2, 0)
    assert lake.replica(SPEC) == {0: "new", 1: "load 1", 2: "load 2", 3: "load 3", 9: "only"}
    assert lake.done(SPEC, JobOptions(action=Verify())).details["verdict"] == "equal"


@pytest.mark.parametrize(("key", "states"), [("0", []), ("1", ["winner"])])
def test_archived_changes_explain_nothing(key: str, states: list[str], tmp_path: Path) -> None:
    lake = filled(tmp_path)
    for path in landing(lake).iterdir():
        path.unlink()
    lake.change(SPEC, 9, [("I", 1, "only")])
    lake.done(SPEC, CONFIRMED)
    found = lake.done(SPEC, JobOptions(action=Explain(key={"id": key}))).details
    assert [change["state"] for change in found["changes"]] == states
    assert (found["archived"], found["verdict"]) == ({"0": 2, "1": 1}[key], "equal")


def test_reload_drops_columns_that_no_file_has(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    columns = {"Op": ["I"], "seq": [300], "id": pa.array([7], pa.int32()), "v": ["x"], "extra": ["wide"]}
    wide = write(landing(lake), "20240103-000000001.parquet", pa.table(columns))
    lake.done(SPEC)
    wide.unlink()
    assert "1 columns (extra)" in failed(lake, RELOAD, "RELOAD_UNCONFIRMED")
    lake.done(SPEC, CONFIRMED)
    assert "extra" not in DeltaTable(lake.layout(SPEC).replica).to_pyarrow_table().column_names


def test_reload_without_losses_needs_no_confirmation(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    right = damaged(lake)
    reported = lake.done(SPEC, RELOAD)
    assert (reported.details["reload"]["appear"], reported.details["reload"]["change"]) == (1, 1)
    assert lake.replica(SPEC) == right


def test_reload_names_files_that_cannot_be_read(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    before, version = lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()
    load = landing(lake, "LOAD00000001.parquet")
    load.write_bytes(load.read_bytes()[:50])
    assert "LOAD00000001.parquet" in failed(lake, RELOAD, "RELOAD_UNCONFIRMED")
    assert (lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()) == (before, version)
    lake.change(SPEC, 2, [("I", 9, "after")])
    failed(lake, JobOptions(), "LOAD_UNREADABLE")
    assert lake.replica(SPEC) == before


def test_reload_without_files_is_dropped(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    for path in landing(lake).iterdir():
        path.unlink()
    failed(lake, CONFIRMED, "NOTHING_TO_REFRESH")
    lake.change(SPEC, 2, [("I", 9, "after")])
    assert (lake.done(SPEC).mode, lake.replica(SPEC)[9]) == ("incremental", "after")


@pytest.mark.parametrize("step", ["staged", "checked", "swapping", "append", "replica", "quarantine", "commit"])
def test_killed_reload_is_resumed(step: str, tmp_path: Path) -> None:
    lake = filled(tmp_path)
    landing(lake, "LOAD00000001.parquet").unlink()
    assert killed_child(lake.job([SPEC], CONFIRMED, run_id="dies"), step).status == -9
    assert lake.done(SPEC).mode == "refresh"
    assert (lake.replica(SPEC), generations(lake)) == ({0: "new"}, [0] * 5 + [1, 1])


def test_readers_see_the_old_or_the_new_table(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    replica = lake.layout(SPEC).replica
    DeltaTable(replica).delete("id = 2")
    before = DeltaTable(replica)
    old = sorted(before.to_pyarrow_table().column("id").to_pylist())
    lake.done(SPEC, REBUILD)
    assert sorted(before.to_pyarrow_table().column("id").to_pylist()) == old == [0, 1, 3]
    assert sorted(lake.replica(SPEC)) == [0, 1, 2, 3]
    counts = {
        DeltaTable(replica, version=v).to_pyarrow_table().num_rows
        for v in range(before.version(), DeltaTable(replica).version() + 1)
    }
    assert counts == {3, 4}, "no version of the table is anything between"


def test_a_dry_run_of_a_reload_shows_its_batches_and_changes_nothing(tmp_path: Path) -> None:
    lake = filled(tmp_path)
    (landing(lake) / "20240101-000000001.parquet").unlink()
    before, version = lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()
    details = lake.done(SPEC, JobOptions(action=Plan(of=Reload()), full_listing=True)).details
    assert "LOAD00000001.parquet" in str(details)
    assert (lake.replica(SPEC), DeltaTable(lake.layout(SPEC).replica).version()) == (before, version)


def test_a_table_is_removed_and_comes_back_as_the_page_says(tmp_path: Path) -> None:
    """`docs/tasks/remove.md`: its folders are all that the lake has of a table, but for erased keys and its target."""
    lake = filled(tmp_path)
    erased = JobOptions(action=Erase(key={"id": "1"}))
    assert lake.done(SPEC, erased).error is None
    page = (Path(__file__).parents[2] / "docs" / "tasks" / "remove.md").read_text(encoding="utf-8")
    folders = page.partition("for folder in ")[2].partition("; do")[0].replace("\\\n", " ").split()
    for folder in folders:
        shutil.rmtree(tmp_path / "lake" / re.sub(r"\$\{?TABLE\}?", "s/t", folder), ignore_errors=True)
    left = {path.relative_to(tmp_path / "lake").parts[:2] for path in (tmp_path / "lake").rglob("*") if path.is_file()}
    assert left <= {("_gddl", "erased"), ("_gddl", "targets"), ("_gddl", "sources")}
    result = lake.done(SPEC)
    assert (result.mode, result.error) == ("initial", None)
    assert 1 not in lake.replica(SPEC)
    assert lake.replica(SPEC)
