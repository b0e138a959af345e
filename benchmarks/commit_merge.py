"""What `commit: merge` costs beside `commit: direct`: the same files, the same rules, equal tables.

    python benchmarks/commit_merge.py [--tables 20] [--rows 5000000] [--changes 200000]

Small tables of `tasks: one` get 100 changes each a round, in jobs as `gddl` starts them, whose start counts. A large
table of `tasks: many` gets one batch in a Spark that is warm. Every replica is compared with the truth.

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import small_folders
import this_engine
import truth
import workload
from measuring import Answer, Order, print_figures, run_child, say
from small_folders import MIX, SmallFolders
from small_tables import Ran, run
from workload import Folders, Workload

from airflow_gddl.contract.result import CommitMethod

_ROWS, _CHANGES, _ROUNDS, _CORES = 10_000, 100, 2, 2
_WARM_ROWS, _WARM_CHANGES, _FILES = 1_000, 100, 4
COMMITS: tuple[CommitMethod, ...] = get_args(CommitMethod)


def small(root: Path, tables: int, seed: int) -> dict[CommitMethod, Ran]:
    """By commit a job of one round, the mean of the rounds after the full load."""
    folders = SmallFolders(root, tuple(f"t{n:05d}" for n in range(tables)))
    work = Workload(rows=_ROWS, files=_ROUNDS, changes_per_file=_CHANGES, seed=seed, mix=MIX)
    workload.write(work, folders.made)
    found: dict[CommitMethod, Ran] = {}
    for commit in COMMITS:
        tier = replace(folders.tier("one", _CORES), commit=commit)
        tasks = "one" if tier.in_one_task else "many"
        folders.land(commit, folders.made.load_files())
        run(folders, folders.job(commit, "load", tier), _ROWS, tasks=tasks)
        ran = []
        for number, file in enumerate(folders.made.change_files(), start=1):
            folders.land(commit, [file])
            ran.append(run(folders, folders.job(commit, f"round-{number}", tier), _CHANGES, tasks=tasks))
        right = small_folders.check(folders, commit, folders.names, _ROUNDS)
        found[commit] = Ran(
            seconds=sum(one.seconds for one in ran) / len(ran),
            cpu_seconds=sum(one.cpu_seconds for one in ran) / len(ran),
            peak_mib=max(one.peak_mib for one in ran),
        )
        say(f"{commit}: {found[commit].seconds:.1f} s a round; {right} tables are right")
    return found


def large(root: Path, rows: int, changes: int, seed: int) -> dict[CommitMethod, float]:
    """By commit the seconds of one batch into a table of so many rows."""
    found: dict[CommitMethod, float] = {}
    for commit in COMMITS:
        work = Workload(rows=rows, files=_FILES, changes_per_file=changes // _FILES, seed=seed)
        found[commit] = one_batch(root / commit, work, commit=commit).seconds
        shutil.rmtree(root / commit)
    return found


def one_batch(root: Path, work: Workload, **settings: Any) -> Answer:
    """A batch into a table of `tasks: many`, the second one of a Spark that is warm; every row of the table is checked.

    Args:
        settings: fields of the order.
    """
    folders, warm = Folders(root), Folders(root / "warm")
    workload.write(work, folders)
    workload.write(Workload(rows=_WARM_ROWS, files=1, changes_per_file=_WARM_CHANGES, seed=work.seed), warm)
    ordered = Order(
        phase="load",
        root=str(folders.root),
        warm_root=str(warm.root),
        answer=str(folders.root / "load.json"),
        cores=this_engine.TIER.cores,
        memory=this_engine.TIER.memory,
        class_path="",
        **{"tasks": "many", **settings},
    )
    run_child("this_engine.py", ordered)
    answered = run_child("this_engine.py", replace(ordered, phase="run", answer=str(folders.root / "run.json")))
    say(f"{settings}: {answered.seconds:.1f} s; {truth.check(folders, this_engine.SIDE):,} rows are right")
    return answered


def report(tables: int, rows: int, changes: int, jobs: Mapping[str, Ran], batches: Mapping[str, float]) -> None:
    for commit in COMMITS:
        one = jobs[commit]
        print(f"commit: {commit:6}  {one.seconds / tables:6.2f} s and {one.cpu_seconds / tables:6.2f} CPU s a small "
              f"table and round, {one.peak_mib:,.0f} MiB; {batches[commit]:6.1f} s the large batch")  # fmt: skip
    of_small = {
        f"{commit}_{name}": round(getattr(jobs[commit], name) / tables, 3)
        for commit in COMMITS
        for name in ("seconds", "cpu_seconds")
    }
    summary = {
        "tables": tables,
        "table_rows": _ROWS,
        "table_changes": _CHANGES,
        **{f"table_{name}": value for name, value in of_small.items()},
        "table_ratio": round(jobs["merge"].cpu_seconds / jobs["direct"].cpu_seconds, 1),
        "rows": rows,
        "changes": changes,
        **{f"{commit}_seconds": round(batches[commit], 2) for commit in COMMITS},
        "ratio": round(batches["merge"] / batches["direct"], 1),
    }
    print_figures(summary, *(name for name in summary if name.endswith("_seconds")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=20, help="small ones")
    parser.add_argument("--rows", type=int, default=5_000_000, help="of the large one")
    parser.add_argument("--changes", type=int, default=200_000, help="of its batch")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        jobs = small(Path(folder) / "small", args.tables, args.seed)
        batches = large(Path(folder) / "large", args.rows, args.changes, args.seed)
    report(args.tables, args.rows, args.changes, jobs, batches)


if __name__ == "__main__":
    main()
