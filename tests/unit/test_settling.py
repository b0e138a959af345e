"""Files that are still being written are left until they rest."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.discovery import Settling, Wait, settle_of
from spark_jobs.plan.planned_batch import LandedFile
from tests.harness.landed import entry

AFTER = timedelta(seconds=3)
NOW = datetime(2024, 5, 1, 12, tzinfo=UTC)
STORAGE = Storage()


def file_of(folder: Path, name: str, age: float) -> LandedFile:
    """A file on disk that was last written `age` seconds before `NOW`."""
    path = folder / name
    path.write_text(name)
    moment = (NOW - timedelta(seconds=age)).timestamp()
    os.utime(path, (moment, moment))
    found = STORAGE.stat(str(path))
    assert found is not None
    return LandedFile(
        path=found.path, kind="change", format="csv", order=(name,), size=found.size, etag=found.etag,
        modified=found.modified_at,
    )  # fmt: skip


def names(paths: Sequence[str]) -> list[str]:
    return [Path(path).name for path in paths]


def split(
    files: Sequence[LandedFile], wait: Wait = "never", sleep: Callable[[float], None] | None = None
) -> tuple[list[str], list[str]]:
    """Names of the files that are taken, and of those that are left."""

    def refuse(_: float) -> None:
        raise AssertionError("it waits")

    settling = Settling(after=AFTER, wait=wait, sleep=sleep or refuse)
    taken, left = settling.split(STORAGE, files, {}, NOW)
    return names([file.path for file in taken]), names(left)


def test_settled_files_are_ingested_and_newer_ones_left(tmp_path: Path) -> None:
    ages = {"old": 60.0, "rests": 3.0, "young": 2.9, "new": 0.0, "ahead": -3600.0}
    files = [file_of(tmp_path, name, age) for name, age in ages.items()]
    assert split(files) == (["old", "rests"], ["ahead", "new", "young"])


def test_known_files_need_no_settling(tmp_path: Path) -> None:
    known = file_of(tmp_path, "known", 1)
    changed = file_of(tmp_path, "changed", 1)
    rows = {known.path: entry(known), changed.path: entry(replace(changed, etag="before"))}
    taken, left = Settling(after=AFTER).split(STORAGE, [known, changed], rows, NOW)
    assert (names([f.path for f in taken]), names(left)) == (["known"], ["changed"])


def test_idle_run_waits_until_the_newest_file_settles(tmp_path: Path) -> None:
    files = [file_of(tmp_path, "a", 2), file_of(tmp_path, "b", 1)]
    waited: list[float] = []
    assert split(files, "idle", waited.append) == (["a", "b"], [])
    assert waited == [2.0]
    waited.clear()
    assert split([file_of(tmp_path, "ahead", -3600)], "idle", waited.append) == (["ahead"], [])
    assert waited == [3.0], "a clock that is ahead costs no more than the time itself"


@pytest.mark.parametrize("wait", ["idle", "always"])
def test_no_run_waits_longer_than_a_minute(tmp_path: Path, wait: Wait) -> None:
    """A row may say a day; its worker has other tables to load."""
    waited: list[float] = []
    found = Settling(after=timedelta(days=1), wait=wait, sleep=waited.append).split(
        STORAGE, [file_of(tmp_path, "a", 2)], {}, NOW
    )
    assert (found[0], names(found[1]), waited) == ([], ["a"], [])
    near = [file_of(tmp_path, "b", 86_400 - 59)]
    Settling(after=timedelta(days=1), wait=wait, sleep=waited.append).split(STORAGE, near, {}, NOW)
    assert waited == [59.0]


def test_growing_file_is_left(tmp_path: Path) -> None:
    files = [file_of(tmp_path, "grows", 1), file_of(tmp_path, "goes", 1), file_of(tmp_path, "rests", 1)]

    def write_on(_: float) -> None:
        with (tmp_path / "grows").open("a") as file:
            file.write("more")
        (tmp_path / "goes").unlink()

    assert split(files, "idle", write_on) == (["rests"], ["goes", "grows"])


def test_run_with_other_files_waits_only_for_a_stream(tmp_path: Path) -> None:
    files = [file_of(tmp_path, "old", 60), file_of(tmp_path, "young", 1)]
    waited: list[float] = []
    assert split(files, "idle") == (["old"], ["young"])
    assert split(files, "always", waited.append) == (["old", "young"], [])
    assert waited == [2.0]


@pytest.mark.parametrize(
    ("settle", "landing", "environ", "expected"),
    [
        (None, "/landing", {}, 3),
        (None, "s3://bucket/landing", {}, 0),
        (None, "/landing", {"GDDL_SETTLE": "0s"}, 0),
        (None, "s3://bucket/landing", {"GDDL_SETTLE": "9s"}, 0),
        ("10s", "/landing", {"GDDL_SETTLE": "0s"}, 10),
        ("0s", "/landing", {}, 0),
        ("5s", "s3://bucket/landing", {}, 5),
    ],
)
def test_settle_time_by_row_then_deployment_then_store(
    settle: str | None, landing: str, environ: dict[str, str], expected: int
) -> None:
    spec = TableSpec(table="s.t", keys=("id",), settle=settle)
    assert settle_of(spec, landing, environ) == timedelta(seconds=expected)
