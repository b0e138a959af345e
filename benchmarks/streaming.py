"""Tables under a continuous job: from a file that landed to its rows in the replica, growth, and SIGKILL at random.

    python benchmarks/streaming.py [--scale 0.1] [--tasks many] [--tables 2]

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from measuring import WrongResultError, print_figures, say, tree_cpu_seconds, tree_mib
from streaming_ground import TABLES, Ground

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.result import JobResult

_BATCHES, _EVERY, _KILLS, _QUARTERS = 1000, 2.0, 20, 3
_PATIENCE = 300.0


@dataclass
class Heard:
    """What a job tells, as it tells it.

    Attributes:
        seconds: of each turn that took something, with the files that it took.
        visible: table to moments at which its files became visible, oldest first.
    """

    ground: Ground
    seconds: list[tuple[float, int]] = field(default_factory=list)
    visible: dict[str, list[float]] = field(default_factory=dict)
    failed: list[JobResult] = field(default_factory=list)

    def take(self, line: str) -> None:
        result = from_json(JobResult, line)
        if result.status == "failed":
            self.failed.append(result)
        if result.status != "succeeded":
            return
        table = next(table for table in self.ground.tables if table.spec.table == result.table)
        commit = Path(table.layout.replica, "_delta_log", f"{result.version:020d}.json")
        files = result.files - (1 if result.mode == "initial" else 0)
        self.visible.setdefault(result.table, []).extend([commit.stat().st_mtime] * files)
        if result.mode != "initial":
            self.seconds.append((result.seconds, files))

    def wait(self, files: int) -> None:
        """Until so many change files of each table are visible."""
        deadline = time.monotonic() + _PATIENCE
        while any(len(self.visible.get(table.spec.table, ())) < files for table in self.ground.tables):
            if time.monotonic() > deadline:
                seen = {name: len(moments) for name, moments in self.visible.items()}
                raise WrongResultError(
                    f"after {_PATIENCE:.0f} s {seen} of {files} files each, failures: {self.failed[-3:]}"
                )
            time.sleep(0.05)


@contextmanager
def running(ground: Ground) -> Iterator[tuple[subprocess.Popen[str], Heard]]:
    """The job as `gddl` starts it; killed at the end, should it still run."""
    order, heard = ground.root / "order.json", Heard(ground)
    order.write_text(to_json(ground.job()), encoding="utf-8")
    command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
    log = (ground.root / "job.log").open("a")
    with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0) as child:

        def hear() -> None:
            for line in child.stdout or ():
                heard.take(line)

        listener = threading.Thread(target=hear)
        listener.start()
        try:
            yield child, heard
        finally:
            if child.poll() is None:
                os.killpg(child.pid, signal.SIGKILL)
            listener.join(30)


@dataclass(frozen=True)
class Figures:
    """Of one job. The pairs are of its second and its last quarter: median seconds of a turn, processor seconds a file,
    memory at their ends."""

    latencies: Sequence[float]
    batches: int
    seconds: tuple[float, float]
    cpu: tuple[float, float]
    mib: tuple[float, float]


@dataclass(frozen=True)
class Mark:
    """A job at a moment: files that it has taken, its processor seconds and memory so far."""

    files: int
    cpu: float
    mib: float

    @classmethod
    def of(cls, heard: Heard, pid: int) -> Mark:
        return cls(sum(files for _, files in heard.seconds), tree_cpu_seconds(pid), tree_mib(pid))

    def cpu_since(self, before: Mark) -> float:
        return (self.cpu - before.cpu) / max(1, self.files - before.files)


def measure(ground: Ground, batches: int, chance: random.Random) -> Figures:
    """Files for all tables, every two seconds, into one job, until it has done so many batches."""
    with running(ground) as (child, heard):
        _wait_for_load(heard)
        marks: list[Mark] = []
        rounds = 0
        while len(heard.seconds) < batches:
            started = time.monotonic()
            for table in ground.tables:
                table.change(chance)
            rounds += 1
            if len(marks) < _QUARTERS and len(heard.seconds) >= (len(marks) + 1) * batches // (_QUARTERS + 1):
                marks.append(Mark.of(heard, child.pid))
            if rounds % 10 == 0:
                say(f"round {rounds}, {len(heard.seconds)} of {batches} batches")
            time.sleep(max(0.0, _EVERY - (time.monotonic() - started)))
        heard.wait(rounds)
        marks.append(Mark.of(heard, child.pid))
        child.send_signal(signal.SIGTERM)
        if child.wait(60) != 0 or heard.failed:
            raise WrongResultError(f"the job ended with {child.returncode}; failures: {heard.failed[-3:]}")
    latencies = [
        seen - landed
        for table in ground.tables
        for landed, seen in zip(table.landed, heard.visible[table.spec.table], strict=True)
    ]
    each = [seconds for seconds, _ in heard.seconds]
    part = max(1, len(each) // 4)
    return Figures(
        latencies=latencies,
        batches=len(each),
        seconds=(statistics.median(each[part : 2 * part]), statistics.median(each[-part:])),
        cpu=(marks[1].cpu_since(marks[0]), marks[-1].cpu_since(marks[-2])),
        mib=(marks[1].mib, marks[-1].mib),
    )


def _wait_for_load(heard: Heard) -> None:
    deadline = time.monotonic() + _PATIENCE
    while len(heard.visible) < len(heard.ground.tables):
        if time.monotonic() > deadline:
            raise WrongResultError(f"only {sorted(heard.visible)} were loaded; failures: {heard.failed[-3:]}")
        time.sleep(0.1)


def kill(ground: Ground, times: int, chance: random.Random) -> None:
    """Jobs killed at random moments while files land; the last one is left to take all, and asked to stop."""
    longest = 8.0 if ground.tasks == "one" else 40.0
    for number in range(times):
        with running(ground) as (child, _):
            deadline = time.monotonic() + chance.uniform(1.0, longest)
            while time.monotonic() < deadline:
                for table in ground.tables:
                    table.change(chance)
                time.sleep(chance.uniform(0.1, 1.0))
            # With its workers, or without them: then they finish what they are at, beside the next job.
            (os.killpg if number % 2 else os.kill)(child.pid, signal.SIGKILL)
        say(f"killed {number + 1} of {times}")
    with running(ground) as (child, heard):
        deadline = time.monotonic() + _PATIENCE
        while ground.check() != (0, 0) and time.monotonic() < deadline:
            time.sleep(1)
        child.send_signal(signal.SIGTERM)
        if child.wait(120) != 0:
            raise WrongResultError(f"the last job ended with {child.returncode}; failures: {heard.failed[-3:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 1,000 batches and twenty kills")
    parser.add_argument("--tasks", choices=("one", "many"), default="one")
    parser.add_argument("--kills", type=int, help="instead of the scale's; 0: latencies alone")
    parser.add_argument("--tables", type=int, default=TABLES)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)  # noqa: S311 - keys and moments, no secrets
    batches = max(4 * given.tables, round(_BATCHES * given.scale))
    kills = max(1, round(_KILLS * given.scale)) if given.kills is None else given.kills
    with tempfile.TemporaryDirectory(prefix="gddl-bench-") as folder:
        steady = Ground.of(Path(folder, "steady"), given.tasks, given.tables)
        figures = measure(steady, batches, chance)
        lost, doubled = steady.check()
        say(f"steady: {lost} lost, {doubled} doubled")
        if kills:
            shaken = Ground.of(Path(folder, "shaken"), given.tasks, given.tables)
            kill(shaken, kills, chance)
            more_lost, more_doubled = shaken.check()
            lost, doubled = lost + more_lost, doubled + more_doubled
    reported = {"tables": given.tables} | _answer(figures, given.tasks, kills)
    print_figures(reported | {"lost": lost, "doubled": doubled}, "batches", "median_seconds", "p95_seconds")
    return 1 if lost or doubled else 0


def _answer(figures: Figures, tasks: str, kills: int) -> dict[str, object]:
    ranked = sorted(figures.latencies)
    return {
        "tasks": tasks,
        "median_seconds": round(statistics.median(ranked), 3),
        "p95_seconds": round(ranked[int(0.95 * (len(ranked) - 1))], 3),
        "batches": figures.batches,
        "batch_seconds": [round(value, 3) for value in figures.seconds],
        "cpu_seconds_per_file": [round(value, 3) for value in figures.cpu],
        "mib": [round(value) for value in figures.mib],
        "kills": kills,
    }


if __name__ == "__main__":
    sys.exit(main())
