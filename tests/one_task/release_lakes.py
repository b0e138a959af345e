"""A small lake for each release, as that release wrote it: tables of each kind, and batches that were broken off.

`python -m tests.one_task.release_lakes` writes `tests/one_task/lakes/<version>.tar.xz` once, when a release is
prepared; the file of an earlier release never changes. Beside the lake it has the rows, and what was delivered, for
the oracle.

The ledger knows files by their paths, so that the lake is in a bucket, whose name is the same on each machine.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import TableNotFoundError

from airflow_gddl import __version__
from airflow_gddl.contract.codec import decode, plain, to_document
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Observer, Runtime, Step, silent
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals, TableOutcome
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.pipeline import run_table
from tests.harness.lake import Lake
from tests.harness.s3_server import Bucket, serving
from tests.harness.sharded import Sharded
from tests.oracle import DeliveredFile, Run

ROOTS = Roots(landing="s3://bucket/landing", lake="s3://bucket/lake")
FOLDER = Path(__file__).with_name("lakes")
PLAYED, SHARDS = "played.json", ("eu", "us")
TYPES = {"Op": "string", "seq": "int64", "id": "int64", "v": "string", "n": "int32"}
UNFINISHED = {
    "after_plan": "plan", "after_append": "append", "after_tombstones": "tombstones", "after_merge": "replica",
    "after_history": "history",
}  # fmt: skip
"""Tables whose last batch was broken off, and the step after which it was."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of a lake, and all that was delivered for it."""

    spec: TableSpec
    runs: tuple[Run, ...]

    def to_json(self) -> dict[str, Any]:
        return {"spec": json.loads(to_document(self.spec)), "runs": plain(self.runs)}

    @classmethod
    def of(cls, text: Mapping[str, Any]) -> Table:
        runs = tuple(decode(Run, run) for run in text["runs"])
        return cls(spec=decode(TableSpec, text["spec"]), runs=runs)


class BrokenOffError(Exception):
    """The run ends here."""


def change(op: str, seq: int, key: int, value: str | None = None) -> dict[str, Any]:
    return {"Op": op, "seq": seq, "id": key, "v": value, "n": None if value is None else seq}


def changes(number: int, *rows: Mapping[str, Any]) -> Run:
    """A run with one file of changes."""
    name = f"20240101-{number:09d}.parquet"
    return Run((DeliveredFile(name=name, kind="change", columns=tuple(TYPES), rows=tuple(rows)),))


def tables() -> Iterator[Table]:
    """Those that one process can play: inserts, updates, deletes, a late change of a deleted key."""
    loaded = [{"id": key, "v": f"load {key}", "n": key} for key in range(6)]
    load = Run((DeliveredFile(name="LOAD00000001.parquet", kind="load", columns=("id", "v", "n"), rows=tuple(loaded)),))
    runs = (
        load,
        changes(1, change("U", 10, 1, "one"), change("D", 11, 2, "load 2"), change("I", 12, 7, "seven")),
        changes(2, change("U", 9, 2, "late, of a deleted key"), change("D", 20, 3, "load 3"), change("U", 21, 7, "7")),
    )
    common: dict[str, Any] = {"keys": ("id",), "sequence_by": ("seq",), "tombstone_retention": "36500d"}
    kinds: dict[str, dict[str, Any]] = {
        "plain": {}, "history": {"history": True}, "soft": {"delete": "soft"}, "masked": {"mask": {"v": "hash"}},
    }  # fmt: skip
    for name, fields in (*kinds.items(), *((name, {"history": True}) for name in UNFINISHED)):
        yield Table(spec=TableSpec(table=f"s.{name}", **{**common, **fields}), runs=runs)
    yield Table(spec=TableSpec(table="s.keyless", keys=(), sequence_by=("seq",)), runs=(load, runs[1]))


@dataclass
class BucketLake:
    """Landing folders and a lake in a bucket that this process serves.

    Attributes:
        scratch: a local folder, in which files are written before they are put.
    """

    scratch: Path
    bucket: Bucket = field(default_factory=Bucket)
    sharded: Sharded = field(init=False)

    def __post_init__(self) -> None:
        self.sharded = Sharded(self.scratch, SHARDS)

    @contextmanager
    def served(self) -> Iterator[None]:
        """Variables of this process lead to the bucket until the block ends."""
        before = dict(os.environ)
        with serving(self.bucket) as endpoint:
            os.environ |= {
                "AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s",
                "AWS_REGION": "us-east-1", "AWS_ALLOW_HTTP": "true",
            }  # fmt: skip
            try:
                yield
            finally:
                os.environ.clear()
                os.environ |= before

    @property
    def of_shards(self) -> TableSpec:
        landings = {shard: f"s3://bucket/landing-{shard}" for shard in SHARDS}
        return replace(self.sharded.spec, table="s.shards", shard_landings=landings)

    def layout(self, spec: TableSpec) -> Layout:
        return Layout.of(ROOTS, spec)

    def land(self, spec: TableSpec, run: Run) -> None:
        Lake(self.scratch).land(spec, run, TYPES)
        self.put()

    def put(self) -> None:
        """Put what was written."""
        for path in [path for path in self.scratch.rglob("*.parquet") if path.is_file()]:
            name = path.relative_to(self.scratch).as_posix().replace("/s/t/", "/s/shards/")
            self.bucket.objects[name] = path.read_bytes()
            path.unlink()

    def raising(self, spec: TableSpec, observe: Observer = silent) -> JobResult:
        return run_table(self._table_run(spec, JobOptions(), observe), RunTotals())

    def rows(self, path: str) -> list[dict[str, Any]]:
        """All rows of a Delta table; empty where there is none."""
        try:
            table = DeltaTable(path)  # `is_deltatable` would hold the lock that this process needs to answer it
        except TableNotFoundError:
            return []
        found: list[dict[str, Any]] = pa.table(table.scan()).to_pylist()
        return found

    def done(self, spec: TableSpec, options: JobOptions) -> JobResult:
        run = self._table_run(spec, options, silent)
        outcome = attempt(run, totals_of(run.job))
        assert isinstance(outcome, TableOutcome), outcome
        assert outcome.result.error is None, outcome.result.error
        return outcome.result

    def _table_run(self, spec: TableSpec, options: JobOptions, observe: Observer) -> TableRun:
        job = replace(Lake(self.scratch).job([spec], options), roots=ROOTS)
        return TableRun(job=job, spec=spec, runtime=Runtime(storage=Storage(), spark=NoSpark(), observe=observe))

    def play(self) -> dict[str, Any]:
        """Write all tables; return what was played."""
        played = list(tables())
        for table in played:
            for run in table.runs[:-1]:
                self.land(table.spec, run)
                self.raising(table.spec)
            self.land(table.spec, table.runs[-1])
            with suppress(BrokenOffError):
                self.raising(table.spec, broken_off(table.spec.name))
        for shard in SHARDS:
            self.sharded.load(shard, {1: f"{shard} 1", 2: f"{shard} 2"})
        self.put()
        self.raising(self.of_shards)
        for shard in SHARDS:
            self.sharded.change(shard, ("U", 1, f"{shard} changed"), ("D", 2, f"{shard} 2"))
        self.put()
        self.raising(self.of_shards)
        return {"tables": [table.to_json() for table in played], "shards": self.sharded.truth}


def broken_off(name: str) -> Observer:
    """An observer that ends the run of a table, by its name, after a step."""

    def observe(reported: Step) -> None:
        if reported.step == UNFINISHED[name]:
            raise BrokenOffError(name)

    return observe if name in UNFINISHED else silent


def write(version: str, folder: Path = FOLDER) -> Path:
    """The file of a release.

    Raises:
        FileExistsError: it is there already.
    """
    folder.mkdir(exist_ok=True)
    path = folder / f"{version}.tar.xz"
    with tempfile.TemporaryDirectory() as scratch, path.open("xb") as file:
        lake = BucketLake(Path(scratch))
        with lake.served():
            played = lake.play()
        objects = {PLAYED: json.dumps(played).encode(), **lake.bucket.objects}
        with tarfile.open(fileobj=file, mode="w:xz") as archive:
            for name, data in sorted(objects.items()):
                info = tarfile.TarInfo(name)
                info.size = len(data)
                archive.addfile(info, io.BytesIO(data))
    return path


def restored(path: Path, scratch: Path) -> tuple[BucketLake, Sequence[Table]]:
    """The lake in a bucket, and its tables without that of several sources."""
    lake = BucketLake(scratch)
    with tarfile.open(path) as archive:
        for info in archive:
            file = archive.extractfile(info)
            assert file is not None, info.name
            lake.bucket.objects[info.name] = file.read()
    played = json.loads(lake.bucket.objects.pop(PLAYED))
    truth = {shard: {int(key): value for key, value in rows.items()} for shard, rows in played["shards"].items()}
    lake.sharded.truth, lake.sharded.files = truth, dict.fromkeys(truth, 1)
    return lake, [Table.of(one) for one in played["tables"]]


if __name__ == "__main__":
    print(write(__version__))
