"""What a batch costs as its table grows: 10,000 changes into 100 thousand to 50 million rows.

    python benchmarks/growth.py [--scale 0.02] [--seed 1]

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
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

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
from spark_jobs.tables import table_rows

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
    files, key_bytes: data files searched for the keys, and bytes of their key column.
    written_bytes: of the files that it added to the lake.
    steps: seconds of each, and its calls of the store, those of `deltalake` left out.
    """

    rows: int
    keys: str
    seconds: float
    cpu_seconds: float
    files: int
    key_bytes: int
    written_bytes: int
    steps: dict[str, tuple[float, int]]


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


def _lake_files(folders: Folders) -> dict[Path, int]:
    return {path: path.stat().st_size for path in folders.lake(this_engine.SIDE).rglob("*") if path.is_file()}


def measure(rows: int, changes: int, seed: int, side: Side, searched: Searched, root: Path) -> list[Batch]:
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
        searched.files.clear()
        before, costs = _lake_files(folders), StepCosts()
        started, cpu = time.perf_counter(), tree_cpu_seconds(os.getpid())
        this_engine.run(folders, side, costs.observe, changes, counting(costs.calls))
        seconds, cpu = time.perf_counter() - started, tree_cpu_seconds(os.getpid()) - cpu
        found.append(
            Batch(
                rows=rows,
                keys=pattern,
                seconds=round(seconds, 2),
                cpu_seconds=round(cpu, 2),
                files=len(set(searched.files)),
                key_bytes=searched.key_bytes(),
                written_bytes=sum(size for path, size in _lake_files(folders).items() if path not in before),
                steps=costs.steps,
            )
        )
        say(str(found[-1]))
    _verify(folders, side)
    return found


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
    args = parser.parse_args()
    tier, searched = this_engine.TIER, Searched()
    spark = LazySpark(SessionSettings(cores=tier.cores, memory=tier.memory, single=True))
    side, found = Side(spark, tier), list[Batch]()
    searched.watch()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        measure(1_000, 100, args.seed, side, searched, Path(folder, "warm"))
        for rows in args.rows:
            root, size = Path(folder, str(rows)), max(1_000, round(rows * args.scale))
            found += measure(size, max(100, round(_CHANGES * args.scale)), args.seed, side, searched, root)
            shutil.rmtree(root)
    spark.stop()
    for batch in found:
        spent = f"{batch.seconds:6.2f} s, {batch.cpu_seconds:6.2f} s of CPU"
        read = f"{batch.files:4} files, {batch.key_bytes / 2**20:8.1f} MiB of keys"
        written = f"{batch.written_bytes / 2**20:.1f} MiB written"
        print(f"{batch.rows:12,} rows, {batch.keys} keys: {spent}, {read}, {written}")
        print(", ".join(f"{step} {seconds:.3f} s {calls} calls" for step, (seconds, calls) in batch.steps.items()))
    print_figures({"growth": [asdict(batch) for batch in found]}, "seconds", "cpu_seconds", "written_bytes")


if __name__ == "__main__":
    main()
