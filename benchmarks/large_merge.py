"""This engine against the hand-written job: four files of 50,000 changes into 5,000,000 rows of ten columns.

    python benchmarks/large_merge.py [--scale 0.02] [--changes 50000] [--growth] [--tasks many|one]

Both sides run on the same files, one after the other, each in processes of its own. The last line of standard output is
one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, get_args

import handwritten
import this_engine
import truth
import workload
from measuring import Answer, Order, last_version, print_figures, run_child, say, written_after
from workload import Folders, Workload

from airflow_gddl.contract.result import TableTasks

_ROWS, _FILES, _CHANGES_PER_FILE = 5_000_000, 4, 50_000
_GROWTH_ROWS, _GROWTH_CHANGES = (100_000, 1_000_000, 10_000_000), 10_000
_LEAST_ROWS, _LEAST_CHANGES = 1_000, 100
_PROGRAMS = {this_engine.SIDE: "this_engine.py", handwritten.SIDE: "handwritten.py"}


@dataclass(frozen=True, kw_only=True)
class Figures:
    """One side on one workload.

    Attributes:
        load_seconds: of the full load.
        rewritten: rows written to the replica though nothing had changed in them.
    """

    answer: Answer
    load_seconds: float
    rewritten: int
    work: Workload

    @property
    def changes_per_second(self) -> float:
        return self.work.changes / self.answer.seconds


@dataclass(frozen=True, kw_only=True)
class Growth:
    """Seconds of one batch into a table of so many rows, on either side."""

    rows: int
    changes: int
    seconds: float
    handwritten_seconds: float


def compare(work: Workload, root: Path, tasks: TableTasks = "many") -> dict[str, Figures]:
    """Both sides on one workload, checked: figures by side.

    Raises:
        ChildError: a side failed.
        WrongResultError: a side's replica is not what it must be.
    """
    folders = Folders(root)
    say(f"{work.rows:,} rows, {work.files} x {work.changes_per_file:,} changes: writing the files")
    workload.write(work, folders)
    found, class_path = {}, ""
    for side, program in _PROGRAMS.items():
        load = run_child(program, _order(side, "load", folders, tasks, class_path))
        class_path = load.class_path
        loaded = last_version(folders.replica(side))
        tiny = replace(work, rows=_LEAST_ROWS, files=1, changes_per_file=_LEAST_CHANGES)
        workload.write(tiny, _warm(folders, side))
        answer = run_child(program, _order(side, "run", folders, tasks, class_path))
        rewritten = written_after(folders.replica(side), loaded).rewritten
        found[side] = Figures(answer=answer, load_seconds=load.seconds, rewritten=rewritten, work=work)
        say(f"{side}: {answer.seconds:.1f} s; {truth.check(folders, side):,} rows are right")
        shutil.rmtree(folders.exported(side))
    return found


def _warm(folders: Folders, side: str) -> Folders:
    return Folders(folders.root / f"{side}-warm")


def _order(side: str, phase: Literal["load", "run"], folders: Folders, tasks: TableTasks, class_path: str) -> Order:
    say(f"{side}: {phase}")
    return Order(
        phase=phase,
        root=str(folders.root),
        warm_root=str(_warm(folders, side).root),
        answer=str(folders.root / f"{side}-{phase}.json"),
        cores=this_engine.TIER.cores,
        memory=this_engine.TIER.memory,
        class_path=class_path,
        tasks=tasks,
    )


def measure_growth(scale: float, seed: int, root: Path, tasks: TableTasks) -> list[Growth]:
    """The cost of a batch of one size as the table grows."""
    found = []
    for full in _GROWTH_ROWS:
        work = scaled(full, 1, _GROWTH_CHANGES, scale, seed)
        sides = compare(work, root / f"growth-{full}", tasks)
        shutil.rmtree(root / f"growth-{full}")
        mine, other = (sides[s].answer.seconds for s in _PROGRAMS)
        found.append(Growth(rows=work.rows, changes=work.changes, seconds=mine, handwritten_seconds=other))
    return found


def scaled(rows: int, files: int, changes: int, scale: float, seed: int) -> Workload:
    return Workload(
        rows=max(_LEAST_ROWS, round(rows * scale)),
        files=files,
        changes_per_file=max(_LEAST_CHANGES, round(changes * scale)),
        seed=seed,
    )


def report(sides: dict[str, Figures], growth: list[Growth]) -> None:
    """Everything for a person, then the JSON line for a program."""
    for side, figures in sides.items():
        steps = ", ".join(f"{s.step} {s.seconds:.1f}" for s in figures.answer.steps)
        print(
            f"{side:12} {figures.answer.seconds:8.1f} s {figures.changes_per_second:10,.0f} changes/s "
            f"{figures.rewritten / figures.work.changes:8.2f} rows rewritten/change {figures.answer.peak_mib:8,.0f} MiB"
        )
        print(f"{'':12} seconds by step: {steps}; full load before: {figures.load_seconds:.1f}")
    for g in growth:
        print(f"{g.changes:,} changes into {g.rows:,} rows: {g.seconds:.1f} s, by hand {g.handwritten_seconds:.1f} s")
    print_figures(_summary(sides, growth), "changes_per_second", "baseline_changes_per_second", "peak_mib")


def _summary(sides: dict[str, Figures], growth: list[Growth]) -> dict[str, object]:
    mine, other = sides[this_engine.SIDE], sides[handwritten.SIDE]
    summary: dict[str, object] = {
        "rows": mine.work.rows,
        "changes": mine.work.changes,
        "changes_per_second": round(mine.changes_per_second, 1),
        "baseline_changes_per_second": round(other.changes_per_second, 1),
        "ratio": round(mine.changes_per_second / other.changes_per_second, 2),
        "load_seconds": round(mine.load_seconds, 1),
        "baseline_load_seconds": round(other.load_seconds, 1),
        "rows_rewritten_per_change": round(mine.rewritten / mine.work.changes, 4),
        "peak_mib": round(mine.answer.peak_mib),
    }
    if growth:
        summary["growth"] = [
            {"rows": g.rows, "changes": g.changes, "seconds": round(g.seconds, 2),
             "baseline_seconds": round(g.handwritten_seconds, 2)}
            for g in growth
        ]  # fmt: skip
    return summary


@contextmanager
def _folder(kept: str | None) -> Iterator[Path]:
    """`kept`, which must be new or empty, else a temporary one."""
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
            yield Path(folder)
        return
    path = Path(kept).absolute()
    path.mkdir(parents=True, exist_ok=True)
    if any(path.iterdir()):
        raise SystemExit(f"{path} is not empty")
    yield path


def _scale(text: str) -> float:
    value = float(text)
    if not 0 < value <= 10:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most 10")
    return value


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--scale", type=_scale, default=1.0, help="of rows and changes; 1 is the stated work")
    parser.add_argument("--changes", type=int, default=_CHANGES_PER_FILE, help="of each of the four files")
    parser.add_argument("--growth", action="store_true", help="also one batch each into tables of growing size")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    parser.add_argument("--keep", metavar="DIR", help="work in this folder and leave everything there")
    parser.add_argument("--tasks", choices=get_args(TableTasks), default="many", help="of this project's side")
    args = parser.parse_args()
    with _folder(args.keep) as folder:
        sides = compare(scaled(_ROWS, _FILES, args.changes, args.scale, args.seed), folder / "large", args.tasks)
        growth = measure_growth(args.scale, args.seed, folder, args.tasks) if args.growth else []
    report(sides, growth)


if __name__ == "__main__":
    main()
