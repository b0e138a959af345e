"""What a start of the embedded Spark costs, with and without the archive of Java classes.

python benchmarks/spark_start.py

The archive is written first where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

from measuring import HERE, print_figures, say, write_class_archive

_CHILD = """
import json, os, sys, time
began = time.monotonic()
from spark_jobs.spark import class_archive
if sys.argv[1] == "without":
    class_archive.archive_of = lambda *_: None
from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark.session import FOR_FEW_ROWS, SessionSettings, configure
from spark_jobs.spark.tasks import map_in_arrow
spark = LazySpark(SessionSettings(memory="1g", brief=True))
session = spark.for_table()
configure(session, FOR_FEW_ROWS)
opened = time.monotonic()
def same(batches):
    yield from batches
rows = map_in_arrow(session.range(0, 3, 1, 1), same, "id long").collect()
done = time.monotonic()
sys.path.append(sys.argv[2])
from measuring import tree_cpu_seconds
cpu = tree_cpu_seconds(os.getpid())
spark.stop()
print(json.dumps([len(rows), opened - began, done - began, cpu]))
"""


def start(how: str) -> dict[str, float]:
    """Figures of a process that starts Spark, runs a first Python task, and ends.

    `session_seconds`, `seconds`: until the session was open, until the task's rows were there, imports included.
    `cpu_seconds`: of all processes, Python and Java, until then. `total_seconds`: of the whole process, its end
    included.
    """
    began = time.monotonic()
    command = [sys.executable, "-P", "-c", _CHILD, how, str(HERE)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    total = time.monotonic() - began
    rows, session, seconds, cpu = json.loads(done.stdout)
    if rows != 3:
        raise SystemExit(f"the rows are wrong: {done.stdout}")
    return {"session_seconds": session, "seconds": seconds, "total_seconds": total, "cpu_seconds": cpu}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="1: five starts of each kind, in turn")
    starts = max(1, round(5 * parser.parse_args().scale))
    write_class_archive()
    found: dict[str, list[dict[str, float]]] = {"without": [], "with": []}
    for _ in range(starts):
        for how, figures in found.items():
            figures.append(start(how))
            say(f"{how} archive: {figures[-1]['seconds']:.1f} s, {figures[-1]['cpu_seconds']:.1f} s of CPU")
    measured = {f"{how}_archive": medians(figures) for how, figures in found.items()}
    print_figures({**measured, "load_average": round(os.getloadavg()[0], 1)}, "seconds", "cpu_seconds")


def medians(figures: list[dict[str, float]]) -> dict[str, float]:
    return {name: round(statistics.median(each[name] for each in figures), 1) for name in figures[0]}


if __name__ == "__main__":
    main()
