"""The short listings by which a job that goes on hears of files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.continuous.streams import LOG_SECONDS, CapturedLogs, ListedFiles

WRITTEN = datetime(2026, 1, 1, 12, tzinfo=UTC).timestamp()
SPEC = TableSpec(table="s.a", keys=("id",), trigger="2s")


@dataclass
class Clocks:
    """The one on the wall, and the one that only goes on."""

    wall: datetime = datetime(2026, 1, 1, 12, tzinfo=UTC)
    now: float = 0.0

    def later(self, seconds: float, *, set_back: timedelta = timedelta(0)) -> None:
        self.now += seconds
        self.wall += timedelta(seconds=seconds) - set_back


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def files(tmp_path: Path, clocks: Clocks) -> Iterator[ListedFiles]:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    found = ListedFiles(roots, Storage(), lambda: clocks.wall, lambda: clocks.now)
    found.follow([SPEC])
    yield found
    found.close()


def land(tmp_path: Path, name: str) -> None:
    path = Path(Layout.of(Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake")), SPEC).landing, name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("x")


def test_clock_set_back_delays_no_poll(files: ListedFiles, tmp_path: Path, clocks: Clocks) -> None:
    land(tmp_path, "20260101-115900000.parquet")
    assert list(files.news()) == ["s.a"]
    clocks.later(2)
    assert list(files.news()) == []
    clocks.later(2, set_back=timedelta(hours=3))
    land(tmp_path, "20260101-120003000.parquet")
    assert list(files.news()) == ["s.a"]


def test_folders_are_polled_by_trigger_and_files_reported_once(
    files: ListedFiles, tmp_path: Path, clocks: Clocks
) -> None:
    files.news()
    land(tmp_path, "20260101-115900000.parquet")
    clocks.later(1.9)
    assert list(files.news()) == []
    clocks.later(0.1)
    assert list(files.news()) == ["s.a"]
    for number in range(20):
        clocks.later(2)
        land(tmp_path, f"20260101-12{number:02d}00000.parquet")
        assert list(files.news()) == ["s.a"]
        assert list(files.news()) == []


def test_a_file_is_reported_once_it_has_settled(tmp_path: Path, clocks: Clocks) -> None:
    """Reported while it is written, it would be left by the table's run, and wait for the next poll of all tables."""
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    files = ListedFiles(roots, Storage(), lambda: clocks.wall, lambda: clocks.now, environ={"GDDL_SETTLE": "3s"})
    files.follow([SPEC])
    land(tmp_path, "20260101-115900000.parquet")
    (path,) = tmp_path.rglob("*.parquet")
    for seconds, reported in ((0, []), (2, []), (2, ["s.a"]), (2, [])):
        clocks.later(seconds)
        os.utime(path, (WRITTEN, WRITTEN))
        assert list(files.news()) == reported
    files.close()


def test_young_files_do_not_make_polls_list_everything(tmp_path: Path, clocks: Clocks) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    files = ListedFiles(roots, Storage(), lambda: clocks.wall, lambda: clocks.now, environ={"GDDL_SETTLE": "3s"})
    files.follow([SPEC])
    for _ in range(60):
        clocks.later(60)
        land(tmp_path, f"{clocks.wall:%Y%m%d-%H%M%S}000.parquet")
        newest = max(tmp_path.rglob("*.parquet"))
        os.utime(newest, (clocks.wall.timestamp(),) * 2)
        files.news()
    (folder,) = files._folders.values()
    assert folder.newest is not None
    assert len(folder.seen) < 20
    files.close()


def test_a_wrong_settle_is_for_the_table_s_run_to_report(tmp_path: Path, clocks: Clocks) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    files = ListedFiles(roots, Storage(), lambda: clocks.wall, lambda: clocks.now, environ={"GDDL_SETTLE": "soon"})
    files.follow([SPEC])
    land(tmp_path, "20260101-115900000.parquet")
    assert list(files.news()) == ["s.a"]
    files.close()


def test_one_table_of_each_source_reads_its_log_at_a_time(tmp_path: Path, clocks: Clocks) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    logs = CapturedLogs(roots, Storage(), lambda: clocks.wall, lambda: clocks.now)
    logs.follow(
        [replace(SPEC, table=table, source=source) for table, source in (("s.a", "x"), ("s.b", "x"), ("s.c", "y"))]
    )
    found = []
    for _ in range(3):
        found.append((sorted(logs.news()), list(logs.news())))
        clocks.later(LOG_SECONDS)
    assert found == [(["s.a", "s.c"], []), (["s.b", "s.c"], []), (["s.a", "s.c"], [])]
    land(tmp_path, "LOAD00000001.parquet")
    clocks.later(LOG_SECONDS / 2)
    assert "s.a" in logs.news(), "files that another table's run has written"
    logs.close()
