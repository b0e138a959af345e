"""What a start of the embedded Spark costs, with and without the archive of Java classes.

python -m spark_jobs.spark.write_class_archive
python benchmarks/spark_start.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import print_figures

from spark_jobs.spark.jars import archive_of
from spark_jobs.spark.session import SessionSettings, class_path_of

_CHILD = """
import json, sys, tempfile
if sys.argv[1] == "without":
    sys.prefix = tempfile.gettempdir()  # where no archive is
from spark_jobs.spark.session import FOR_FEW_ROWS, SessionSettings, open_session
session = open_session(SessionSettings(memory="1g", brief=True))
for key, value in FOR_FEW_ROWS.items():
    session.conf.set(key, value)
session.range(3).write.format("delta").save(sys.argv[2])
print(json.dumps(session.read.format("delta").load(sys.argv[2]).count()))
gateway = session.sparkContext._gateway
session.stop()
gateway.proc.stdin.close()
gateway.proc.wait()  # so that its CPU is counted
"""


def start(how: str) -> tuple[float, float]:
    """Wall and CPU seconds of a process that starts Spark, writes a Delta table of three rows, and reads it."""
    began, used = time.monotonic(), _used()
    with tempfile.TemporaryDirectory() as work:
        done = subprocess.run(
            [sys.executable, "-c", _CHILD, how, f"{work}/table"], check=True, capture_output=True, text=True
        )
    if done.stdout.strip() != "3":
        raise SystemExit(f"the table is wrong: {done.stdout}")
    return time.monotonic() - began, _used() - used


def _used() -> float:
    times = os.times()
    return times.children_user + times.children_system


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="1: five starts of each kind, in turn")
    starts = max(1, round(5 * parser.parse_args().scale))
    if not archive_of(class_path_of(SessionSettings(), Path(tempfile.mkdtemp())), os.environ).exists():
        raise SystemExit("no archive: python -m spark_jobs.spark.write_class_archive")
    found: dict[str, list[tuple[float, float]]] = {"without": [], "with": []}
    for _ in range(starts):
        for how, figures in found.items():
            figures.append(start(how))
    print_figures({f"{how}_archive": medians(figures) for how, figures in found.items()}, "seconds", "cpu_seconds")


def medians(figures: list[tuple[float, float]]) -> dict[str, float]:
    wall, cpu = (round(statistics.median(column), 1) for column in zip(*figures, strict=True))
    return {"seconds": wall, "cpu_seconds": cpu}


if __name__ == "__main__":
    main()
