"""`gddl run --continuous`: from the terminal to the replica, new rows included, until Ctrl-C."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.harness.lake import Lake, spec_of
from tests.harness.waiting import wait_for

pytestmark = pytest.mark.wide

GDDL = [sys.executable, "-m", "airflow_gddl.cli.main"]
ROW = "  - {{table: s.{}, keys: [id], sequence_by: [seq], trigger: 1s, freshness: 1m}}\n"


@pytest.fixture
def metadata(tmp_path: Path) -> Path:
    folder = tmp_path / "metadata"
    (folder / "tables").mkdir(parents=True)
    (folder / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    rows(folder, "a")
    return folder


def rows(folder: Path, *names: str) -> None:
    (folder / "tables" / "s.yaml").write_text("source: shop\ntables:\n" + "".join(ROW.format(name) for name in names))


def status(metadata: Path) -> dict[str, dict[str, Any]]:
    done = subprocess.run(
        [*GDDL, "status", "--metadata", str(metadata), "--json"], capture_output=True, text=True, check=True
    )
    return {line["table"]: line for line in map(json.loads, done.stdout.splitlines())}


def test_runs_until_ctrl_c(metadata: Path, tmp_path: Path) -> None:
    lake, a, b = Lake(tmp_path), spec_of("a"), spec_of("b")
    lake.load(a)
    lake.load(b)
    command = [*GDDL, "run", "--continuous", "--metadata", str(metadata), "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for((tmp_path / "lake" / "s" / "a" / "_delta_log").exists)
        lake.change(a, 1, [("U", 0, "changed"), ("I", 9, "new")])
        wait_for(lambda: lake.replica(a).get(9) == "new")
        rows(metadata, "a", "b")
        wait_for((tmp_path / "lake" / "s" / "b" / "_delta_log").exists)
        wait_for(lambda: set(status(metadata)) == {"s.a", "s.b"} and status(metadata)["s.b"]["state"] == "fresh")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    reported = [json.loads(line) for line in out.splitlines()]
    assert {(line["table"], line["status"]) for line in reported} == {("s.a", "succeeded"), ("s.b", "succeeded")}
    assert lake.replica(a) == {0: "changed", 1: "load 1", 2: "load 2", 9: "new"}
    found = status(metadata)["s.a"]
    assert (found["late"], found["waiting_files"]) == (False, 0)
    assert found["behind_seconds"] < 120
    assert list((tmp_path / "lake" / "_gddl" / "continuous").rglob("*.json")) == []


@pytest.mark.parametrize(
    ("more", "runner"), [(["--full-refresh"], "local"), (["--dry-run"], "local"), ([], "databricks")]
)
def test_unsupported_options_are_refused(metadata: Path, more: list[str], runner: str) -> None:
    own = "runners: {databricks: {wheel: /Volumes/w.whl, node_type: m}}\n" if runner == "databricks" else ""
    (metadata / "gddl.yaml").write_text(f"landing: s3://b/l\nlake: s3://b/k\nrunner: {runner}\n{own}")
    command = [*GDDL, "run", "--continuous", "--metadata", str(metadata), *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert "OPTION_INVALID" in done.stderr
