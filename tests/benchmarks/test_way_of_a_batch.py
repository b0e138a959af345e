"""The way of a plain batch of a small table: what it passes is held as numbers, so that a mechanism shows its price."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "benchmarks" / "way_of_a_batch.py"
MOST = {"batch_modules": 84, "batch_functions": 888, "batch_calls": 2_360}


def test_a_plain_batch_passes_no_more() -> None:
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(SCRIPT.parent)))}
    command = [sys.executable, str(SCRIPT)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert {name: found[name] for name in MOST} == MOST, (
        "see --names of the benchmark; lower the numbers when they fall"
    )
