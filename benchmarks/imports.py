"""What each entry point imports in a fresh interpreter: modules of this project, all modules, milliseconds of CPU.

    python benchmarks/imports.py [--names]

What Airflow imports before it reads a DAG file, or loads a task, does not count. The last line of standard output is
one JSON object.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass

_RUNS = 5
_AIRFLOW = ("airflow.dag_processing.dagbag", "airflow.sdk.execution_time.task_runner")
_TERMINAL = ("airflow_gddl.cli.main", "airflow_gddl.cli.context", "airflow_gddl.cli.commands")
ENTRY_POINTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gddl --version": ((), ("airflow_gddl.cli.main",)),
    "gddl status": ((), (*_TERMINAL, "airflow_gddl.cli.status")),
    "gddl validate": ((), (*_TERMINAL, "airflow_gddl.cli.init", "airflow_gddl.metadata.loading")),
    "gddl run": ((), (*_TERMINAL, "airflow_gddl.cli.run")),
    "a job": ((), ("spark_jobs.main",)),
    "a DAG file": (_AIRFLOW, ("airflow_gddl.dags.factory",)),
    "the triggerer": (_AIRFLOW, ("airflow_gddl.triggers",)),
}
"""By name: modules that are there before, and those that it imports."""
_CHILD = """
import gc, importlib, json, sys, time
before, wanted = json.loads(sys.argv[1])
for name in before:
    importlib.import_module(name)
gc.collect()  # of what was imported before
known, begun = set(sys.modules), time.process_time()
for name in wanted:
    importlib.import_module(name)
print(json.dumps([time.process_time() - begun, sorted(set(sys.modules) - known)]))
"""


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Attributes: `modules`: of a run; `milliseconds`: of CPU, the median of several."""

    modules: tuple[str, ...]
    milliseconds: float

    @property
    def own_modules(self) -> int:
        return sum(name.partition(".")[0] in ("airflow_gddl", "spark_jobs") for name in self.modules)


def imported(name: str, runs: int = _RUNS) -> Imported:
    """What an entry point imports."""
    found = [_once(name) for _ in range(runs)]
    return Imported(modules=found[0][1], milliseconds=1000 * statistics.median(seconds for seconds, _ in found))


def _once(name: str) -> tuple[float, tuple[str, ...]]:
    command = [sys.executable, "-W", "ignore", "-c", _CHILD, json.dumps(ENTRY_POINTS[name])]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, modules = json.loads(done.stdout.splitlines()[-1])
    return seconds, tuple(modules)


def main() -> None:
    from measuring import print_figures  # noqa: PLC0415 - tests import this module from elsewhere

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--names", action="store_true", help="name the modules")
    asked = parser.parse_args()
    found = {name: imported(name) for name in ENTRY_POINTS}
    sys.stdout.write(f"{'':22} {'own':>5} {'all':>5} {'ms':>6}\n")
    for name, one in found.items():
        sys.stdout.write(f"{name:22} {one.own_modules:5} {len(one.modules):5} {one.milliseconds:6.0f}\n")
        sys.stdout.write("".join(f"    {module}\n" for module in one.modules if asked.names))
    figures = {
        name: {"own": one.own_modules, "all": len(one.modules), "cpu_ms": round(one.milliseconds, 1)}
        for name, one in found.items()
    }
    print_figures(figures, "own", "all")


if __name__ == "__main__":
    main()
