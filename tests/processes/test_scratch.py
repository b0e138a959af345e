"""Temporary folders of processes that were killed do not stay."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from airflow_gddl.stores import scratch

MAKES = """
import sys, time
from pathlib import Path
from airflow_gddl.stores import scratch
folder = scratch.make("test", Path(sys.argv[1]))
(folder / "data").write_text("x")
print(folder, flush=True)
time.sleep(600)
"""


def test_folders_of_killed_processes_are_removed_and_those_in_use_stay(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MAKES, str(tmp_path)]
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as killed,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running,
    ):
        try:
            assert killed.stdout is not None
            assert running.stdout is not None
            stale, used = Path(killed.stdout.readline().strip()), Path(running.stdout.readline().strip())
            own = scratch.make("own", tmp_path)
            assert {stale, used, own} == set(tmp_path.iterdir())
            os.kill(killed.pid, signal.SIGKILL)
            killed.wait()
            another = scratch.make("own", tmp_path)
            assert {used, own, another} == set(tmp_path.iterdir())
            assert (used / "data").read_text() == "x"
        finally:
            killed.kill()
            running.kill()
    for folder in (own, another):
        scratch.remove(folder)
    assert list(tmp_path.iterdir()) == [used]


def test_nothing_else_is_removed(tmp_path: Path) -> None:
    """Folders of other programs, and those that were given another name."""
    for name in ("gddl-logs-x", f"{scratch.PREFIX}without-an-owner", "other"):
        (tmp_path / name).mkdir()
    kept = scratch.make("jars", tmp_path)
    scratch.release(kept)
    kept.rename(tmp_path / "jars")
    scratch.remove_stale(tmp_path)
    names = ["gddl-logs-x", f"{scratch.PREFIX}without-an-owner", "jars", "other"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert list((tmp_path / "jars").iterdir()) == []


def test_a_folder_is_removed_with_its_block_also_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def work() -> None:
        with scratch.scratch("order") as folder:
            assert (folder.parent, folder.stat().st_mode & 0o77) == (tmp_path, 0)
            raise ValueError("on purpose")

    with pytest.raises(ValueError, match="on purpose"):
        work()
    assert list(tmp_path.iterdir()) == []


def test_many_at_once_take_no_folder_from_each_other(tmp_path: Path) -> None:
    found: list[Path] = []

    def work() -> None:
        for _ in range(20):
            folder = scratch.make("many", tmp_path)
            (folder / "data").write_text("x")
            found.append(folder)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(found)) == 80
    assert all((folder / "data").exists() for folder in found)
    for folder in found:
        scratch.remove(folder)
    assert list(tmp_path.iterdir()) == []
