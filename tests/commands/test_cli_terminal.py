"""On a real terminal: progress, hostile names, and Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.harness.waiting import wait_for

FAKE = Path(__file__).with_name("fake_job.py")
DRIVER = """
import dataclasses, sys
from airflow_gddl.cli import context
from airflow_gddl.cli.main import invoke
from tests.harness.waiting import wait_for
cli = dataclasses.replace(context.real(), job_command=(sys.executable, sys.argv[1]))
sys.exit(invoke(sys.argv[2:], cli))
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "metadata" / "tables").mkdir(parents=True)
    (tmp_path / "metadata" / "gddl.yaml").write_text("landing: ../landing\nlake: ../lake\n")
    (tmp_path / "metadata" / "tables" / "s.yaml").write_text("tables: [{table: sales.orders, keys: [id]}]\n")
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    return tmp_path


def environ(shop: Path, **job: Any) -> dict[str, str]:
    hidden = ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "TERM": "xterm", "JAVA_HOME": str(shop / "java"), "FAKE_JOB": json.dumps(job)}


def on_a_terminal(
    shop: Path, *arguments: str, typed: bytes = b"", results_after: bytes = b"", **job: Any
) -> tuple[int, str]:
    """Exit status, and all that the terminal got.

    Args:
        results_after: what the terminal shows before the job prints its results.
    """
    seen = shop / "seen"
    if results_after:
        job["awaits"] = str(seen)
    ours, theirs = pty.openpty()
    os.write(ours, typed)
    command = [sys.executable, "-c", DRIVER, str(FAKE), *arguments]
    with subprocess.Popen(
        command, cwd=shop, env=environ(shop, **job), stdin=theirs, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # Linux's end of file on a terminal whose other side closed
                break
            if not part:
                break
            shown += part
            if results_after and results_after in shown:
                seen.touch()
        os.close(ours)
        status = process.wait(timeout=60)
    return status, shown.decode("utf-8", "replace")


def test_progress_shows_table_step_and_rows(shop: Path) -> None:
    events = [
        {"table": "sales.orders", "step": "discover", "batch": 0, "batches": None, "rows": 0},
        {"table": "sales.orders", "step": "replica", "batch": 2, "batches": 3, "rows": 1234567},
        {"table": "evil[red]\x1b[2J", "step": "read", "batch": 1, "batches": 1, "rows": 1},
    ]
    results = {"sales.orders": {"rows_read": 5}}
    status, shown = on_a_terminal(shop, "run", progress=events, results=results, results_after=b"evil")
    assert status == 0, shown
    assert "replica, 1,234,567 rows" in shown
    assert "1/3" in shown
    assert "evil[red]\\x1b[2J" in shown
    assert "\x1b[2J" not in shown
    assert "\x1b[32m" in shown, "colours are on: a succeeded table is green"


def test_ctrl_c_stops_the_job_and_says_so(shop: Path) -> None:
    ready = shop / "ready"
    job = {"ready": str(ready), "sleep": 60}
    command = [sys.executable, "-c", DRIVER, str(FAKE), "run", "--json"]
    with subprocess.Popen(
        command, cwd=shop, env=environ(shop, **job), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        wait_for(ready.exists)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    (record,) = map(json.loads, out.splitlines())
    assert (record["table"], record["status"], record["error"]["code"]) == ("sales.orders", "failed", "JOB_CANCELLED")
    assert "sales.orders: [JOB_CANCELLED] the run was stopped by SIGINT" in err
    assert "Traceback" not in err


@pytest.mark.parametrize(("typed", "status"), [(b"y\n", 0), (b"n\n", 1), (b"\n", 1)])
def test_onboarding_shows_its_diff_in_colour_and_asks(shop: Path, typed: bytes, status: int) -> None:
    landed = shop / "landing" / "shop" / "orders"
    landed.mkdir(parents=True)
    pq.write_table(pa.table({"id": [1, 2]}), landed / "LOAD00000001.parquet")
    ended, shown = on_a_terminal(shop, "onboard", "shop", typed=typed)
    assert (ended, "Write this?" in shown) == (status, True)
    assert "\x1b[32m+  - {table: shop.orders}" in shown
    assert (shop / "metadata" / "tables" / "shop.yaml").exists() == (status == 0)
    assert on_a_terminal(shop, "onboard", "shop", typed=b"n\n")[0] == status
