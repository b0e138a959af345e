"""One table of which a thousand to a million files are ingested: what its next runs cost.

    python benchmarks/known_files.py [--files 1000 10000 100000 1000000] [--partition YYYYMMDD] [--every 300]

Landing folder and lake are on an S3 server in a process of its own, over HTTP. See README.md beside this file. The last
line of standard output is JSON; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import bisect
import io
import multiprocessing
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from landing_polls import LargeBucket, at_server
from measuring import WrongResultError, peak_mib, print_figures, say

from airflow_gddl.contract.extensions import DatePartition, DmsOptions, date_folder
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import run_guarded
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.plan.batching import BatchLimits, next_batch
from spark_jobs.plan.planned_batch import PlannedFile
from spark_jobs.rooms.dialects.dms import DmsDialect
from tests.harness.landed import committed
from tests.harness.s3_server import Bucket, serving

SIZES = (1_000, 10_000, 100_000, 1_000_000)
END = datetime(2026, 1, 31, 12, tzinfo=UTC)
_MODIFIED = "2024-01-31T10:20:30.000000+00:00"
_BUCKET = "s3://bucket/"
_ROOTS = Roots(landing=f"{_BUCKET}land", lake=f"{_BUCKET}lake")
_GROUP, _SINGLE, _AVERAGED = 500, 45, 20
_GOAL = 0.2


class Counting(list[str]):
    """Requests, which are counted and not kept; of an object that is read in part all bytes count."""

    def __init__(self, bucket: KnownBucket) -> None:
        super().__init__()
        self.bucket = bucket

    def append(self, request: str) -> None:
        method, key = request.split(" ", 1)
        kind = {"GET": "reads" if key else "lists", "HEAD": "reads", "PUT": "writes", "POST": "deletes"}[method]
        self.bucket.counted[kind] += 1
        if kind == "reads" and key.startswith("lake/_gddl/ledger/") and method == "GET":
            self.bucket.counted["ledger_bytes"] += len(self.bucket.objects.get(key, b""))


@dataclass
class KnownBucket(LargeBucket):
    """A landing folder of names alone, but for new files, and a lake."""

    counted: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.requests = Counting(self)

    def etag(self, key: str) -> str:
        return "e" if key.startswith("land/") else super().etag(key)

    def listing(self, query: dict[str, list[str]]) -> str:
        landed = query["prefix"][0].startswith("land/")
        found = super().listing(query) if landed else Bucket.listing(self, query)
        self.counted["listed"] += found.count("<Key>")
        return found

    def land(self, key: str, data: bytes) -> None:
        bisect.insort(self.names, key)
        self.objects[key] = data


def _serve(pipe: Connection) -> None:
    """The server's process. A message is a method's name and its arguments."""
    bucket = KnownBucket()
    with serving(bucket) as url:
        pipe.send(url)
        while (asked := pipe.recv()) != "end":
            what, *arguments = asked
            if what == "land":
                bucket.land(*arguments)
            elif what == "names":
                bucket.names = sorted(name.removeprefix(_BUCKET) for name in arguments[0])
            elif what == "empty":
                bucket.objects.clear()
                bucket.names.clear()
            pipe.send(bucket.counted)
            bucket.counted.clear()


class Server:
    """The S3 server, asked by messages."""

    def __init__(self, pipe: Connection) -> None:
        self.pipe = pipe

    def ask(self, *what: object) -> Counter[str]:
        """Requests since the last message."""
        self.pipe.send(what)
        counted: Counter[str] = self.pipe.recv()
        return counted


@contextmanager
def _server() -> Iterator[Server]:
    here, there = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_serve, args=(there,))
    child.start()
    at_server(here.recv())
    try:
        yield Server(here)
    finally:
        here.send("end")
        child.join()


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Of a run.

    Attributes:
        lists, reads, writes: requests, those of Delta tables among them.
        listed: objects that listings returned.
        ledger_bytes: read of the ledger.
    """

    cpu_seconds: float
    lists: float
    reads: float
    writes: float
    listed: float
    ledger_bytes: float


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Of a table of so many ingested files.

    Attributes:
        run: of a run with a new file, the mean of `_AVERAGED`; idle: without one; full: one that lists everything, as
            once a day; retained: the same where files older than 30 days were removed.
        peak_mib: most memory of the process so far.
    """

    files: int
    run: Cost
    idle: Cost
    full: Cost
    retained: Cost
    peak_mib: float


@dataclass
class KnownTable:
    """The table, its landing folder, and its ledger as so many runs have left it."""

    server: Server
    options: DmsOptions
    every: timedelta
    now: datetime
    done: int = 0
    landed: list[str] = field(default_factory=list)

    @property
    def spec(self) -> TableSpec:
        return TableSpec(
            table="s.t",
            keys=("id",),
            sequence_by=("seq",),
            options={"date_partition": self.options.date_partition},
        )

    @property
    def landing(self) -> str:
        return Layout.of(_ROOTS, self.spec).landing

    def name(self, at: datetime) -> str:
        folder = date_folder(self.options.date_partition, self.options.date_delimiter, at)
        return f"{self.landing}/{folder}/{at:%Y%m%d-%H%M%S}000.parquet".replace("//2", "/2")

    @property
    def full_load(self) -> str:
        return f"{self.landing}/LOAD00000001.parquet"

    def load(self) -> None:
        self._land(self.full_load, {"id": [0, 1, 2], "v": ["a", "b", "c"]})
        self.run("succeeded")

    def ingest(self, files: int) -> None:
        """Land files that runs have taken, by commits of the ledger alone: many files each, in the end one."""
        storage, dialect = Storage(), DmsDialect(self.spec, self.options)
        names = [self.name(self.now + self.every * number) for number in range(1, files + 1)]
        self.server.ask("names", [self.full_load, *self.landed, *names])
        self.landed += names
        ledger = Ledger.open(storage, Layout.of(_ROOTS, self.spec).state)
        ledger.keep(timedelta(days=7), self.landing, dialect.times)
        at = 0
        while at < files:
            count = min(_GROUP, files - at - _SINGLE) if files - at > _SINGLE else 1
            self.now += self.every * count
            planned = [_planned(name) for name in names[at : at + count]]
            limits = BatchLimits(max_files=count, max_bytes=10**12)
            plan = next_batch(planned, limits=limits, state=ledger.state, now=self.now)
            if plan is None:
                raise WrongResultError("no file waits")
            commit = committed(plan, ledger.state, self.landing, None, dialect.times)
            ledger.commit(replace(commit, state=replace(commit.state, keys=ledger.state.keys)))
            at += count
        ledger.note_listing(self.now.isoformat(timespec="microseconds"), {})

    def land_next(self) -> None:
        self.done += 1
        self.now += self.every
        row = {"Op": ["U"], "seq": [self.done], "id": [self.done % 3], "v": [f"v{self.done}"]}
        self.landed.append(self.name(self.now))
        self._land(self.landed[-1], row)

    def run(self, status: str) -> float:
        """CPU seconds of a run."""
        job = JobSpec(run_id=f"run-{self.done}", roots=_ROOTS, tables=(self.spec,), tiers=DEFAULT_TIERS)
        began = time.process_time()
        found = run_guarded(job, self.spec, Runtime(storage=Storage(), spark=NoSpark(), clock=lambda: self.now))
        seconds = time.process_time() - began
        if not isinstance(found, TableOutcome) or found.result.status != status:
            raise WrongResultError(f"{job.run_id} is not {status}: {found}")
        return seconds

    def _land(self, path: str, rows: Mapping[str, Sequence[Any]]) -> None:
        data = io.BytesIO()
        pq.write_table(pa.table(dict(rows)), data)
        self.server.ask("land", path.removeprefix(_BUCKET), data.getvalue())


def _planned(path: str) -> PlannedFile:
    return PlannedFile(
        path=path,
        kind="change",
        format="parquet",
        size=1,
        etag="e",
        modified=_MODIFIED,
        fingerprint="e",
        generation=1,
    )


def _cost(table: KnownTable, runs: int, status: str) -> Cost:
    """The mean of so many runs, with a new file each where they are to succeed."""
    spent, counted = 0.0, Counter[str]()
    for _ in range(runs):
        if status == "succeeded":
            table.land_next()
        table.server.ask("count")
        spent += table.run(status)
        counted.update(table.server.ask("count"))
    named = {name: counted[name] / runs for name in ("lists", "reads", "writes", "listed", "ledger_bytes")}
    return Cost(cpu_seconds=spent / runs, **named)


def _daily(table: KnownTable) -> Cost:
    """Of a run a day later, without a new file."""
    table.now += timedelta(days=1)
    return _cost(table, 1, "skipped")


def _retained(table: KnownTable) -> Cost:
    kept = table.landed[-round(timedelta(days=30) / table.every) :]
    table.server.ask("names", [table.full_load, *kept])
    return _daily(table)


def measured(server: Server, files: int, options: DmsOptions, every: timedelta) -> Costs:
    server.ask("empty")
    table = KnownTable(server, options, every, END - every * files)
    table.load()
    for _ in range(2):  # warms up
        table.land_next()
        table.run("succeeded")
    table.ingest(files - 3)
    costs = Costs(
        files=files,
        run=_cost(table, _AVERAGED, "succeeded"),
        idle=_cost(table, _AVERAGED, "skipped"),
        full=_daily(table),
        peak_mib=peak_mib(),
        retained=_retained(table),
    )
    say(str(costs))
    return costs


def listed_on_disk(files: int, options: DmsOptions, every: timedelta, root: Path) -> float:
    """CPU seconds of a listing from the newest file's name on, in a folder of so many empty files of a file system."""
    name, folders = "", set[Path]()
    for number in range(files):
        at = END - every * number
        folder = Path(root, date_folder(options.date_partition, options.date_delimiter, at))
        if folder not in folders:
            folder.mkdir(parents=True, exist_ok=True)
            folders.add(folder)
        path = folder / f"{at:%Y%m%d-%H%M%S}000.parquet"
        path.touch()
        name = name or path.relative_to(root).as_posix()
    after, storage = name.removesuffix(".parquet"), Storage()
    began = time.process_time()
    for _ in range(_AVERAGED):
        if [found.name for found in storage.list(str(root), after)] != [name]:
            raise WrongResultError(f"a listing after {after} has other files")
    return (time.process_time() - began) / _AVERAGED


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--files", type=int, nargs="+", default=SIZES, help="that are ingested")
    parser.add_argument("--partition", choices=get_args(DatePartition), default="none", help="of the landing folder")
    parser.add_argument("--every", type=float, default=300.0, help="seconds between two files")
    parser.add_argument("--disk", action="store_true", help="also a listing of so many files of a file system")
    asked = parser.parse_args()
    options, every = DmsOptions(date_partition=asked.partition), timedelta(seconds=asked.every)
    with _server() as server:
        found = [measured(server, files, options, every) for files in asked.files]
    for kind in ("run", "idle", "full", "retained"):
        for costs in found:
            cost: Cost = getattr(costs, kind)
            requests = f"{cost.lists:.1f} lists, {cost.reads:.1f} reads, {cost.writes:.1f} writes"
            print(f"{kind:8} {costs.files:9,} files: {cost.cpu_seconds:7.3f} s of CPU, {requests}, "
                  f"{cost.listed:,.0f} objects listed, {cost.ledger_bytes:,.0f} bytes of the ledger read")  # fmt: skip
    disk = {}
    for files in asked.files if asked.disk else ():
        with tempfile.TemporaryDirectory(prefix="gddl-known-files-") as folder:
            disk[files] = listed_on_disk(files, options, every, Path(folder))
        print(f"disk     {files:9,} files: {1000 * disk[files]:.1f} ms of CPU to list the newest")
    print_figures({"costs": [asdict(costs) for costs in found], "disk": disk}, "cpu_seconds", "peak_mib")


if __name__ == "__main__":
    sys.exit(main())
