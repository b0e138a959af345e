"""Tables under a job that goes on: from a file that landed to its rows in the replica, growth, and SIGKILL at random.

    python benchmarks/streaming.py [--scale 0.1] [--engine spark]

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from measuring import tree_mib

from airflow_gddl.contract.codec import from_json, to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import Continuous, EngineName, JobOptions, JobSpec, Roots, TableSpec, TierSpec

_TABLES, _ROWS, _CHANGES, _BATCHES, _EVERY, _KILLS = 10, 10_000, 20, 1000, 2.0, 20
_PATIENCE = 300.0


class WrongError(Exception):
    """What was measured is not right, or never came about."""


@dataclass
class Table:
    """One table: what landed, when, and what the replica must hold. Values count up, so that each tells its file.

    Attributes:
        landed: moment of each change file, by the wall clock, oldest first.
        rows: key to value.
    """

    spec: TableSpec
    layout: Layout
    landed: list[float] = field(default_factory=list)
    rows: dict[int, int] = field(default_factory=dict)
    changes: int = 0

    def load(self) -> None:
        self.rows = dict.fromkeys(range(_ROWS), 0)
        keys = pa.array(self.rows, pa.int64())
        self._land("LOAD00000001.parquet", {"id": keys, "v": pa.array(self.rows.values(), pa.int64())})

    def change(self, chance: random.Random) -> None:
        """A file of updates, an insert and a delete."""
        number = len(self.landed) + 1
        keys = [*chance.sample(range(_ROWS), _CHANGES - 2), _ROWS + number]
        ops = ["U"] * (_CHANGES - 2) + ["I"]
        self.rows |= dict.fromkeys(keys, number)
        if (old := _ROWS + number - 3) in self.rows:
            keys, ops = [*keys, old], [*ops, "D"]
            del self.rows[old]
        sequence = [f"{number:012d}{place:06d}" for place in range(len(keys))]
        columns = {"Op": ops, "transact_seq": sequence, "id": pa.array(keys, pa.int64()), "v": [number] * len(keys)}
        self.changes += len(keys)
        self._land(f"20240101-{number:09d}.parquet", columns)
        self.landed.append(time.time())

    def check(self) -> tuple[int, int]:
        """Rows and changes that were lost, and those that are there twice or should not be there."""
        if not DeltaTable.is_deltatable(self.layout.replica):
            return len(self.rows), 0
        replica = pa.table(DeltaTable(self.layout.replica).scan(columns=["id", "v"]))
        found = Counter(zip(replica["id"].to_pylist(), replica["v"].to_pylist(), strict=True))
        wanted = Counter(self.rows.items())
        changes = pa.table(DeltaTable(self.layout.changes).scan(columns=["id", "v"]))
        more = changes.num_rows - (_ROWS + self.changes)
        return sum((wanted - found).values()) + max(0, -more), sum((found - wanted).values()) + max(0, more)

    def _land(self, name: str, columns: dict[str, object]) -> None:
        folder = Path(self.layout.landing)
        folder.mkdir(parents=True, exist_ok=True)
        hidden = folder / f".{name}.tmp"
        pq.write_table(pa.table(columns), hidden)
        hidden.rename(folder / name)


@dataclass(frozen=True)
class Ground:
    """Tables below one folder, and the job that keeps them."""

    root: Path
    engine: EngineName
    tables: tuple[Table, ...]

    @classmethod
    def of(cls, root: Path, engine: EngineName) -> Ground:
        roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
        options = {"lookback": "1h"}
        specs = [
            TableSpec(table=f"bench.t{n}", keys=("id",), trigger="1s", options=options) for n in range(1, _TABLES + 1)
        ]
        made = cls(root, engine, tuple(Table(spec, Layout.of(roots, spec)) for spec in specs))
        for table in made.tables:
            table.load()
        return made

    def job(self) -> JobSpec:
        roots = Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))
        tiers = {"small": TierSpec(engine=self.engine, cores=2)}
        specs = tuple(table.spec for table in self.tables)
        return JobSpec(
            run_id="bench", roots=roots, tables=specs, tiers=tiers, options=JobOptions(continuous=Continuous())
        )

    def check(self) -> tuple[int, int]:
        found = [table.check() for table in self.tables]
        return sum(lost for lost, _ in found), sum(doubled for _, doubled in found)


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
                raise WrongError(f"after {_PATIENCE:.0f} s {seen} of {files} files each, failures: {self.failed[-3:]}")
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
    """Of one job. `firsts`, `lasts`: seconds of the turns in its first and last quarter; `mib`: memory after those."""

    latencies: Sequence[float]
    batches: int
    firsts: float
    lasts: float
    mib: tuple[float, float]


def measure(ground: Ground, rounds: int, chance: random.Random) -> Figures:
    """Files for all tables, every two seconds, into one job."""
    with running(ground) as (child, heard):
        _wait_for_load(heard)
        quarter = 0.0
        for number in range(rounds):
            started = time.monotonic()
            for table in ground.tables:
                table.change(chance)
            if number == rounds // 4:
                quarter = tree_mib(child.pid)
            if number % 10 == 9:
                _say(f"round {number + 1} of {rounds}, {len(heard.seconds)} batches")
            time.sleep(max(0.0, _EVERY - (time.monotonic() - started)))
        heard.wait(rounds)
        last = tree_mib(child.pid)
        child.send_signal(signal.SIGTERM)
        if child.wait(60) != 0 or heard.failed:
            raise WrongError(f"the job ended with {child.returncode}; failures: {heard.failed[-3:]}")
    latencies = [
        seen - landed
        for table in ground.tables
        for landed, seen in zip(table.landed, heard.visible[table.spec.table], strict=True)
    ]
    each = [seconds for seconds, _ in heard.seconds]
    part = max(1, len(each) // 4)
    firsts, lasts = statistics.median(each[part : 2 * part]), statistics.median(each[-part:])
    return Figures(latencies, len(each), firsts, lasts, (quarter, last))


def _wait_for_load(heard: Heard) -> None:
    deadline = time.monotonic() + _PATIENCE
    while len(heard.visible) < len(heard.ground.tables):
        if time.monotonic() > deadline:
            raise WrongError(f"only {sorted(heard.visible)} were loaded; failures: {heard.failed[-3:]}")
        time.sleep(0.1)


def kill(ground: Ground, times: int, chance: random.Random) -> None:
    """Jobs killed at random moments while files land; the last one is left to take all, and told to stop."""
    longest = 8.0 if ground.engine == "delta_rs" else 40.0
    for number in range(times):
        with running(ground) as (child, _):
            deadline = time.monotonic() + chance.uniform(1.0, longest)
            while time.monotonic() < deadline:
                for table in ground.tables:
                    table.change(chance)
                time.sleep(chance.uniform(0.1, 1.0))
            # With its workers, or without them: then they finish what they are at, beside the next job.
            (os.killpg if number % 2 else os.kill)(child.pid, signal.SIGKILL)
        _say(f"killed {number + 1} of {times}")
    with running(ground) as (child, heard):
        deadline = time.monotonic() + _PATIENCE
        while ground.check() != (0, 0) and time.monotonic() < deadline:
            time.sleep(1)
        child.send_signal(signal.SIGTERM)
        if child.wait(120) != 0:
            raise WrongError(f"the last job ended with {child.returncode}; failures: {heard.failed[-3:]}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1: 1,000 batches and twenty kills")
    parser.add_argument("--engine", choices=("delta_rs", "spark"), default="delta_rs")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    chance = random.Random(given.seed)  # noqa: S311 - keys and moments, no secrets
    rounds, kills = max(4, round(_BATCHES / _TABLES * given.scale)), max(1, round(_KILLS * given.scale))
    with tempfile.TemporaryDirectory(prefix="gddl-bench-") as folder:
        steady = Ground.of(Path(folder, "steady"), given.engine)
        figures = measure(steady, rounds, chance)
        lost, doubled = steady.check()
        _say(f"steady: {lost} lost, {doubled} doubled")
        shaken = Ground.of(Path(folder, "shaken"), given.engine)
        kill(shaken, kills, chance)
        more_lost, more_doubled = shaken.check()
    lost, doubled = lost + more_lost, doubled + more_doubled
    print(json.dumps(_answer(figures, given.engine, kills) | {"lost": lost, "doubled": doubled}))
    return 1 if lost or doubled else 0


def _answer(figures: Figures, engine: str, kills: int) -> dict[str, object]:
    ranked = sorted(figures.latencies)
    return {
        "engine": engine,
        "median_seconds": round(statistics.median(ranked), 3),
        "p95_seconds": round(ranked[int(0.95 * (len(ranked) - 1))], 3),
        "batches": figures.batches,
        "batch_seconds": [round(figures.firsts, 3), round(figures.lasts, 3)],
        "mib": [round(value) for value in figures.mib],
        "kills": kills,
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
