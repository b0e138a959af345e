"""Files of the landing folder that were ingested and are old are deleted or moved; the tables never notice."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

from airflow_gddl.contract.actions import Maintain, Rebuild
from airflow_gddl.contract.row_checks import check_table
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.contract.table_spec import LandingRetention
from airflow_gddl.stores import Storage, StoredObject
from spark_jobs.batch import notices
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write
from tests.one_task.test_maintenance import MAINTAIN, VERIFY, rows
from tests.spark.children import killed_child

DELETE = LandingRetention(after="30d")
LOAD = "LOAD00000001.parquet"


def change_file(number: int) -> str:
    return f"20240101-{number:09d}.parquet"


def landed(lake: Lake, spec: TableSpec) -> set[str]:
    folder = Path(lake.layout(spec).landing)
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def age(lake: Lake, spec: TableSpec, days: float, *names: str) -> None:
    """Let files be as old as that; all where none is named."""
    for name in names or landed(lake, spec):
        then = time.time() - days * 86_400
        os.utime(Path(lake.layout(spec).landing, name), (then, then))


def filled(root: Path, retention: LandingRetention, **fields: Any) -> tuple[Lake, TableSpec]:
    """A load and four change files, all of them old and ingested, the last one the newest."""
    lake, spec = Lake(root), spec_of(landing_retention=retention, settle="0s", **fields)
    lake.load(spec, 5)
    for number in range(1, 5):
        lake.change(spec, number, [("U", 1, f"v{number}"), ("I", 100 + number, "new")])
    age(lake, spec, 50)
    age(lake, spec, 40, change_file(4))
    lake.done(spec)
    return lake, spec


def removed(lake: Lake, spec: TableSpec, options: JobOptions = MAINTAIN) -> int:
    return int(lake.done(spec, options).details["landing"]["removed"])


def test_old_changes_are_deleted_and_the_rest_stays(tmp_path: Path) -> None:
    lake, spec = filled(tmp_path, DELETE)
    replica = rows(lake.layout(spec).replica)
    assert removed(lake, spec, JobOptions(action=Maintain(dry_run=True))) == 3
    assert len(landed(lake, spec)) == 5
    assert removed(lake, spec) == 3
    assert landed(lake, spec) == {LOAD, change_file(4)}
    assert removed(lake, spec) == 0
    assert lake.done(spec).status == "skipped"
    assert lake.done(spec, JobOptions(full_listing=True)).status == "skipped"
    assert rows(lake.layout(spec).replica) == replica
    lake.change(spec, 9, [("U", 1, "later")])
    assert lake.done(spec).changes_written == 1
    assert lake.done(spec, VERIFY).details["verdict"] == "equal"


def test_a_large_folder_is_reported_until_old_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, spec = filled(tmp_path, DELETE)
    monkeypatch.setattr(notices, "LARGE_FOLDER", 5)
    for options in (JobOptions(), JobOptions(full_listing=True)):
        result = lake.done(spec, options)
        assert [(one.code, one.count) for one in result.warnings] == [("FOLDER_LARGE", 5)]
    assert removed(lake, spec) == 3
    assert lake.done(spec, JobOptions(full_listing=True)).warnings == ()


def test_a_rebuild_afterwards_is_equal(tmp_path: Path) -> None:
    lake, spec = filled(tmp_path, DELETE, history=True)
    before = [rows(path) for path in (lake.layout(spec).replica, lake.layout(spec).history)]
    assert removed(lake, spec) == 3
    lake.done(spec, JobOptions(action=Rebuild()))
    replica, history = (rows(path) for path in (lake.layout(spec).replica, lake.layout(spec).history))
    assert [len(replica), len(history)] == [len(one) for one in before]
    assert lake.replica(spec)[1] == "v4"


def test_what_is_not_ingested_stays(tmp_path: Path) -> None:
    """A new file, another version of a known one, and one with rows in quarantine, however old they are."""
    lake, spec = filled(tmp_path, DELETE)
    lake.change(spec, 5, [("U", None, "no key"), ("I", 105, "new")])
    age(lake, spec, 50, change_file(5))
    assert lake.done(spec).quarantined == 1
    lake.change(spec, 6, [("I", 106, "unread")])
    lake.change(spec, 2, [("U", 1, "written again")])
    age(lake, spec, 45, change_file(6), change_file(2))
    result = lake.done(spec, MAINTAIN)
    assert landed(lake, spec) == {LOAD, *(change_file(number) for number in (2, 4, 5, 6))}
    assert [(one.code, one.count) for one in result.warnings] == [("LANDING_FILES_KEPT", 1)]
    assert lake.done(spec).files == 2


def test_load_files_stay_until_a_later_load_has_replaced_them(tmp_path: Path) -> None:
    """A reload that is one file shorter: the file of the load before is removed once the rows that it alone has are."""
    lake, spec = Lake(tmp_path), spec_of(landing_retention=DELETE, settle="0s", sweep_after="0s", sweep_limit=1.0)
    second = "LOAD00000002.parquet"
    lake.load(spec, 5)
    write(Path(lake.layout(spec).landing), second, pa.table({"id": pa.array([7], pa.int32()), "v": ["of the second"]}))
    age(lake, spec, 60)
    lake.done(spec)
    assert removed(lake, spec) == 0
    lake.load(spec, 4)
    age(lake, spec, 50, LOAD)
    assert removed(lake, spec) == 0, "not ingested yet"
    lake.done(spec)
    assert sorted(lake.replica(spec)) == [0, 1, 2, 3]
    assert removed(lake, spec) == 1
    assert landed(lake, spec) == {LOAD}
    assert lake.done(spec, JobOptions(full_listing=True)).status == "skipped"


def moving(root: Path) -> LandingRetention:
    return LandingRetention(after="30d", action="move", to=str(root / "archive"))


def archived(root: Path) -> set[str]:
    folder = root / "archive/default/s/t/generation-1"
    return {path.name for path in folder.rglob("*") if path.is_file()}


def test_files_are_moved_with_their_content(tmp_path: Path) -> None:
    lake, spec = filled(tmp_path, moving(tmp_path))
    content = Path(lake.layout(spec).landing, change_file(1)).read_bytes()
    assert removed(lake, spec) == 3
    assert archived(tmp_path) == {change_file(number) for number in (1, 2, 3)}
    assert (tmp_path / "archive/default/s/t/generation-1" / change_file(1)).read_bytes() == content


def test_another_file_at_the_new_place_is_not_replaced(tmp_path: Path) -> None:
    lake, spec = filled(tmp_path, moving(tmp_path))
    other = tmp_path / "archive/default/s/t/generation-1" / change_file(2)
    other.parent.mkdir(parents=True)
    other.write_bytes(b"of somebody else")
    result = lake.done(spec, MAINTAIN)
    assert [(one.code, one.sample) for one in result.warnings] == [
        ("LANDING_FILES_KEPT", (f"{lake.layout(spec).landing}/{change_file(2)}",))
    ]
    assert (other.read_bytes(), change_file(2) in landed(lake, spec)) == (b"of somebody else", True)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_kill_between_copy_and_deletion_loses_nothing(copies: int, tmp_path: Path) -> None:
    lake, spec = filled(tmp_path, moving(tmp_path))
    assert killed_child(lake.job([spec], MAINTAIN, run_id="dies"), "copied", copies).status == -9
    assert len(landed(lake, spec)) == 5
    assert len(archived(tmp_path)) == copies
    assert removed(lake, spec) == 3
    assert archived(tmp_path) == {change_file(number) for number in (1, 2, 3)}


@pytest.mark.parametrize("to", ["landing/old", "lake/old", "landing"])
def test_a_place_within_landing_or_lake_is_refused(to: str, tmp_path: Path) -> None:
    retention = LandingRetention(after="30d", action="move", to=str(tmp_path / to))
    lake, spec = filled(tmp_path, retention)
    before = landed(lake, spec)
    found = lake.run(spec, MAINTAIN)
    assert isinstance(found, TableOutcome)
    assert found.result.error is not None
    assert (found.result.error.code, landed(lake, spec)) == ("LANDING_RETENTION_REFUSED", before)


@pytest.mark.parametrize(
    ("retention", "problem"),
    [
        (LandingRetention(after="soon"), ("FIELD_VALUE", "after")),
        (LandingRetention(after="2h"), ("FIELD_VALUE", "after")),
        (LandingRetention(after="2d", action="move"), ("FIELD_VALUE", "to")),
        (LandingRetention(after="2d", to="/archive"), ("FIELD_VALUE", "to")),
        (LandingRetention(after="2d", action="move", to="/${HOME}"), ("FIELD_VALUE", "to")),
    ],
)
def test_bad_values_are_refused(retention: LandingRetention, problem: tuple[str, str]) -> None:
    found = [(one.code, one.path[-1]) for one in check_table(spec_of(landing_retention=retention))]
    assert found == [problem]


@dataclass
class Rewriting(Storage):
    """Calls `act` once, as soon as the landing folder was listed or a file of it was copied."""

    when: Literal["listed", "copied"]
    act: Callable[[], object] | None

    def __post_init__(self) -> None:
        super().__init__()

    def _meanwhile(self, when: str, path: str) -> None:
        if self.act is not None and when == self.when and "/landing/" in path:
            act, self.act = self.act, None
            act()

    def list(self, folder: str, after: str = "", within: str | None = None) -> Iterator[StoredObject]:
        yield from super().list(folder, after, within)
        self._meanwhile("listed", folder)

    def copy(self, path: str, target: str) -> None:
        super().copy(path, target)
        self._meanwhile("copied", path)


@pytest.mark.parametrize(("action", "when"), [("delete", "listed"), ("move", "listed"), ("move", "copied")])
@pytest.mark.parametrize("number", [1, 2])
def test_file_that_is_written_again_meanwhile_is_not_removed(
    number: int, action: str, when: Literal["listed", "copied"], tmp_path: Path
) -> None:
    lake, spec = filled(tmp_path, DELETE if action == "delete" else moving(tmp_path))
    storage = Rewriting(when, lambda: lake.change(spec, number, [("I", 200, "written again")]))
    job = lake.job([spec], MAINTAIN)
    found = attempt(TableRun(job=job, spec=spec, runtime=Runtime(storage=storage, spark=NoSpark())), totals_of(job))
    assert isinstance(found, TableOutcome)
    assert [(one.code, one.count) for one in found.result.warnings] == [("LANDING_FILES_KEPT", 1)]
    assert (storage.act, found.result.details["landing"]["removed"]) == (None, 2)
    lake.done(spec)
    assert lake.replica(spec)[200] == "written again"
    age(lake, spec, 50, change_file(number))
    lake.done(spec)
    assert removed(lake, spec) == 1
