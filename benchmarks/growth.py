"""What a batch costs as its table grows: 10,000 changes into 100 thousand to 50 million rows.

    python benchmarks/growth.py [--scale 0.02] [--rows 50000000] [--changes 2000000] [--seed 1]

One batch has keys at random, one keys of the newest hundredth of the rows. The last line of standard output is one JSON
object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import this_engine
import workload
from many_runs import counting
from measuring import print_figures, say, tree_cpu_seconds
from this_engine import Side, Stopwatch
from workload import KEY, Folders, Workload

from airflow_gddl.contract.actions import Verify
from airflow_gddl.contract.spec import JobOptions
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime, Step
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session import SessionSettings
from spark_jobs.tables import many_tasks, table_rows

_ROWS, _CHANGES = (100_000, 1_000_000, 10_000_000, 50_000_000), 10_000
_PATTERNS = ("random", "newest")


class WrongTableError(Exception):
    """The replica is not what its changes make of it."""


@dataclass
class Searched:
    """Files that were searched for the keys of a batch."""

    files: list[Path] = field(default_factory=list)

    def watch(self) -> None:
        """Note the files of each search from now on."""
        search = table_rows.search

        def watched(tables: Any, work: table_rows.FindRows, files: Sequence[table_rows.DataFile], **how: Any) -> Any:
            self.files += [Path(work.table, file.path) for file in files]
            return search(tables, work, files, **how)

        setattr(table_rows, "search", watched)  # noqa: B010 - mypy takes no other assignment

    def key_bytes(self) -> int:
        """Bytes of the key column in them."""
        return sum(_key_bytes(file) for file in self.files if file.exists())


def _key_bytes(path: Path) -> int:
    found = pq.read_metadata(path)
    groups = (found.row_group(number) for number in range(found.num_row_groups))
    columns = (group.column(number) for group in groups for number in range(group.num_columns))
    return sum(column.total_compressed_size for column in columns if column.path_in_schema == KEY)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Attributes:
    keys: where they are, see `_PATTERNS`.
    cpu_seconds: of all processes of the job, which say more than `seconds` on a busy machine.
    least_cpu_seconds: of reading the changes and the key column of the replica, and of writing the changes as Parquet
        twice, as change table and replica have them.
    task_seconds: in which Spark's tasks worked; the rest of `seconds` is the driver's alone.
    files, key_bytes: data files searched for the keys, and bytes of their key column.
    files_before, files_added: of the replica.
    written_bytes: of the files that it added to the lake.
    steps: seconds of each, and its calls of the store, those of `deltalake` left out.
    """

    rows: int
    keys: str
    seconds: float
    cpu_seconds: float
    least_cpu_seconds: float
    task_seconds: float
    files: int
    key_bytes: int
    files_before: int
    files_added: int
    written_bytes: int
    steps: dict[str, tuple[float, int]]


@dataclass
class TaskTime:
    """Seconds in which a driver waited for Spark's tasks."""

    seconds: float = 0.0
    _waits: bool = False

    def watch(self) -> None:
        """Count them from now on."""
        for name in ("run", "run_by_key", "distinct"):
            setattr(many_tasks.SparkTasks, name, self._watched(getattr(many_tasks.SparkTasks, name)))

    def _watched(self, method: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any) -> Any:
            if self._waits:  # a step of a method that is timed
                return method(*args)
            began, self._waits = time.perf_counter(), True
            try:
                return method(*args)
            finally:
                self._waits = False
                self.seconds += time.perf_counter() - began

        return timed


def least_cpu_seconds(changes: Path, replica: Iterable[Path]) -> float:
    """See `Batch`; of this process, with one thread."""
    began = time.process_time()
    rows = pq.read_table(changes, use_threads=False)
    for path in replica:
        pq.ParquetFile(path).read([KEY], use_threads=False)
    for _ in range(2):
        pq.write_table(rows, pa.BufferOutputStream())
    return time.process_time() - began


@dataclass
class StepCosts:
    """Observes the steps of a job."""

    watch: Stopwatch = field(default_factory=Stopwatch)
    calls: Counter[str] = field(default_factory=Counter)
    of_step: Counter[str] = field(default_factory=Counter)

    def observe(self, step: Step) -> None:
        self.watch.observe(step)
        self.of_step[step.step] += self.calls.total()
        self.calls.clear()

    @property
    def steps(self) -> dict[str, tuple[float, int]]:
        return {step: (round(spent, 3), self.of_step[step]) for step, spent in self.watch.seconds.items()}


@dataclass(frozen=True)
class Watched:
    """What is noted of a batch beside its steps."""

    searched: Searched = field(default_factory=Searched)
    tasks: TaskTime = field(default_factory=TaskTime)


def _lake_files(folders: Folders) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folders.lake(this_engine.SIDE).rglob("*") if path.is_file()}


def measure(rows: int, changes: int, seed: int, side: Side, watched: Watched, root: Path) -> list[Batch]:
    """
    Raises:
        WrongTableError: the result is wrong.
    """
    folders = Folders(root)
    work = Workload(rows=rows, files=2, changes_per_file=changes, seed=seed, recent=frozenset({1}))
    workload.write(work, folders)
    started = time.perf_counter()
    this_engine.run(folders, side, lambda _: None, rows)
    say(f"{rows:,} rows loaded in {time.perf_counter() - started:.1f} s")
    found = []
    for pattern, file in zip(_PATTERNS, folders.change_files(), strict=True):
        (folders.landed / file.name).hardlink_to(file)
        watched.searched.files.clear()
        watched.tasks.seconds = 0.0
        before, costs = _lake_files(folders), StepCosts()
        started, cpu = time.perf_counter(), tree_cpu_seconds(os.getpid())
        this_engine.run(folders, side, costs.observe, changes, counting(costs.calls))
        seconds, cpu = time.perf_counter() - started, tree_cpu_seconds(os.getpid()) - cpu
        written = {path: size for path, size in _lake_files(folders).items() if path not in before}
        stored = [path for path in _data_files(folders, before) if path.exists()]
        found.append(
            Batch(
                rows=rows,
                keys=pattern,
                seconds=round(seconds, 2),
                cpu_seconds=round(cpu, 2),
                least_cpu_seconds=round(least_cpu_seconds(file, stored), 2),
                task_seconds=round(watched.tasks.seconds, 2),
                files=len(set(watched.searched.files)),
                key_bytes=watched.searched.key_bytes(),
                files_before=len(_data_files(folders, before)),
                files_added=len(_data_files(folders, written)),
                written_bytes=sum(written.values()),
                steps=costs.steps,
            )
        )
        say(str(found[-1]))
    _verify(folders, side)
    return found


def _data_files(folders: Folders, paths: Iterable[Path]) -> list[Path]:
    """Which of these are data files of the replica."""
    replica = folders.replica(this_engine.SIDE)
    below = ((path, path.relative_to(replica)) for path in paths if path.is_relative_to(replica))
    return [path for path, name in below if path.suffix == ".parquet" and not name.parts[0].startswith("_")]


def _verify(folders: Folders, side: Side) -> None:
    job = replace(this_engine.job_of(folders, side), options=JobOptions(action=Verify()))
    (outcome,) = run_job(job, Runtime(storage=Storage(), spark=side.spark), lambda _: None)
    if outcome.result.details.get("verdict") != "equal":
        raise WrongTableError(str(outcome.result))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=float, default=1.0, help="of rows and changes; 1 is the stated work")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    parser.add_argument("--rows", type=int, nargs="+", default=_ROWS, help="of the tables, before they are scaled")
    parser.add_argument("--changes", type=int, default=_CHANGES, help="of each batch, before they are scaled")
    args = parser.parse_args()
    tier, watched = this_engine.TIER, Watched()
    spark = LazySpark(SessionSettings(cores=tier.cores, memory=tier.memory, single=True))
    side, found = Side(spark, tier), list[Batch]()
    watched.searched.watch()
    watched.tasks.watch()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        measure(1_000, 100, args.seed, side, watched, Path(folder, "warm"))
        for rows in args.rows:
            root, size = Path(folder, str(rows)), max(1_000, round(rows * args.scale))
            found += measure(size, max(100, round(args.changes * args.scale)), args.seed, side, watched, root)
            shutil.rmtree(root)
    spark.stop()
    for batch in found:
        spent = f"{batch.seconds:6.2f} s, {batch.seconds - batch.task_seconds:.2f} s without tasks, "
        spent += f"{batch.cpu_seconds:6.2f} s of CPU (at least {batch.least_cpu_seconds:.2f})"
        read = f"{batch.files:4} files, {batch.key_bytes / 2**20:8.1f} MiB of keys"
        written = f"{batch.written_bytes / 2**20:.1f} MiB written, {batch.files_before} files, {batch.files_added} new"
        print(f"{batch.rows:12,} rows, {batch.keys} keys: {spent}, {read}, {written}")
        print(", ".join(f"{step} {seconds:.3f} s {calls} calls" for step, (seconds, calls) in batch.steps.items()))
    print_figures({"growth": [asdict(batch) for batch in found]}, "seconds", "cpu_seconds", "written_bytes")


if __name__ == "__main__":
    main()
