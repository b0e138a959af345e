"""The right to be forgotten: a key is gone from every table and file of ours, and nothing brings it back."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Erase, HandleErrors, Maintain, Reload, Verify
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout, join, result_name
from airflow_gddl.contract.result import JobResult, RunWarning
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.stores import Storage
from airflow_gddl.stores.lake_files import compact
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.run_results import ResultStore
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.asked import with_asked
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write, written_before
from tests.one_task.test_growing_files import Growing
from tests.spark.children import killed_child

NAME = "Ada Lovelace"
"""Stands in every row of the key that is erased, and in no other."""
VERIFY, REFRESH = JobOptions(action=Verify()), JobOptions(action=Reload(confirmed=True))


def erasing(**key: str) -> JobOptions:
    return JobOptions(action=Erase(key=key, asked_by="eve"))


def spec(**fields: Any) -> TableSpec:
    return spec_of(history=True, **fields)


def filled(root: Path, row: TableSpec) -> Lake:
    """Key 7 is loaded, changed, moved and deleted once; key 8 has a bad row, and 7 too."""
    lake = Lake(root)
    columns = {"id": pa.array([6, 7, 8], pa.int32()), "v": ["x", NAME, "y"]}
    write(Path(lake.layout(row).landing), "LOAD00000001.parquet", pa.table(columns))
    lake.change(row, 1, [("U", 7, f"{NAME} 2"), ("U", 8, "z"), ("?", 7, NAME), ("?", 8, "bad")])
    lake.done(row)
    lake.change(row, 2, [("D", 7, None)])
    lake.done(row)
    lake.change(row, 3, [("I", 7, f"{NAME} 3"), ("I", 9, "n")])
    lake.done(row)
    return lake


def tables_of(layout: Layout) -> dict[str, str]:
    """A table's Delta tables by kind."""
    return {name: getattr(layout, name) for name in ("changes", "replica", "history", "errors", "tombstones")}


def held(lake: Lake, row: TableSpec) -> list[str]:
    """Which of the tables hold the key."""
    found = []
    for name, path in tables_of(lake.layout(row)).items():
        if DeltaTable.is_deltatable(path):
            rows = DeltaTable(path).to_pyarrow_table().to_pylist()
            found += [name for r in rows if r.get("id") == 7 or NAME in str(r)][:1]
    return found


@pytest.mark.parametrize("erases", [False, True])
def test_a_sweep_is_held_by_the_share_of_rows_without_erased_ones(erases: bool, tmp_path: Path) -> None:
    """Two of four rows are more than `sweep_limit`; once one of them is erased, one of three is not."""
    row, lake = spec(sweep_after="0s"), Lake(tmp_path)
    path = Path(lake.layout(row).landing)
    write(path, "LOAD00000001.parquet", pa.table({"id": pa.array([6, 7, 8, 9], pa.int32()), "v": list("abcd")}))
    lake.change(row, 1, [("U", 6, "e")])
    lake.done(row)
    if erases:
        lake.done(row, erasing(id="7"))
    write(path, "LOAD00000001.parquet", pa.table({"id": pa.array([8, 9], pa.int32()), "v": ["f", "g"]}))
    swept = lake.done(row)
    held_back = {} if erases else {6: "e", 7: "b"}
    assert lake.replica(row) == {8: "f", 9: "g"} | held_back
    assert ("SWEEP_HELD" in [warning.code for warning in swept.warnings]) is not erases


def test_key_is_removed_from_every_table_and_others_are_kept(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    assert held(lake, row) == ["changes", "replica", "history", "errors", "tombstones"]
    reported = lake.done(row, erasing(id="7")).details
    assert held(lake, row) == []
    removed = {"changes": 4, "before_images": 0, "replica": 1, "history": 3, "tombstones": 1, "errors": 1}
    assert reported["removed"] == removed
    assert lake.replica(row) == {6: "x", 8: "z", 9: "n"}
    assert DeltaTable(lake.layout(row).errors).to_pyarrow_table().num_rows == 1
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_landing_files_with_the_key_are_listed(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    lake.change(row, 4, [("I", 10, "other")])
    result = lake.done(row, erasing(id="7"))
    names = [*(f"20240101-00000000{n}.parquet" for n in (1, 2, 3)), "LOAD00000001.parquet"]
    assert [Path(path).name for path in result.details["files"]] == names
    assert {w.code: w.count for w in result.warnings} == {"ERASED_IN_FILES": 4}


def rows_of(lake: Lake, row: TableSpec, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = DeltaTable(tables_of(lake.layout(row))[name]).to_pyarrow_table().to_pylist()
    return found


def late_file(lake: Lake, row: TableSpec) -> None:
    """Of changes that are older than others that had been ingested."""
    lake.change(row, 2, [("U", 7, NAME), ("U", 6, "late")], day=2)
    lake.done(row)


def file_on_its_way(lake: Lake, row: TableSpec) -> None:
    """Of newer changes, written before the erasure was asked for, and listed after."""
    lake.change(row, 5, [("U", 7, NAME), ("U", 6, "late")])
    written_before(Path(lake.layout(row).landing, "20240101-000000005.parquet"))
    lake.done(row)


def same_file_again(lake: Lake, row: TableSpec) -> None:
    folder = Path(lake.layout(row).landing)
    (folder / "20240101-000000009.parquet").write_bytes((folder / "20240101-000000001.parquet").read_bytes())
    lake.done(row)


def bad_row_again(lake: Lake, row: TableSpec) -> None:
    lake.change(row, 2, [("?", 7, NAME), ("?", 8, "bad too")], day=3)
    lake.done(row)
    lake.done(row, JobOptions(action=HandleErrors(mode="replay")))


def reload(lake: Lake, row: TableSpec) -> None:
    """By files that are older than changes which were ingested."""
    columns = {"id": pa.array([6, 7], pa.int32()), "v": ["again", NAME]}
    written_before(write(Path(lake.layout(row).landing), "LOAD00000001.parquet", pa.table(columns)))
    lake.done(replace(row, generations="one"))


def from_files(lake: Lake, row: TableSpec) -> None:
    lake.done(row, REFRESH)


WAYS_BACK = [late_file, file_on_its_way, same_file_again, bad_row_again, from_files, reload]


@pytest.mark.parametrize("way", WAYS_BACK, ids=lambda way: str(way.__name__))
def test_erased_key_is_not_loaded_again(way: Any, tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    way(lake, row)
    assert held(lake, row) == []
    assert 6 in lake.replica(row)
    is_held = lake.ledger(row).state.held is not None  # the rest of what the load lacks
    assert lake.result(row, VERIFY).details["verdict"] == ("held" if is_held else "equal")


def new_changes(lake: Lake, row: TableSpec) -> None:
    lake.change(row, 5, [("I", 7, "Grace"), ("U", 7, "Grace H"), ("U", 6, "new")])
    lake.done(row)


def new_load(lake: Lake, row: TableSpec) -> None:
    columns = {"id": pa.array([6, 7], pa.int32()), "v": ["new", "Grace H"]}
    write(Path(lake.layout(row).landing), "LOAD00000001.parquet", pa.table(columns))
    lake.done(row)


@pytest.mark.parametrize("way", [new_changes, new_load], ids=lambda way: str(way.__name__))
def test_reused_key_is_loaded_after_erasure(way: Any, tmp_path: Path) -> None:
    """Whatever comes next: late rows of before, a rebuild, an erasure of somebody else."""
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    way(lake, row)
    assert (lake.replica(row)[7], lake.replica(row)[6]) == ("Grace H", "new")
    for late in (late_file, same_file_again, from_files):
        late(lake, row)
        assert lake.replica(row)[7] == "Grace H", late
        assert [name for name in held(lake, row) if NAME in str(rows_of(lake, row, name))] == [], late
    lake.done(row, erasing(id="8"))
    assert lake.replica(row)[7] == "Grace H"
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_reused_key_can_be_erased_again(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    new_changes(lake, row)
    reported = lake.done(row, erasing(id="7")).details
    assert (reported["removed"]["replica"], held(lake, row)) == (2, [])
    from_files(lake, row)
    assert held(lake, row) == []
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_row_count_is_updated_after_erasure(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    result = lake.done(row, erasing(id="7"))
    assert (result.main.deleted, result.main.rows) == (1, 3)
    assert lake.done(row, erasing(id="7")).main.rows == 3
    lake.change(row, 6, [("I", 20, "n")])
    assert lake.done(row).main.rows == 4 == len(lake.replica(row))
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_skipped_rows_are_counted_and_the_batch_balances(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    lake.change(row, 2, [("U", 7, NAME), ("?", 7, NAME), ("U", 6, "late")], day=2)
    result = lake.done(row)
    assert {w.code: w.count for w in result.warnings} == {"ERASED_SKIPPED": 2}
    assert (result.rows_read, result.changes_written, result.quarantined) == (1, 1, 0)


def test_record_has_user_time_and_counts_but_no_key(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    reported = lake.done(row, erasing(id="7")).details
    folder = Path(lake.layout(row).erased)
    (document,) = folder.glob("*.json")
    record = json.loads(document.read_text())
    assert record == json.loads(json.dumps(reported))
    assert (record["by"], record["run_id"], document.stem) == ("eve", "run", record["hash"])
    kept = datetime.fromisoformat(record["stored_until"]) - datetime.fromisoformat(record["done_at"])
    assert kept == timedelta(days=7)
    salt = json.loads((folder.parents[1] / "salt.json").read_text())["salt"]
    assert len(salt) == 64
    assert NAME not in document.read_text()


def test_repeated_erasure_is_a_no_op(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    first = lake.done(row, erasing(id="7")).details
    versions = [DeltaTable(path).version() for path in tables_of(lake.layout(row)).values()]
    again = lake.done(row, with_asked(erasing(id="7"), asked_by="mallory")).details
    assert {**again, "until": first["until"]} == first
    assert again["until"] > first["until"]
    assert [DeltaTable(path).version() for path in tables_of(lake.layout(row)).values()] == versions


@pytest.mark.parametrize(
    "step", ["remembered", "changes", "before_images", "replica", "history", "tombstones", "errors", "leftovers"]
)
def test_kill_after_any_step_resumes(step: str, tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    assert killed_child(lake.job([row], erasing(id="7"), run_id="dies"), step).status == -9
    late_file(lake, row)  # a load comes before the second try
    assert lake.done(row, erasing(id="7")).details["run_id"] == "dies"
    assert held(lake, row) == []
    assert lake.replica(row) == {6: "late", 8: "z", 9: "n"}
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_before_images_of_the_key_are_set_to_null(tmp_path: Path) -> None:
    row = spec(before_image_prefix="BI_")
    lake = Lake(tmp_path)
    lake.load(row, 8)
    lake.done(row)
    moved = {"Op": ["U"], "seq": [5], "id": pa.array([70], pa.int32()), "v": ["moved"],
             "BI_id": pa.array([7], pa.int32()), "BI_v": [NAME]}  # fmt: skip
    write(Path(lake.layout(row).landing), "20240101-000000001.parquet", pa.table(moved))
    lake.done(row)
    reported = lake.done(row, erasing(id="7")).details
    assert reported["removed"]["before_images"] == 1
    assert held(lake, row) == []
    assert lake.replica(row)[70] == "moved"
    assert [Path(path).name for path in reported["files"]] == ["20240101-000000001.parquet", "LOAD00000001.parquet"]
    again = {**moved, "seq": [6], "v": ["again"]}
    written_before(write(Path(lake.layout(row).landing), "20240101-000000002.parquet", pa.table(again)))
    lake.done(row)
    assert (held(lake, row), lake.replica(row)[70]) == ([], "again")
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_composite_keys_of_text_and_decimals(tmp_path: Path) -> None:
    row = TableSpec(table="s.c", keys=("a", "b"), sequence_by=("seq",))
    lake = Lake(tmp_path)
    prices = pa.array([1, 1, 2], pa.decimal128(10, 2))
    columns: dict[str, Sequence[Any]] = {"a": ["x=1", "x", "x=1"], "b": prices, "v": ["1", "2", "3"]}
    write(Path(lake.layout(row).landing), "LOAD00000001.parquet", pa.table(columns))
    lake.done(row)
    lake.done(row, erasing(a="x=1", B="1.0"))
    left = DeltaTable(lake.layout(row).replica).to_pyarrow_table().column("v").to_pylist()
    assert sorted(left) == ["2", "3"]


def test_masked_key_is_given_as_source_value(tmp_path: Path) -> None:
    row = spec(mask={"id": "hash"})
    lake = Lake(tmp_path)
    lake.load(row, 8)
    lake.done(row)
    reported = lake.done(row, erasing(id="7")).details
    assert (reported["removed"]["replica"], len(reported["files"])) == (1, 1)
    lake.done(row, REFRESH)
    assert DeltaTable(lake.layout(row).replica).to_pyarrow_table().num_rows == 7


@pytest.mark.parametrize("key", [{}, {"other": "7"}, {"id": "seven"}, {"id": "7", "v": "x"}])
def test_invalid_key_is_refused_without_its_value(key: dict[str, str], tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    found = lake.run(row, erasing(**key))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "KEY_INVALID"
    assert "seven" not in found.result.error.message
    assert not Path(lake.layout(row).erased).exists()


def test_lost_salt_stops_the_table(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    (Path(lake.layout(row).erased).parents[1] / "salt.json").unlink()
    lake.change(row, 5, [("U", 7, NAME)])
    found = lake.run(row)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "ERASURE_SALT_MISSING"


def test_lost_salt_is_not_recreated_by_another_table(tmp_path: Path) -> None:
    row, other = spec(), replace(spec(), table="shop.other")
    lake = filled(tmp_path, row)
    filled(tmp_path, other)
    lake.done(row, erasing(id="7"))
    salt = Path(lake.layout(row).erased).parents[1] / "salt.json"
    kept = salt.read_bytes()
    salt.unlink()
    found = lake.run(other, erasing(id="7"))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert (found.result.error.code, salt.exists()) == ("ERASURE_SALT_MISSING", False)
    assert row.table in found.result.error.message
    salt.write_bytes(kept)
    lake.done(other, erasing(id="7"))
    assert salt.read_bytes() == kept


def test_run_records_drop_the_key(tmp_path: Path) -> None:
    """Here of `UPDATE_WITHOUT_PRIOR`."""
    row = spec()
    lake = Lake(tmp_path)
    lake.load(row)
    lake.change(row, 1, [("U", 7, NAME), ("U", 8, "a")])
    lake.done(row)
    records = [p.read_text() for p in Path(lake.layout(row).runs).glob("*.json")]
    assert any('{\\"id\\":7}' in text for text in records)
    lake.done(row, erasing(id="7"))
    records = [p.read_text() for p in Path(lake.layout(row).runs).glob("*.json")]
    assert not any('{\\"id\\":7}' in text for text in records)
    assert any('{\\"id\\":8}' in text for text in records)


def test_maintenance_removes_the_key_from_storage(tmp_path: Path) -> None:
    def long_ago() -> datetime:
        return datetime.now(UTC) - timedelta(days=8)

    row = spec()
    lake = Lake(tmp_path)
    for n in (1, 2):
        lake.change(row, n, [("I", 7, f"{NAME} {n}"), ("I", 7 + n, "other")])
        lake.done(row, clock=long_ago)
    lake.done(row, erasing(id="7"), clock=long_ago)
    week = time.time() - 8 * 86400
    for file in Path(lake.roots.lake).rglob("*.parquet"):
        os.utime(file, (week, week))
    lake.done(row, JobOptions(action=Maintain()))
    left = [f for f in Path(lake.roots.lake, "s").rglob("*.parquet") if "_delta_log" not in f.parts]
    assert left
    assert [f for f in left if NAME in str(pq.read_table(f).to_pylist())] == []


def moved_file(lake: Lake, row: TableSpec, number: int, v: str, new: int, old: int) -> None:
    columns = {"Op": ["U"], "seq": [100 * number], "id": pa.array([new], pa.int32()), "v": [v],
               "BI_id": pa.array([old], pa.int32()), "BI_v": ["before"]}  # fmt: skip
    write(Path(lake.layout(row).landing), f"20240101-{number:09d}.parquet", pa.table(columns))


def test_row_moved_to_the_key_is_not_restored_under_its_old_key(tmp_path: Path) -> None:
    row = spec(before_image_prefix="BI_")
    lake = Lake(tmp_path)
    lake.load(row, 3)
    moved_file(lake, row, 1, NAME, new=7, old=1)
    lake.done(row)
    result = lake.done(row, erasing(id="7"))
    warnings = {w.code: w.sample for w in result.warnings}
    assert warnings["ERASED_KEY_MOVED"] == ('{"id": "1"}',)
    assert (held(lake, row), sorted(lake.replica(row))) == ([], [0, 2])
    assert lake.done(row, VERIFY).details["verdict"] == "equal"
    moved_file(lake, row, 2, NAME, new=7, old=2)
    written_before(Path(lake.layout(row).landing, "20240101-000000002.parquet"))
    lake.done(row)
    assert (held(lake, row), sorted(lake.replica(row))) == ([], [0])
    lake.done(row, REFRESH)
    assert (held(lake, row), sorted(lake.replica(row))) == ([], [0])
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def test_zero_in_a_before_image_is_found(tmp_path: Path) -> None:
    row = spec(before_image_prefix="BI_")
    lake = Lake(tmp_path)
    lake.load(row, 3)
    bad = {"Op": ["?"], "seq": [1], "id": pa.array([70], pa.int32()), "v": ["x"],
           "BI_id": pa.array([0], pa.int32()), "BI_v": [NAME]}  # fmt: skip
    write(Path(lake.layout(row).landing), "20240101-000000001.parquet", pa.table(bad))
    lake.done(row)
    assert lake.done(row, erasing(id="0")).details["removed"]["errors"] == 1


def test_erased_key_stays_excluded_after_widening(tmp_path: Path) -> None:
    row = spec()
    lake = Lake(tmp_path)
    lake.load(row, 8)
    lake.done(row)
    lake.done(row, erasing(id="7"))
    ids = pa.array([7, 8], pa.decimal128(14, 2))
    changes: dict[str, Any] = {"Op": ["I", "I"], "seq": [1, 2], "id": ids, "v": [NAME, "new"]}
    written_before(write(Path(lake.layout(row).landing), "20240101-000000001.parquet", pa.table(changes)))
    result = lake.done(row)
    assert result.schema_changes
    assert {w.code: w.count for w in result.warnings}["ERASED_SKIPPED"] == 1
    assert sorted(map(int, lake.replica(row))) == [0, 1, 2, 3, 4, 5, 6, 8]


def test_absent_key_is_reported_and_excluded(tmp_path: Path) -> None:
    row = spec()
    lake = Lake(tmp_path)
    lake.load(row, 3)
    lake.done(row)
    result = lake.done(row, erasing(id="7"))
    assert [w.code for w in result.warnings] == ["ERASED_NOTHING"]
    lake.change(row, 1, [("I", 7, NAME)])
    written_before(Path(lake.layout(row).landing, "20240101-000000001.parquet"))
    assert {w.code for w in lake.done(row).warnings} == {"ERASED_SKIPPED"}


def test_removed_erasure_document_allows_the_key(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    key_hash = lake.done(row, erasing(id="7")).details["hash"]
    Path(lake.layout(row).erased, f"{key_hash}.json").unlink()
    lake.change(row, 5, [("I", 7, "somebody else")])
    lake.done(row)
    assert lake.replica(row)[7] == "somebody else"


def test_archives_and_results_drop_the_key(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    shown = [RunWarning(code="SEQUENCE_TIE", message="ties", sample=('{"id":7}', '{"id":8}'))]
    lines = [to_json(JobResult(table="s.t", status="succeeded", warnings=tuple(shown), run_id=f"r{n}")) for n in (1, 2)]
    archive = Path(lake.layout(row).runs, "archive", "a_b.jsonl")
    answer = Path(lake.roots.lake, "_gddl", "results", "r1", result_name("s.t"))
    for path, text in ((archive, "\n".join(lines)), (answer, lines[0])):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    lake.done(row, erasing(id="7"))
    for path, count in ((archive, 2), (answer, 1)):
        assert [json.loads(line)["warnings"][0]["sample"] for line in path.read_text().split("\n")] == [
            ['{"id":8}']
        ] * count


def test_results_of_verify_and_errors_drop_the_key(tmp_path: Path) -> None:
    """Jobs that ran elsewhere: keys that differ, and rows of the quarantine, are in their details."""
    row = spec()
    lake = filled(tmp_path, row)
    listed = lake.done(row, JobOptions(action=HandleErrors()))
    DeltaTable(lake.layout(row).replica).delete("id IN (7, 8)")
    compared = lake.run(row, VERIFY)
    assert isinstance(compared, TableOutcome)
    for number, result in enumerate((listed, compared.result)):
        answers = ResultStore(Storage(), join(lake.roots.lake, "_gddl", "results", f"r{number}"))
        answers.put(result)
    lake.done(row, erasing(id="7"))
    read = [Path(lake.roots.lake, "_gddl", "results", f"r{n}", result_name("s.t")).read_text() for n in (0, 1)]
    assert [NAME in text or '\\"id\\":7' in text for text in read] == [False, False]
    assert [len(json.loads(read[0])["details"]["rows"]), len(json.loads(read[1])["details"]["keys"])] == [1, 1]


_TIE = RunWarning(code="SEQUENCE_TIE", message="ties", sample=('{"id":7}', '{"id":8}'))
TIED = to_json(JobResult(table="s.t", status="succeeded", warnings=(_TIE,), run_id="r"))
"""A record of a run that names two keys."""


class Moving(Storage):
    """Puts a record into an archive just before it is read, as a load may."""

    def read(self, path: str) -> bytes:
        if path.endswith("-tied.json") and Path(path).exists():
            archive = Path(path).parent / "archive" / "a_b.jsonl"
            archive.parent.mkdir()
            Path(path).rename(archive)
        return super().read(path)


def test_record_archived_during_erasure_drops_the_key(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    runs = Path(lake.layout(row).runs)
    (runs / "20200101T000000000000-tied.json").write_text(TIED)
    job = lake.job([row], erasing(id="7"))
    found = attempt(TableRun(job=job, spec=row, runtime=Runtime(storage=Moving(), spark=NoSpark())), totals_of(job))
    assert isinstance(found, TableOutcome)
    assert found.result.error is None
    assert json.loads((runs / "archive" / "a_b.jsonl").read_text())["warnings"][0]["sample"] == ['{"id":8}']


class Erasing(Storage):
    """Lets a key be erased between the reading of records and the writing of their archive."""

    def __init__(self, erase: Callable[[], object]) -> None:
        super().__init__()
        self.erase: Callable[[], object] | None = erase

    def write(self, path: str, data: bytes) -> None:
        if self.erase is not None:
            erase, self.erase = self.erase, None
            erase()
        super().write(path, data)


def test_archive_that_is_written_during_an_erasure_lacks_the_key(tmp_path: Path) -> None:
    row = spec()
    lake = filled(tmp_path, row)
    runs = Path(lake.layout(row).runs)
    for number in range(60):
        (runs / f"202001{number:02d}T000000000000-tied.json").write_text(TIED)
    compact(Erasing(lambda: lake.done(row, erasing(id="7"))), str(runs))
    texts = [path.read_text() for path in runs.rglob("*-tied*")]
    assert sum(text.count('{\\"id\\":8}') for text in texts) == 60
    assert not any('{\\"id\\":7}' in text for text in texts)


def test_load_file_that_is_written_again_during_an_erasure_brings_a_reused_key(tmp_path: Path) -> None:
    lake, row = Lake(tmp_path), spec()
    lake.load(row, 9)
    lake.done(row)
    path = Path(lake.layout(row).landing) / "LOAD00000001.parquet"
    reused = pa.table({"id": pa.array([7], pa.int32()), "v": ["somebody else"]})
    storage = Growing(str(path), "listed", lambda: pq.write_table(reused, path))
    job = lake.job([row], erasing(id="7"))
    found = attempt(TableRun(job=job, spec=row, runtime=Runtime(storage=storage, spark=NoSpark())), totals_of(job))
    assert isinstance(found, TableOutcome)
    assert found.result.error is None
    assert 7 not in lake.replica(row)
    lake.done(row)
    assert lake.replica(row)[7] == "somebody else"


def test_stored_until_follows_the_table_setting(tmp_path: Path) -> None:
    row = spec(table_properties={"delta.deletedFileRetentionDuration": "interval 2 weeks 1 day"})
    lake = filled(tmp_path, row)
    record = lake.done(row, erasing(id="7")).details
    kept = datetime.fromisoformat(record["stored_until"]) - datetime.fromisoformat(record["done_at"])
    assert kept == timedelta(days=15)


def test_table_without_keys_is_refused(tmp_path: Path) -> None:
    row = TableSpec(table="s.t", keys=(), sequence_by=("seq",))
    lake = Lake(tmp_path)
    lake.load(row)
    lake.done(row)
    found = lake.run(row, erasing(id="1"))
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert found.result.error.code == "TABLE_WITHOUT_KEYS"


def test_log_drops_the_key_after_retention(tmp_path: Path) -> None:
    """Least and greatest keys of files stand in commits; 7 is the greatest key of some."""
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    paths = [path for path in tables_of(lake.layout(row)).values() if DeltaTable.is_deltatable(path)]
    assert any(tells_of_seven(path) for path in paths)
    rows = {path: sorted(map(str, DeltaTable(path).to_pyarrow_table().to_pylist())) for path in paths}
    for days in (8, 2):  # first the checkpoints, and once they are old what they replace
        age(paths, days)
        kept = lake.done(row, JobOptions(action=Maintain())).details
    assert kept["log_files_removed"] > 0
    assert [path for path in paths if tells_of_seven(path)] == []
    assert rows == {path: sorted(map(str, DeltaTable(path).to_pyarrow_table().to_pylist())) for path in paths}
    lake.change(row, 6, [("I", 10, "after")])
    lake.done(row)
    assert lake.replica(row)[10] == "after"
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


@pytest.mark.parametrize(
    "name", ["_sidecars/0c7b.parquet", "_staged_commits/00000000000000000009.1f.json", "00000000000000000002.new"]
)
def test_log_with_unknown_files_is_unchanged(tmp_path: Path, name: str) -> None:
    """A sidecar has the statistics of a checkpoint, and is needed by it."""
    row = spec()
    lake = filled(tmp_path, row)
    lake.done(row, erasing(id="7"))
    paths = [path for path in tables_of(lake.layout(row)).values() if DeltaTable.is_deltatable(path)]
    strange = Path(lake.layout(row).replica, "_delta_log", name)
    strange.parent.mkdir(exist_ok=True)
    strange.write_text("")
    for days in (8, 2):
        age(paths, days)
        result = lake.done(row, JobOptions(action=Maintain()))
    (warning,) = result.warnings
    assert (warning.code, warning.count, warning.sample) == ("LOG_FILES_UNKNOWN", 1, (f"replica: {name}",))
    assert result.details["logs_kept"] == {"replica": (name,)}
    assert result.details["log_files_removed"] > 0, "logs of the other tables"
    assert Path(lake.layout(row).replica, "_delta_log", "00000000000000000000.json").exists()
    assert lake.done(row, VERIFY).details["verdict"] == "equal"


def age(paths: Sequence[str], days: int) -> None:
    """As if all there is in the logs were so much older."""
    for file in (f for path in paths for f in Path(path, "_delta_log").iterdir()):
        then = file.stat().st_mtime - days * 86400
        os.utime(file, (then, then))


def tells_of_seven(path: str) -> bool:
    """Whether the log has the key among its statistics, in commits or checkpoints."""
    found = []
    for file in Path(path, "_delta_log").iterdir():
        text = file.read_text() if file.suffix == ".json" else ""
        if file.suffix == ".parquet":
            text = json.dumps(pq.read_table(file).to_pylist(), default=str)
        found.append(any(f'"id\\": {seven}' in text or f'"id\\":{seven}' in text for seven in ("7,", "7}")))
    return any(found)


@pytest.mark.parametrize(
    ("key", "named"), [("the id", "the id"), ("the id", "the_id"), ("__id", "__id"), ("__id", "__id_source")]
)
@pytest.mark.parametrize("masked", [False, True])
def test_key_whose_column_lands_under_another_name(key: str, named: str, masked: bool, tmp_path: Path) -> None:
    """By either name, in the quarantine too, and where it is stored as a hash; and it does not come back."""
    row = replace(spec_of(settle="0s", mask={key: "hash"} if masked else {}), keys=(key,))
    lake = Lake(tmp_path)
    columns = {"Op": ["I", "I", "?"], "seq": [1, 2, 3], key: ["1", "2", "2"], "v": ["x", NAME, NAME]}
    write(Path(lake.layout(row).landing), "20240101-000000001.parquet", pa.table(columns))
    lake.done(row)
    lake.done(row, erasing(**{named: "2"}))
    assert held(lake, row) == []
    again = Path(lake.layout(row).landing, "20240101-000000001.parquet")
    again.unlink()
    write(again.parent, again.name, pa.table({**columns, "seq": [1, 2, 3]}))
    lake.done(row)
    assert held(lake, row) == []
    kept = DeltaTable(lake.layout(row).replica).to_pyarrow_table().to_pylist()
    assert [r["v"] for r in kept] == ["x"]
