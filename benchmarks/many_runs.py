"""One table of three rows, loaded again and again: what a run and an idle run cost, and what the lake holds.

    python benchmarks/many_runs.py [--runs 5000] [--hours 1]

Each run has one change file, dated `--hours` after the one before. What retention keeps (7 days of files that runs have
replaced, 30 days of commits) depends on the runs a day, not on all runs: as the runs end weeks ago, it has passed at
the next tidying. The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from measuring import print_figures

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import run_guarded

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), settle="0s")
MARKS = (10, 50, 150, 350, 1050, 2050, 3050, 5050, 7550, 10050)
"""Runs after which is measured; from 150 on half-way between two tidyings, which come every 100 batches."""
_AVERAGED = 10
_OPERATIONS = ("list", "stat", "exists", "read_tagged", "write", "create", "swap", "delete", "copy", "open_input")


@dataclass(frozen=True, kw_only=True)
class Cost:
    """After so many runs.

    Attributes:
        run_seconds, idle_seconds: CPU of one run, the mean of ten, and of an idle run.
        run_calls, idle_calls: calls of the store.
        objects, bytes: in the lake.
    """

    runs: int
    run_seconds: float
    idle_seconds: float
    run_calls: float
    idle_calls: float
    objects: int
    bytes: int


@dataclass
class ManyRuns:
    """The table, its landing folder and its runs.

    Attributes:
        now: of the run.
        calls: of the store, by method.
        seconds: CPU of the last run, without what the benchmark itself does.
    """

    root: Path
    step: timedelta
    now: datetime
    calls: Counter[str] = field(default_factory=Counter)
    done: int = 0
    seconds: float = 0.0

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def load(self) -> None:
        self._put("LOAD00000001", {"id": [0, 1, 2], "v": ["a", "b", "c"]})
        self.run("succeeded")

    def change(self) -> None:
        """The next change file, and the run that takes it."""
        self.done += 1
        self.now += self.step
        name = f"{self.now:%Y%m%d-%H%M%S}{self.done % 1000:03d}"
        self._put(name, {"Op": ["U"], "seq": [self.done], "id": [self.done % 3], "v": [f"v{self.done}"]})
        self.run("succeeded")

    def run(self, status: str) -> None:
        job = JobSpec(run_id=f"run-{self.done}", roots=self.roots, tables=(SPEC,))
        runtime = Runtime(storage=counting(self.calls), spark=NoSpark(), clock=lambda: self.now)
        begun = time.process_time()
        found = run_guarded(job, SPEC, runtime)
        self.seconds = time.process_time() - begun
        if not isinstance(found, TableOutcome) or found.result.status != status:
            raise AssertionError(f"run {self.done} is not {status}: {found}")
        self._date_files()

    def _put(self, name: str, rows: dict[str, list[object]]) -> None:
        folder = Path(Layout.of(self.roots, SPEC).landing)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(rows), folder / f"{name}.parquet")
        os.utime(folder / f"{name}.parquet", (self.now.timestamp(), self.now.timestamp()))

    def _date_files(self) -> None:
        """What the run wrote has the run's time, by which Delta judges age."""
        for path in (self.root / "lake").rglob("*"):
            if path.is_file() and path.stat().st_mtime > self.now.timestamp() + 1:
                os.utime(path, (self.now.timestamp(), self.now.timestamp()))

    def cost(self) -> Cost:
        """The mean of the next ten runs."""
        self.calls.clear()
        run = 0.0
        for _ in range(_AVERAGED):
            self.change()
            run += self.seconds / _AVERAGED
        run_calls = self.calls.total() / _AVERAGED
        self.calls.clear()
        self.run("skipped")
        idle = self.seconds
        sizes = [path.stat().st_size for path in (self.root / "lake").rglob("*") if path.is_file()]
        return Cost(
            runs=self.done - _AVERAGED,
            run_seconds=run,
            idle_seconds=idle,
            run_calls=run_calls,
            idle_calls=float(self.calls.total()),
            objects=len(sizes),
            bytes=sum(sizes),
        )


def counting(calls: Counter[str]) -> Storage:
    """A store that counts."""

    def counted(name: str) -> Callable[..., object]:
        def method(self: Storage, *arguments: object, **named: object) -> object:
            calls[name] += 1
            return getattr(Storage, name)(self, *arguments, **named)

        return method

    made: Storage = type("Counting", (Storage,), {name: counted(name) for name in _OPERATIONS})()
    return made


def measured(root: Path, runs: int, step: timedelta) -> list[Cost]:
    end = datetime.now(UTC) - timedelta(days=60)
    table = ManyRuns(root, step, end - step * (runs + _AVERAGED * len(MARKS)))
    table.load()
    found = []
    for mark in (mark for mark in MARKS if mark <= runs):
        while table.done < mark:
            table.change()
        found.append(table.cost())
        print(found[-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5050)
    parser.add_argument("--hours", type=float, default=1.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-many-runs-") as folder:
        found = measured(Path(folder), asked.runs, timedelta(hours=asked.hours))
    print_figures([asdict(cost) for cost in found], "run_seconds", "run_calls", "objects", "bytes")


if __name__ == "__main__":
    main()
