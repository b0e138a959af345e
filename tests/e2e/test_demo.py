"""`python -m devtools.demo`, stopped in the middle: the verdict of a whole one is for `make demo-check`."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from devtools.standalone import supervisor
from devtools.standalone.home import Home
from devtools.standalone.supervisor import Standalone
from tests.e2e.site import ROOT, order
from tests.harness.waiting import wait_for

COMMAND = [sys.executable, "-m", "devtools.demo", "--scale", "0.001", "--rounds", "1"]
# As users run it: on Spark, whatever other tests are spared.
OWN = {name: value for name, value in os.environ.items() if name != "GDDL_WITHOUT_SPARK"}
ENVIRON = {**OWN, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}


@contextmanager
def demo(folder: Path) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [*COMMAND, "--dir", str(folder), "--port", "0"],
        env=ENVIRON,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.communicate(timeout=120)


def reported(process: subprocess.Popen[str], text: str) -> str:
    """What it said up to a line that has this text; all, when there is none."""
    assert process.stdout is not None
    said = []
    for line in process.stdout:
        said.append(line)
        if text in line:
            break
    return "".join(said)


def of(folder: Path) -> list[str]:
    """Command lines of processes that belong to a demonstration in this folder."""
    here = [mark for mark in supervisor.marks() if mark.endswith(f"{folder}/airflow")]
    found = []
    for process in (one for mark in here for one in supervisor.marked(mark)):
        with suppress(psutil.Error):  # it has ended meanwhile, or its parent has not asked for its status yet
            found.append(" ".join(process.cmdline()))
    return found


@pytest.mark.deep
def test_no_process_outlives_a_demo(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    with demo(folder) as first:
        said = reported(first, "initial_load")
        wait_for(lambda: any("java" in line for line in of(folder)))
        again = subprocess.run(
            [*COMMAND, "--dir", str(folder)], env=ENVIRON, capture_output=True, text=True, check=False, timeout=60
        )
        assert (again.returncode, "[DEMO_FAILED]" in again.stderr) == (2, True), again.stderr
        first.send_signal(signal.SIGINT)
        rest, _ = first.communicate(timeout=120)
        assert first.returncode == 130, said + rest
        assert of(folder) == []
        assert "Traceback" not in rest
    with demo(folder) as second:
        reported(second, "starting Airflow")
        wait_for(lambda: bool(of(folder)))
        second.kill()
        second.wait(10)
        assert of(folder) != []
        Standalone(replace(order(tmp_path), home=Home(folder / "airflow"))).take_over()
        assert of(folder) == []
