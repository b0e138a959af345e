"""Small tables, 100 changes each a round, one Spark task each; a few of them over many tasks.

    python benchmarks/small_tables.py [--tables 10000] [--profile]

Each job's start counts. The prototype of `small_prototype.py` is measured in the same minutes, on one core.
The job without work has ten thousand tables: those that were loaded, and copies of one.

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import small_folders
import small_prototype
import workload
from measuring import Answer, ChildError, print_figures, say, tree_cpu_seconds, tree_mib, write_class_archive
from small_folders import MIX, SmallFolders
from this_engine import JobFailedError, Stopwatch
from workload import Workload

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.result import TableTasks
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.table_job import run_guarded

_TABLES, _IDLE, _ROWS, _CHANGES, _ROUNDS, _CORES = 1_500, 10_000, 10_000, 100, 2, 2
_PROGRESS = 250
_SPARK_TABLES, _CHECKED, _PROFILED, _PROTOTYPED = 20, 25, 40, 200
_SIDE = "one"
_SPARK_SIDES = ("one_by_one", "at_once", "by_hand")


@dataclass(frozen=True, kw_only=True)
class Ran:
    """One job, the start of its process included.

    Attributes:
        cpu_seconds: of all its processes.
        peak_mib: the most memory of all its processes at once.
    """

    seconds: float
    cpu_seconds: float
    peak_mib: float


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Of all rounds.

    Attributes:
        rounds: seconds of each.
        cpu_seconds: of all processes of the rounds.
        prototype: rates on one core, measured before each round and after the last one.
    """

    tables: int
    idle_tables: int
    load_seconds: float
    rounds: Sequence[float]
    cpu_seconds: float
    prototype: Sequence[float]
    idle_seconds: float
    peak_mib: float

    @property
    def tables_per_second(self) -> float:
        return self.tables * len(self.rounds) / sum(self.rounds)

    @property
    def prototype_tables_per_second(self) -> float:
        return sum(self.prototype) / len(self.prototype)


def measure(folders: SmallFolders, idle_tables: int) -> Figures:
    """Load, rounds, and a job of so many tables in which nothing is new, each a job of its own; checked."""
    tier = folders.tier("one", _CORES)
    folders.land(_SIDE, folders.made.load_files())
    load = run(folders, folders.job(_SIDE, "load", tier), _ROWS)
    say(f"load: {load.seconds:.1f} s")
    ran, prototype = [], [prototyped(folders)]
    for number, file in enumerate(folders.made.change_files(), start=1):
        folders.land(_SIDE, [file])
        ran.append(run(folders, folders.job(_SIDE, f"round-{number}", tier), _CHANGES))
        say(f"round {number}: {ran[-1].seconds:.1f} s, {len(folders.names) / ran[-1].seconds:.1f} tables/s, "
            f"{1000 * ran[-1].cpu_seconds / len(folders.names):.0f} ms of CPU a table")  # fmt: skip
        prototype.append(prototyped(folders))
    copies = tuple(f"c{n:05d}" for n in range(idle_tables - len(folders.names)))
    folders.copy(_SIDE, copies)
    several = replace(folders, names=folders.names + copies)
    idle = run(folders, several.job(_SIDE, "idle", tier), 0, 0)
    step = max(1, len(several.names) // _CHECKED)
    right = small_folders.check(several, _SIDE, several.names[::step], len(ran))
    say(f"idle: {idle.seconds:.1f} s; {right} tables compared in full and right")
    return Figures(
        tables=len(folders.names),
        idle_tables=len(several.names),
        load_seconds=load.seconds,
        rounds=[r.seconds for r in ran],
        cpu_seconds=sum(r.cpu_seconds for r in ran),
        prototype=prototype,
        idle_seconds=idle.seconds,
        peak_mib=max(r.peak_mib for r in (load, *ran, idle)),
    )


def prototyped(folders: SmallFolders) -> float:
    """Tables a second of one core, of the prototype on the same files, now."""
    load, changes = folders.made.load_files()[0], folders.made.change_files()[0]
    with tempfile.TemporaryDirectory(dir=folders.root) as root:
        rate = small_prototype.rate(Path(root), load, changes, min(_PROTOTYPED, len(folders.names)))
    say(f"prototype: {rate:.1f} tables/s of one core")
    return rate


def run(folders: SmallFolders, job: JobSpec, rows: int, worked: int | None = None, tasks: TableTasks = "one") -> Ran:
    """A job as `gddl` starts it.

    Args:
        rows: that each table with new files has.
        worked: tables with new files; the others have none. Null: all.
        tasks: that each result has to name.

    Raises:
        JobFailedError: another number of tables did something, or the counts are not those of the workload.
    """
    order = folders.root / "order.json"
    order.write_text(to_json(job), encoding="utf-8")
    os.sync()
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    started = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child, _Watch(child.pid) as watch:
        results = []
        for line in child.stdout or ():
            results.append(json.loads(line))
            if len(results) % _PROGRESS == 0:
                say(f"{job.run_id}: {len(results)} of {len(job.tables)} tables, {time.perf_counter() - started:.1f} s")
        child.wait()
    seconds = time.perf_counter() - started
    reported = Counter((r["status"], r["tasks"], r["rows_read"], r["changes_written"]) for r in results)
    some = len(job.tables) if worked is None else worked
    idle = len(job.tables) - some
    wanted = Counter({("succeeded", tasks, rows, rows): some, ("skipped", tasks, 0, 0): idle})
    if reported != +wanted:
        errors = [r["error"] for r in results if r["status"] == "failed"]
        raise JobFailedError(f"{job.run_id}: {len(results)} results: {sorted(reported.items())[:3]}, {errors[:1]}")
    return Ran(seconds=seconds, cpu_seconds=watch.cpu_seconds, peak_mib=watch.peak)


class _Watch:
    """Looks at memory and processor time of a process and all below it, twice a second."""

    def __init__(self, pid: int) -> None:
        self.peak = self.cpu_seconds = 0.0
        self._pid, self._stop = pid, threading.Event()
        self._thread = threading.Thread(target=self._poll)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _poll(self) -> None:
        while not self._stop.wait(0.5):
            self.peak = max(self.peak, tree_mib(self._pid))
            self.cpu_seconds = max(self.cpu_seconds, tree_cpu_seconds(self._pid))


def spark_seconds(folders: SmallFolders, side: str, tables: int) -> float:
    """Seconds a table and round on one of Spark's sides; checked."""
    names = folders.names[: min(len(folders.names) - 1, tables) + 1]
    order, answer = folders.root / f"{side}.order", folders.root / f"{side}.answer"
    reported = {"side": side, "root": str(folders.root), "names": names, "rounds": _ROUNDS, "answer": str(answer)}
    order.write_text(json.dumps(reported), encoding="utf-8")
    command = [sys.executable, str(Path(__file__).with_name("small_spark.py")), str(order)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise ChildError(f"{side}: {ended.stderr[-3000:]}")
    found = from_json(Answer, answer.read_text(encoding="utf-8"))
    small_folders.check(folders, side, names, _ROUNDS)
    seconds = found.seconds / (_ROUNDS * (len(names) - 1))
    say(f"{side}: {seconds:.2f} s a table and round")
    return seconds


def profile(folders: SmallFolders) -> dict[str, float]:
    """Milliseconds a table by step, in this process, table after table."""
    some = SmallFolders(folders.root / "profile", folders.names[:_PROFILED])
    side, tier = "profile", folders.tier("one", 1)
    watch = Stopwatch()
    for number, files in enumerate([folders.made.load_files(), *([f] for f in folders.made.change_files())]):
        some.land(side, files)
        job = some.job(side, f"profile-{number}", tier)
        watch = Stopwatch()
        for spec in job.tables:
            run_guarded(job, spec, Runtime(storage=Storage(), spark=LazySpark(), observe=watch.observe))
    return {step: 1000 * spent / len(some.names) for step, spent in watch.seconds.items()}


def report(figures: Figures, by_spark: dict[str, float], steps: dict[str, float]) -> None:
    rounds = ", ".join(f"{s:.1f}" for s in figures.rounds)
    rate = figures.prototype_tables_per_second
    print(f"prototype: {rate:.1f} tables/s of one core; the job's rate is {figures.tables_per_second / rate:.2f} of it")
    print(f"{figures.tables:,} tables: load {figures.load_seconds:.1f} s, rounds {rounds} s, "
          f"{figures.tables_per_second:.1f} tables/s; "
          f"{figures.idle_tables:,} tables idle: {figures.idle_seconds:.1f} s")  # fmt: skip
    for side, seconds in by_spark.items():
        print(f"Spark, {side}: {1 / seconds:.2f} tables/s")
    if steps:
        print("milliseconds a table by step: " + ", ".join(f"{s} {ms:.1f}" for s, ms in steps.items()))
    ratio = figures.tables_per_second * by_spark["by_hand"] if "by_hand" in by_spark else None
    summary = {
        "tables": figures.tables,
        "rows": _ROWS,
        "changes": _CHANGES,
        "rounds": _ROUNDS,
        "idle_tables": figures.idle_tables,
        "tables_per_second": round(figures.tables_per_second, 1),
        "cpu_ms_per_table": round(1000 * figures.cpu_seconds / (figures.tables * len(figures.rounds)), 1),
        "prototype_tables_per_second": round(rate, 1),
        "ratio_to_prototype": round(figures.tables_per_second / rate, 2),
        "load_average": round(os.getloadavg()[0], 1),
        "ratio_to_spark_merge": None if ratio is None else round(ratio, 1),
        "idle_seconds": round(figures.idle_seconds, 2),
        "peak_mib": round(figures.peak_mib),
    }
    print_figures(summary, "tables", "tables_per_second", "prototype_tables_per_second", "peak_mib")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=_TABLES, help="that are loaded")
    parser.add_argument("--idle", type=int, default=_IDLE, help="tables of the job without work")
    parser.add_argument("--no-spark", action="store_true", help="leave Spark's sides out")
    parser.add_argument("--spark-tables", type=int, default=_SPARK_TABLES, help="tables on each of Spark's sides")
    parser.add_argument("--profile", action="store_true", help="also where the time goes")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    names = tuple(f"t{n:05d}" for n in range(max(_PROFILED, args.tables)))
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as root:
        folders = SmallFolders(Path(root), names)
        work = Workload(rows=_ROWS, files=_ROUNDS, changes_per_file=_CHANGES, seed=args.seed, mix=MIX)
        workload.write(work, folders.made)
        write_class_archive()
        figures = measure(folders, args.idle)
        by_spark = {} if args.no_spark else {s: spark_seconds(folders, s, args.spark_tables) for s in _SPARK_SIDES}
        report(figures, by_spark, profile(folders) if args.profile else {})


if __name__ == "__main__":
    main()
