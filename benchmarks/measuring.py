"""Child processes that are timed: their settings, their answers, and what they rewrote by their Delta logs."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.result import CommitMethod, TableTasks

HERE = Path(__file__).parent
# Some programs use `devtools` and `tests`, which are in no installed package. Last: what is measured is the package
# that is installed.
sys.path.append(str(HERE.parent))
_LOG_LINES = 40


@dataclass(frozen=True, kw_only=True)
class Order:
    """What a child is to do.

    Attributes:
        phase: `load` makes the replica from the full load, `run` applies the change files and is timed.
        root: of the workload's `Folders`.
        warm_root: of a tiny workload that the `run` phase does first, untimed.
        class_path: Delta's JARs for a session that doesn't find them itself; empty: it does.
        memory: of the JVM's heap.
        tasks, commit, iceberg: of this project's side; the other takes no notice.
        answer: file for the `Answer`.
    """

    phase: Literal["load", "run"]
    root: str
    warm_root: str
    answer: str
    cores: int
    memory: str
    class_path: str
    tasks: TableTasks
    commit: CommitMethod = "direct"
    iceberg: bool | int = False


@dataclass(frozen=True, kw_only=True)
class StepSeconds:
    """How long a step took, all batches together."""

    step: str
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a child found.

    Attributes:
        seconds: of the timed part: the full load, or the changes.
        peak_mib: largest resident memory of the child and its JVM up to the end of the timed part.
        steps: in the order in which they first ended.
        class_path: Delta's JARs that it ran with.
    """

    seconds: float = 0.0
    peak_mib: float = 0.0
    steps: tuple[StepSeconds, ...] = ()
    class_path: str = ""


A = TypeVar("A", bound=Answer)


def steps_of(seconds: Mapping[str, float]) -> tuple[StepSeconds, ...]:
    """Seconds by step, in the mapping's order."""
    return tuple(StepSeconds(step=step, seconds=spent) for step, spent in seconds.items())


class ChildError(Exception):
    """A child that failed, with the end of its log."""


class WrongResultError(Exception):
    """What was timed did not do its work, or not rightly."""


def say(text: str) -> None:
    """Progress, on standard error."""
    print(text, file=sys.stderr, flush=True)


def order_of_child() -> Order:
    """The order that this process was started with."""
    return from_json(Order, Path(sys.argv[1]).read_text(encoding="utf-8"))


def answer(order: Order, measured: Answer) -> None:
    Path(order.answer).write_text(to_json(measured), encoding="utf-8")


def run_child(program: str, order: Order, kind: type[A] = Answer, python: str = sys.executable) -> A:  # type: ignore[assignment]  # mypy takes no default for a type variable
    """Run a program of this folder in a process of its own.

    Args:
        kind: of its answer.
        python: that runs it; it needs this folder's imports, but not this project installed.

    Raises:
        ChildError: it failed.
    """
    order_file, log = Path(f"{order.answer}.order"), Path(f"{order.answer}.log")
    order_file.write_text(to_json(order), encoding="utf-8")
    # What the phase before has written shall not be flushed to disk on this one's time.
    os.sync()
    with log.open("wb") as out:
        ended = subprocess.run(
            [python, str(HERE / program), str(order_file)],
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            check=False,
            env={**os.environ, "PYTHONPATH": str(HERE.parent)},
        )
    if ended.returncode:
        tail = "\n".join(log.read_text(encoding="utf-8", errors="replace").splitlines()[-_LOG_LINES:])
        raise ChildError(f"{program} {order.phase} ended with status {ended.returncode}:\n{tail}")
    return from_json(kind, Path(order.answer).read_text(encoding="utf-8"))


def write_class_archive() -> None:
    """Have the archive of Java classes that a first job leaves; it may fail without one, as jobs do."""
    command = [sys.executable, "-P", "-m", "spark_jobs.spark.write_class_archive"]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def peak_mib() -> float:
    """Sum of the largest resident memory so far of this process and all below it (Linux)."""
    return sum(_kib(pid, "VmHWM") for pid in _tree(os.getpid())) / 1024


def tree_mib(root: int) -> float:
    """Resident memory now of a process and all below it, pages that they share counted once (Linux)."""
    return sum(_kib(pid, "Pss", "smaps_rollup") for pid in _tree(root)) / 1024


def tree_cpu_seconds(root: int) -> float:
    """Processor time that a process and all below it, living and ended, have taken so far (Linux)."""
    return sum(_ticks(pid) for pid in _tree(root)) / os.sysconf("SC_CLK_TCK")


def _tree(root: int) -> set[int]:
    tree, left = {root}, [root]
    while left:
        # Empty where the process has ended meanwhile.
        for task in Path(f"/proc/{left.pop()}/task").glob("*/children"):
            with suppress(OSError):
                left += map(int, task.read_text(encoding="utf-8").split())
        tree.update(left)
    return tree


def _ticks(pid: int) -> int:
    """User and system time, that of children that were waited for included; 0 when it has ended meanwhile."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return 0
    return sum(map(int, text.rpartition(")")[2].split()[11:15]))


def _kib(pid: int, name: str, file: str = "status") -> int:
    """A line of a file of `/proc`; 0 where the process has ended meanwhile."""
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text(encoding="utf-8").splitlines()
    except OSError:
        return 0
    found = {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return int(found.get(name, "0 kB").split()[0])


@dataclass(frozen=True)
class Written:
    """What commits wrote: rows in new data files, and the inserted and updated ones that called for it."""

    rows: int
    asked_for: int

    @property
    def rewritten(self) -> int:
        """Rows written though nothing had changed in them."""
        return self.rows - self.asked_for


def last_version(table: Path) -> int:
    return max(int(f.stem) for f in _commits(table))


def written_after(table: Path, version: int) -> Written:
    """What the commits after a version wrote, by the table's log itself.

    A file that comes back under a deletion vector is no new file, so its rows don't count.
    """
    known: set[str] = set()
    rows = asked_for = 0
    for file in _commits(table):
        actions: list[dict[str, Any]] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        adds = [a["add"] for a in actions if "add" in a and a["add"]["path"] not in known]
        known |= {add["path"] for add in adds}
        if int(file.stem) > version:
            rows += sum(int(json.loads(add["stats"])["numRecords"]) for add in adds)
            asked_for += sum(_asked_for(a["commitInfo"]) for a in actions if "commitInfo" in a)
    return Written(rows, asked_for)


def _asked_for(commit: Mapping[str, Any]) -> int:
    found = commit.get("operationMetrics", {})
    if "numOutputRows" in found and commit["operation"] == "WRITE":
        return int(found["numOutputRows"])
    return sum(int(found.get(f"numTargetRows{what}", 0)) for what in ("Inserted", "Updated"))


def _commits(table: Path) -> list[Path]:
    return sorted(f for f in (table / "_delta_log").glob("*.json") if f.stem.isdigit())


def print_figures(measured: Mapping[str, Any] | Sequence[Any], first: str, *others: str) -> None:
    """Print the figures, the last line of standard output, as one JSON line.

    Args:
        measured: figures by name, nested as they like.
        first, others: names of those that are above 0 wherever they stand, if anything was measured at all.

    Raises:
        SystemExit: one of these is absent, or is not above 0; exit status 1.
    """
    values = {name: list(_named(measured, name)) for name in (first, *others)}
    empty = [name for name, figures in values.items() if not figures or not all(map(_is_above_zero, figures))]
    if empty:
        raise SystemExit(f"nothing was measured: {', '.join(empty)} of {json.dumps(measured)}")
    sys.stdout.write(json.dumps(measured) + "\n")


def _is_above_zero(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value) and value > 0


def _named(figures: object, name: str) -> Iterator[object]:
    """Values of that name, at any depth."""
    if isinstance(figures, Mapping):
        for key, value in figures.items():
            if key == name:
                yield value
            yield from _named(value, name)
    elif isinstance(figures, list | tuple):
        for value in figures:
            yield from _named(value, name)
