"""What a day of a large fleet costs, by unit costs measured here; held against a run of 10,000 tables.

    python benchmarks/scale_model.py [--tables 100000] [--gb-a-day 1000] [--check 10000]

Unit costs come from runs of `--sizes` tables, the check from one of another size and another mixture of work. The last
line of standard output is one JSON object; progress goes to standard error. See README.md beside this file.
"""

from __future__ import annotations

import argparse
import functools
import os
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import small_folders
import this_engine
import workload
from landing_polls import LargeBucket, on_s3
from measuring import WrongResultError, print_figures, say, tree_cpu_seconds
from small_folders import MIX, SmallFolders
from small_tables import run
from this_engine import Side
from workload import Folders, Workload

from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.tables_with_work import Question, observe
from airflow_gddl.topology.pipelines import arrange
from spark_jobs.batch.runtime import LazySpark
from spark_jobs.spark.session import SessionSettings
from tests.s3.test_requests import REQUESTS_OF_A_BATCH

_SIDE, _CORES, _SEED, _ROWS = "one", 2, 1, 10_000
_FEW, _MANY, _CHECKED_CHANGES, _CHECKED_SHARE = 100, 1_000, 500, 0.3
_LARGE_ROWS, _LARGE_BATCHES = 2_000_000, (20_000, 200_000)
_COMPARED, _GOAL = 25, 0.2
_HOUR, _DAY_HOURS, _GB = 3600.0, 24.0, 10**9


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What a job, or a poll, took; `objects` and `bytes`: that it added to the lake."""

    cpu_seconds: float
    seconds: float
    objects: float = 0.0
    bytes: float = 0.0

    def times(self, factor: float) -> Spent:
        return Spent(**{name: value * factor for name, value in asdict(self).items()})

    def plus(self, other: Spent) -> Spent:
        return Spent(**{name: value + getattr(other, name) for name, value in asdict(self).items()})

    def less(self, other: Spent) -> Spent:
        return self.plus(other.times(-1))


@dataclass(frozen=True, kw_only=True)
class Line:
    """Costs that grow with a number: `fixed + each * number`."""

    fixed: Spent
    each: Spent

    @classmethod
    def through(cls, few: tuple[int, Spent], many: tuple[int, Spent]) -> Line:
        each = many[1].less(few[1]).times(1 / (many[0] - few[0]))
        return cls(fixed=few[1].less(each.times(few[0])), each=each)

    def at(self, number: float) -> Spent:
        return self.fixed.plus(self.each.times(number))


@dataclass(frozen=True, kw_only=True)
class UnitCosts:
    """Attributes:
    load, idle, poll: of a job of so many tables with a first load each, of one without work, and of a poll of them.
    batch: of a job in which each of so many tables has `_FEW` changes.
    row: of each further change of a small table.
    large: of a batch of so many changes of random keys into a table of `_LARGE_ROWS` rows, Spark's start left out.
    change_bytes: of a change in a landed file, in files of `_LARGE_BATCHES` changes, and of `_FEW` in small ones.
    """

    load: Line
    idle: Line
    poll: Line
    batch: Line
    row: Spent
    large: Line
    change_bytes: float
    small_change_bytes: float


class SmallFleet:
    """So many tables of `_ROWS` rows, in a folder of their own."""

    def __init__(self, root: Path, tables: int, changes: Sequence[int]) -> None:
        """`changes`: of the change file of each round."""
        self.root, self.tables = root, tables
        self.folders = SmallFolders(root, tuple(f"t{n:05d}" for n in range(tables)))
        self.rounds, self.changes = 0, tuple(changes)
        self._write()

    def _write(self) -> None:
        """A full load, and change files of different sizes whose sequences follow one another."""
        made = self.folders.made
        for number, count in enumerate(self.changes):
            work = Workload(rows=_ROWS, files=number + 1, changes_per_file=count, seed=_SEED, mix=MIX)
            apart = made if number == 0 else Folders(self.root / f"made-{number}")
            workload.write(work, apart)
            if apart is not made:
                newest = apart.change_files()[-1]
                newest.rename(made.waiting / newest.name)
                shutil.rmtree(apart.root)

    def load(self) -> Spent:
        return self._run("load", self.folders.made.load_files(), self.tables, _ROWS)

    def round(self, worked: int) -> Spent:
        """The next change file for so many of the tables."""
        self.rounds += 1
        file = self.folders.made.change_files()[self.rounds - 1]
        return self._run(f"round-{self.rounds}", [file], worked, self.changes[self.rounds - 1])

    def idle(self) -> Spent:
        return self._run("idle", [], 0, 0)

    def _run(self, run_id: str, files: Sequence[Path], worked: int, rows: int) -> Spent:
        replace(self.folders, names=self.folders.names[:worked]).land(_SIDE, files)
        before = self._lake_size()
        job = self.folders.job(_SIDE, run_id, self.folders.tier(_SIDE, _CORES))
        ran = run(self.folders, job, rows, worked)
        added = [now - then for now, then in zip(self._lake_size(), before, strict=True)]
        spent = Spent(cpu_seconds=ran.cpu_seconds, seconds=ran.seconds, objects=added[0], bytes=added[1])
        say(f"{self.tables:,} tables, {run_id} of {worked:,}: {spent}")
        return spent

    def _lake_size(self) -> tuple[int, int]:
        sizes = [
            Path(folder, name).stat().st_size
            for folder, _, names in os.walk(self.folders.lake(_SIDE))
            for name in names
        ]
        return len(sizes), sum(sizes)

    def poll(self) -> Spent:
        """All tables' folders once, as a sensor does, in pipelines of a tier's `tables_per_job`."""
        job = replace(self.folders.job(_SIDE, "poll", DEFAULT_TIERS["small"]), tiers=DEFAULT_TIERS)
        specs = tuple(replace(spec, size="small", source="s") for spec in job.tables)
        began, cpu = time.perf_counter(), time.process_time()
        found = polled(replace(job, tables=specs))
        spent = Spent(cpu_seconds=time.process_time() - cpu, seconds=time.perf_counter() - began)
        if found != self.tables:
            raise WrongResultError(f"a poll sees work of {found} tables instead of {self.tables}")
        say(f"{self.tables:,} tables, poll: {spent}")
        return spent

    def check(self, worked: int) -> None:
        names = self.folders.names[:worked]
        small_folders.check(self.folders, _SIDE, names[:: max(1, worked // _COMPARED)], self.rounds)


def polled(job: JobSpec) -> int:
    """How many tables of these have files of which no load is known."""
    found = 0
    by_name = {spec.table: spec for spec in job.tables}
    for one in arrange(job.tables, job.tiers).pipelines:
        specs = tuple(by_name[name] for name in one.tables)
        document = PipelineDocument(pipeline=one, roots=job.roots, runner="local", specs=specs, tiers=job.tiers)
        work = observe(document, Question(run="scheduled__1", now="2026-01-31T12:00:00.000000+00:00"))
        found += len({**work.initial, **work.increments})
    return found


def poll_lists(tables: int, files: int) -> float:
    """LIST requests of a poll on S3, a table: tables of one schema, each with so many files."""
    with tempfile.TemporaryDirectory() as lake, on_s3(LargeBucket()) as bucket:
        bucket.names = sorted(
            f"land/s/t{n:05d}/20260101-{file:09d}.parquet" for n in range(tables) for file in range(files)
        )
        roots = Roots(landing="s3://bucket/land", lake=lake)
        specs = tuple(TableSpec(table=f"s.t{n:05d}", keys=("id",), source="s") for n in range(tables))
        polled(JobSpec(run_id="poll", roots=roots, tables=specs, tiers=DEFAULT_TIERS))
        return bucket.lists / tables


def large_batches(root: Path) -> tuple[Line, float]:
    """Batches of two sizes into one large table, and the bytes of a change in their files."""
    spark = LazySpark(SessionSettings(cores=_CORES, memory=this_engine.TIER.memory, single=True))
    side, folders = Side(spark, this_engine.TIER), Folders(root)
    change_bytes, marks = 0.0, list[tuple[int, Spent]]()
    workload.write(Workload(rows=_LARGE_ROWS, files=1, changes_per_file=_FEW, seed=_SEED), folders)
    this_engine.run(folders, side, lambda _: None, _LARGE_ROWS)
    for number, count in enumerate((_FEW, *_LARGE_BATCHES)):  # the first one warms up
        work = Workload(rows=_LARGE_ROWS, files=number + 1, changes_per_file=count, seed=_SEED)
        apart = Folders(root / f"made-{number}")
        workload.write(work, apart)
        file = apart.change_files()[-1]
        change_bytes = file.stat().st_size / count
        file.rename(folders.landed / file.name)
        shutil.rmtree(apart.root)
        cpu, began = tree_cpu_seconds(os.getpid()), time.perf_counter()
        this_engine.run(folders, side, lambda _: None, count)
        spent = Spent(cpu_seconds=tree_cpu_seconds(os.getpid()) - cpu, seconds=time.perf_counter() - began)
        say(f"{count:,} changes into {_LARGE_ROWS:,} rows: {spent}")
        marks.append((count, spent))
    spark.stop()
    return Line.through(*marks[1:]), change_bytes


def unit_costs(root: Path, sizes: Sequence[int]) -> UnitCosts:
    """From a run of each of two sizes."""
    found: dict[str, list[tuple[int, Spent]]] = {}
    small_bytes = 0.0
    for size in sizes:
        fleet = SmallFleet(root / f"{size}", size, (_FEW, _MANY))
        small_bytes = fleet.folders.made.change_files()[0].stat().st_size / _FEW
        few = functools.partial(fleet.round, size)
        steps = {"load": fleet.load, "few": few, "many": few, "idle": fleet.idle, "poll": fleet.poll}
        for name, step in steps.items():
            found.setdefault(name, []).append((size, step()))
        fleet.check(size)
        shutil.rmtree(fleet.root)
    lines = {name: Line.through(*marks) for name, marks in found.items()}
    (tables, few_changes), (_, many_changes) = found["few"][-1], found["many"][-1]
    large, change_bytes = large_batches(root / "large")
    row = many_changes.less(few_changes).times(1 / (tables * (_MANY - _FEW)))
    row = replace(row, objects=0.0)  # a batch adds as many, whatever its rows
    return UnitCosts(
        load=lines["load"], idle=lines["idle"], poll=lines["poll"], batch=lines["few"], row=row, large=large,
        change_bytes=change_bytes, small_change_bytes=small_bytes,
    )  # fmt: skip


def round_of(costs: UnitCosts, quiet: float, worked: float, changes: float) -> Spent:
    """One job: its start, tables that it only looks at, tables with so many changes each."""
    batches = costs.batch.at(worked).plus(costs.row.times(worked * (changes - _FEW)))
    return batches.plus(costs.idle.each.times(quiet))


def checked(root: Path, costs: UnitCosts, tables: int) -> dict[str, dict[str, float]]:
    """Predicted and measured, by job and by what it took."""
    fleet, worked = SmallFleet(root / "check", tables, (_CHECKED_CHANGES,)), round(tables * _CHECKED_SHARE)
    predicted = {
        "load": costs.load.at(tables),
        "round": round_of(costs, tables - worked, worked, _CHECKED_CHANGES),
        "idle": costs.idle.at(tables),
        "poll": costs.poll.at(tables),
    }
    measured = {"load": fleet.load(), "round": fleet.round(worked), "idle": fleet.idle(), "poll": fleet.poll()}
    fleet.check(worked)
    shutil.rmtree(fleet.root)
    found = dict[str, dict[str, float]]()
    for job, spent in measured.items():
        for name, value in asdict(spent).items():
            guess = getattr(predicted[job], name)
            # Of the objects of a job without work there are none to compare.
            if value > tables / 100 or name.endswith("seconds"):
                found[f"{job} {name}"] = {"predicted": guess, "measured": value, "off": guess / value - 1}
    return found


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """The day that is asked for.

    Attributes:
        share: of the small tables that have changes in a round.
        large_tables: among `tables`; each has changes in each round.
        large_share: of the bytes of a day that are theirs.
        worker_cores, busy: of a worker, and how much of the day it may be busy.
    """

    tables: int
    gb_a_day: float
    rounds: int
    share: float
    large_tables: int
    large_share: float
    worker_cores: int
    busy: float

    def day(self, costs: UnitCosts, lists: float) -> Mapping[str, float]:
        small = self.tables - self.large_tables
        batches = small * self.share * self.rounds
        changes = self.gb_a_day * _GB * (1 - self.large_share) / costs.small_change_bytes
        pack = DEFAULT_TIERS["small"].tables_per_job
        jobs = self.rounds * -(-small // pack) * (1 - (1 - self.share) ** pack)
        large_batches = self.large_tables * self.rounds
        large_changes = self.gb_a_day * _GB * self.large_share / costs.change_bytes
        start, asked = costs.batch.fixed.cpu_seconds, REQUESTS_OF_A_BATCH
        hours = {
            "polls": costs.poll.each.cpu_seconds * self.tables * self.rounds,
            "starts of small tables' jobs": start * jobs,
            "small tables' batches": costs.batch.each.cpu_seconds * batches,
            "their further changes": costs.row.cpu_seconds * max(0.0, changes - _FEW * batches),
            "starts of large tables' jobs": start * large_batches,
            "large tables' batches": costs.large.fixed.cpu_seconds * large_batches,
            "their changes": costs.large.each.cpu_seconds * large_changes,
        }
        core_hours = sum(hours.values()) / _HOUR
        workers = core_hours / (_DAY_HOURS * self.worker_cores * self.busy)
        return {
            **{f"core hours: {name}": spent / _HOUR for name, spent in hours.items()},
            "core hours": core_hours,
            "jobs": jobs + large_batches,
            "batches": batches + large_batches,
            "changes": changes + large_changes,
            "changes a small batch": changes / batches,
            "changes a large batch": large_changes / large_batches if large_batches else 0.0,
            "workers": -(-workers // 1),
            "requests: lists of polls": lists * self.tables * self.rounds,
            **{f"requests: {kind} of batches": each * (batches + large_batches) for kind, each in asked.items()},
            "objects that small tables add": costs.batch.each.objects * batches,
        }


ASSUMPTIONS = f"""\
  - cores as here; a store answers as fast as this disk: waiting for S3 takes time, and no core
  - changes as in workload.py: ten columns, Parquet; a small table has {_ROWS:,} rows, a large one {_LARGE_ROWS:,}
    or more (growth.py: a batch of 10,000 changes costs about as much in 10 million rows as in one)
  - a table that is quiet is looked at by the sensor alone, and is in no job
  - a pack starts a job in each round in which any of its tables has changes, at random
  - work is spread evenly over the day; batches above {_MANY:,} and {_LARGE_BATCHES[-1]:,} changes cost as those below
  - a large table's job starts as a small tables' one: with a JVM
  - requests of a batch: as counted (tests/s3/test_requests.py); a large table's has more data files
  - left out: first loads, maintenance, Airflow (airflow_hour.py, airflow_parse.py), memory, idle cores between jobs"""


def report(costs: UnitCosts, fleet: Fleet, lists: float, checked: Mapping[str, Mapping[str, float]]) -> None:
    print("Unit costs (CPU seconds; of jobs, also objects and bytes in the lake)")
    for name, line in (("load", costs.load), ("batch", costs.batch), ("idle", costs.idle), ("poll", costs.poll)):
        each = line.each
        print(f"  {name}: {line.fixed.cpu_seconds:.2f} + {1000 * each.cpu_seconds:.3f} ms a table "
              f"({1000 * each.seconds:.3f} ms wall, {each.objects:.2f} objects, {each.bytes:,.0f} bytes)")  # fmt: skip
    print(f"  a further change of a small table: {1e6 * costs.row.cpu_seconds:.2f} us, {costs.row.bytes:.0f} bytes")
    print(f"  a large table's batch: {costs.large.fixed.cpu_seconds:.2f} s, "
          f"a change {1e6 * costs.large.each.cpu_seconds:.2f} us; {costs.change_bytes:.0f} bytes landed a change, "
          f"{costs.small_change_bytes:.0f} in files of {_FEW}")  # fmt: skip
    print(f"  a poll on S3: {lists:.3f} LIST requests a table with 10 files")
    print(f"Assumptions\n{ASSUMPTIONS}")
    day = fleet.day(costs, lists)
    print(f"A day of {fleet}\n" + "\n".join(f"  {name}: {value:,.1f}" for name, value in day.items()))
    for name, value in checked.items():
        print(f"{name}: predicted {value['predicted']:,.2f}, measured {value['measured']:,.2f}, {value['off']:+.1%}")
    worst = max((abs(v["off"]) for name, v in checked.items() if not name.endswith(" seconds")), default=None)
    goal = None if worst is None else worst <= _GOAL
    figures = {"units": asdict(costs), "poll_lists": lists, "day": day, "checked": checked, "worst": worst}
    print_figures({**figures, "within_goal": goal}, "poll_lists", "change_bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=100_000, help="of the fleet")
    parser.add_argument("--gb-a-day", type=float, default=1000.0, help="of change files, all tables together")
    parser.add_argument("--rounds", type=int, default=24, help="of each table a day")
    parser.add_argument("--share", type=float, default=0.1, help="of the small tables that have changes in a round")
    parser.add_argument("--large-tables", type=int, default=1_000, help="of the tables; have changes in each round")
    parser.add_argument("--large-share", type=float, default=0.9, help="of the bytes that are theirs")
    parser.add_argument("--worker-cores", type=int, default=16)
    parser.add_argument("--busy", type=float, default=0.5, help="share of the day that workers may be busy")
    parser.add_argument("--sizes", type=int, nargs=2, default=(500, 2_000), help="tables of the runs for unit costs")
    parser.add_argument("--check", type=int, default=10_000, help="tables of the run that checks; 0: none")
    asked = vars(parser.parse_args())
    sizes, check = asked.pop("sizes"), asked.pop("check")
    if check in sizes:
        parser.error("--check must be another number than --sizes: it would prove nothing")
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        costs = unit_costs(Path(folder), sizes)
        lists = poll_lists(tables=1_000, files=10)
        found = checked(Path(folder), costs, check) if check else {}
    fleet = Fleet(**asked)
    report(costs, fleet, lists, found)


if __name__ == "__main__":
    main()
