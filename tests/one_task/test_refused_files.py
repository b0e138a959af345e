"""Files that must not be read, by name or as links out of the landing root, are reported; everything else is loaded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_gddl.contract.actions import Erase
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.landing.polling import poll
from airflow_gddl.stores import open_store
from tests.harness.lake import Lake, spec_of

BAD_NAMES = (
    b"LOAD\xff.parquet",
    b"20240101-00000000\xe9.parquet",
    b"20240102-000000001.parquet.\xfc",
    b"\xff/a.parquet",
)
EVENT = {"op": "c", "after": {"id": 1, "v": "a"}, "source": {"connector": "postgresql", "lsn": 1, "ts_ms": 1}}


def lay(folder: Path, name: bytes, content: bytes = b"x") -> None:
    path = folder / os.fsdecode(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def refused(result: JobResult) -> tuple[int, tuple[str, ...]]:
    (found,) = [(w.count, w.sample) for w in result.warnings if w.code == "FILES_REFUSED"]
    return found


def test_names_with_invalid_utf8(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    for name in BAD_NAMES:
        lay(Path(lake.layout(spec).landing), name)
    count, sample = refused(lake.done(spec))
    assert count == 4
    assert "LOAD\\xff.parquet: its name is not UTF-8" in sample
    assert lake.replica(spec) == {0: "load 0", 1: "load 1", 2: "load 2"}
    assert refused(lake.done(spec))[0] == 4  # for as long as they lie there
    erased = lake.done(spec, JobOptions(action=Erase(key={"id": "1"}, asked_by="eve")))
    assert [w.code for w in erased.warnings] == ["ERASED_IN_FILES"]


def test_no_file_name_stops_other_tables(tmp_path: Path) -> None:
    """The job as it is started, its results on standard output."""
    lake = Lake(tmp_path)
    good, dms = spec_of("good"), spec_of("dms")
    debezium = TableSpec(table="s.debezium", keys=("id",), dialect="debezium")
    for spec in (good, dms):
        lake.load(spec)
    lay(Path(lake.layout(debezium).landing), b"t+0+0000000000.json", json.dumps(EVENT).encode())
    for spec, name in ((dms, BAD_NAMES[0]), (debezium, b"t+0+00000000\xff0.json")):
        lay(Path(lake.layout(spec).landing), name)
    order = tmp_path / "spec.json"
    order.write_text(to_json(lake.job([good, dms, debezium])))
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    found = {
        r["table"]: (r["status"], [w["code"] for w in r["warnings"]]) for r in map(json.loads, done.stdout.splitlines())
    }
    assert (done.returncode, found) == (0, {
        "s.good": ("succeeded", []),
        "s.dms": ("succeeded", ["FILES_REFUSED"]),
        "s.debezium": ("succeeded", ["FILES_REFUSED"]),
    }), done.stderr  # fmt: skip


def test_airflow_polls_a_folder_with_such_names(tmp_path: Path) -> None:
    lay(tmp_path / "s" / "t", BAD_NAMES[0])
    found = poll(open_store(), str(tmp_path), ["s.t"])
    assert found["s.t"].files == 1


@pytest.mark.parametrize("inside", [True, False])
def test_links_are_followed_only_within_the_landing_root(inside: bool, tmp_path: Path) -> None:
    lake, spec, other = Lake(tmp_path), spec_of(), spec_of("secret")
    lake.load(other)
    source = Path(lake.layout(other).landing)
    if not inside:
        source = source.rename(tmp_path / "elsewhere")
    folder = Path(lake.layout(spec).landing)
    folder.mkdir(parents=True)
    (folder / "LOAD00000001.parquet").symlink_to(source / "LOAD00000001.parquet")
    (folder / "2024").symlink_to(source)
    result = lake.done(spec)
    if inside:
        assert (len(lake.replica(spec)), result.warnings) == (3, ())
    else:
        assert result.main.rows is None
        count, sample = refused(result)
        assert (count, sorted(sample)) == (2, [
            "2024: a link that leaves the landing folder",
            "LOAD00000001.parquet: a link that leaves the landing folder",
        ])  # fmt: skip


def test_link_into_a_folder_whose_name_begins_alike(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    folder = Path(lake.layout(spec).landing)
    beside = tmp_path / "landing-of-others"
    beside.mkdir()
    folder.rename(beside / "t")
    folder.mkdir()
    (folder / "LOAD00000001.parquet").symlink_to(beside / "t" / "LOAD00000001.parquet")
    result = lake.done(spec)
    assert result.main.rows is None
    assert refused(result)[0] == 1


def test_a_table_folder_that_links_outside_is_refused(tmp_path: Path) -> None:
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    folder = Path(lake.layout(spec).landing)
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    assert refused(lake.done(spec)) == (1, (".: a link that leaves the landing folder",))


def test_a_landing_root_may_be_a_link(tmp_path: Path) -> None:
    """As git-sync and mounts make them: it is the root that counts."""
    lake, spec = Lake(tmp_path), spec_of()
    lake.load(spec)
    (tmp_path / "landing").rename(tmp_path / "disk")
    (tmp_path / "landing").symlink_to(tmp_path / "disk")
    assert lake.done(spec).warnings == ()
    assert len(lake.replica(spec)) == 3
