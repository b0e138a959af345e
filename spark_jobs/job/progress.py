"""Steps of tables as lines on standard error, for the program that started the job."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from spark_jobs.table.runtime import Step

PROGRESS = "GDDL-PROGRESS "


def print_step(step: Step) -> None:
    """One write a line: a pipe that several processes share keeps it whole."""
    sys.stderr.write(f"{PROGRESS}{json.dumps(asdict(step))}\n")
    sys.stderr.flush()
