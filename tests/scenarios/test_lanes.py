"""Tests that must share a process do: the spread goes by a name that is part of a test's id."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.wide
def test_a_variant_of_the_scenarios_stays_in_one_process() -> None:
    """A test runner and a spreader that don't fit each other say nothing, and play everything once a process."""
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "-vv", "--tasks", "one"]
    chosen = ["-k", "(dms_csv_gzip or dms_date_folders_slash) and as_written", "tests/scenarios/test_scenarios.py"]
    done = subprocess.run([*command, *chosen], cwd=ROOT, check=False, capture_output=True, text=True, timeout=300)
    passed = [line for line in done.stdout.splitlines() if " PASSED " in line]
    assert len(passed) == 2, done.stdout
    assert {line.split("]")[0] for line in passed} in ({"[gw0"}, {"[gw1"})
    assert all(line.strip().endswith("@one plain") for line in passed)
