"""What `iceberg: 3` costs: one batch into a large table, without it and with it.

    python benchmarks/iceberg_v3.py [--rows 5000000] [--changes 200000] [--tasks many|one] [--rounds 3]

Both get the same files, in a Spark that is warm, by turns; the fastest of the rounds counts. Every replica is compared
with the truth.

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import this_engine
from commit_merge import one_batch
from measuring import Answer, print_figures, say
from workload import Folders, Workload

from airflow_gddl.contract.result import TableTasks
from airflow_gddl.stores import Storage
from spark_jobs.rooms.features.iceberg.publishing import IcebergPublisher
from spark_jobs.tables.iceberg_metadata import MetadataVersions

_FILES = 4
VERSIONS: Mapping[str, bool | int] = {"none": False, "v3": 3}


def measure(root: Path, work: Workload, tasks: TableTasks, rounds: int) -> tuple[dict[str, Answer], float]:
    """By version the fastest batch, and the seconds of metadata of version 3 from nothing, all vectors copied."""
    found: dict[str, Answer] = {}
    metadata = 0.0
    for name, iceberg in [*VERSIONS.items()] * rounds:
        done = one_batch(root / name, work, tasks=tasks, iceberg=iceberg)
        found[name] = min(found.get(name, done), done, key=lambda answer: answer.seconds)
        if iceberg:
            versions, started = MetadataVersions(Storage(), str(root / "metadata")), time.perf_counter()
            replica = str(Folders(root / name).replica(this_engine.SIDE))
            IcebergPublisher(Storage(), replica, versions, 3).publish()
            metadata = time.perf_counter() - started
        shutil.rmtree(root / name)
    return found, metadata


def report(work: Workload, found: Mapping[str, Answer], metadata: float) -> None:
    for name, answer in found.items():
        steps = ", ".join(f"{one.step} {one.seconds:.1f}" for one in answer.steps)
        print(f"iceberg {name:5} {answer.seconds:8.1f} s {answer.peak_mib:8,.0f} MiB; seconds by step: {steps}")
    print(f"metadata alone, from nothing: {metadata:.2f} s")
    summary = {
        "rows": work.rows,
        "changes": work.changes,
        **{f"{name}_seconds": round(answer.seconds, 2) for name, answer in found.items()},
        "metadata_seconds": round(metadata, 2),
        "ratio": round(found["v3"].seconds / found["none"].seconds, 2),
    }
    print_figures(summary, "none_seconds", "v3_seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the table")
    parser.add_argument("--changes", type=int, default=200_000, help="of the batch")
    parser.add_argument("--tasks", choices=get_args(TableTasks), default="many")
    parser.add_argument("--rounds", type=int, default=3, help="of both, by turns")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    work = Workload(rows=args.rows, files=_FILES, changes_per_file=args.changes // _FILES, seed=args.seed)
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        say(f"{work.rows:,} rows, {work.changes:,} changes")
        found, metadata = measure(Path(folder), work, args.tasks, args.rounds)
    report(work, found, metadata)


if __name__ == "__main__":
    main()
