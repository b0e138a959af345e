"""The full load of one large file, and a large batch: seconds, resident memory, and what kills make the job do twice.

    python benchmarks/large_file.py [--gib 10] [--memory 2g]
    python benchmarks/large_file.py --gib 3.6 --changes 5000000 --kills 0

The last line of standard output is one JSON object; progress goes to standard error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import workload
from deltalake import DeltaTable
from measuring import WrongResultError, print_figures, say, tree_mib
from workload import KEY, TABLE

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec

_GIB, _CHUNK, _TENTHS = 1024**3, 1_000_000, 10


@dataclass
class Job:
    """Attributes:
    peak_mib: most resident memory of its processes together in the last run, shared pages counted once, looked at ten
        times a second.
    """

    root: Path
    memory: str
    peak_mib: float = 0.0
    result: dict[str, object] = field(default_factory=dict)

    @property
    def layout(self) -> Layout:
        return Layout.of(self._spec.roots, self._spec.tables[0])

    @property
    def _spec(self) -> JobSpec:
        tier = replace(DEFAULT_TIERS["large"], memory=self.memory, cores=2)
        roots = Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))
        table = TableSpec(table=TABLE, keys=(KEY,), size="large")
        return JobSpec(run_id="benchmark", roots=roots, tables=(table,), tiers={"large": tier})

    @contextmanager
    def _running(self) -> Iterator[subprocess.Popen[str]]:
        order = self.root / "order.json"
        order.write_text(to_json(self._spec), encoding="utf-8")
        command = [sys.executable, "-m", "spark_jobs.main", "--spec", str(order)]
        log = (self.root / "job.log").open("a")
        with log, subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, process_group=0) as child:
            try:
                yield child
            finally:
                if child.poll() is None:
                    os.killpg(child.pid, signal.SIGKILL)

    def run(self) -> float:
        """Seconds of the whole job, its start included.

        Raises:
            WrongResultError: it failed.
        """
        started, self.peak_mib = time.perf_counter(), 0.0
        with self._running() as child:
            while child.poll() is None:
                self.peak_mib = max(self.peak_mib, tree_mib(child.pid))
                time.sleep(0.1)
            self.result = json.loads((child.stdout.read() if child.stdout else "") or "{}")
        if self.result.get("status") != "succeeded":
            raise WrongResultError(str(self.result))
        return time.perf_counter() - started

    def run_until(self, parts: int) -> int:
        """Kill the job once so many parts are done; returns the number of parts that are."""
        with self._running() as child:
            while (done := self.parts_done()) < parts:
                if child.poll() is not None:
                    raise WrongResultError(f"the job ended before {parts} parts were done, with {child.returncode}")
                time.sleep(0.02)
            os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        return max(done, self.parts_done())

    def parts_done(self) -> int:
        return sum(1 for _ in Path(self.layout.state, "parts").glob("*/*.json"))

    def files_written(self) -> int:
        """Data files of the change table, named by a commit or not."""
        return sum(1 for _ in Path(self.layout.changes).glob("*.parquet"))


Totals = dict[str, int]
"""Rows, and of each column the sum of its values, or of the lengths of its texts, modulo 2**64."""


@dataclass(frozen=True)
class Rows:
    """All but the keys repeats after each million."""

    seed: int

    def chunk(self, number: int) -> pa.Table:
        return _with_keys(self._first, pc.add(self._first.column(KEY), 2 * number * _CHUNK))

    @cached_property
    def _first(self) -> pa.Table:
        return workload.load_rows(0, _CHUNK, (self.seed, "large"))

    def write(self, path: Path, size: int) -> int:
        """One file of about so many bytes; returns its rows."""
        number = 0
        with pq.ParquetWriter(path, workload.SCHEMA) as writer:
            while path.stat().st_size < size:
                writer.write_table(self.chunk(number), row_group_size=_CHUNK // 10)
                number += 1
        _age(path)
        return number * _CHUNK

    def write_changes(self, path: Path, rows: int, changes: int, totals: Totals) -> Totals:
        """One file of updates, deletes and inserts of different keys at random; the totals after it."""
        chance, made, chunks = np.random.default_rng(self.seed), [], rows // _CHUNK
        for number in range(chunks):
            old, count = self.chunk(number), changes // chunks
            at = pa.array(chance.choice(_CHUNK, count, replace=False))
            found = old.take(at)
            ops = np.repeat(["U", "D", "I"], [count - count // 4 - count // 7, count // 7, count // 4])
            is_insert = pa.array(ops == "I")
            fresh = _with_keys(old.take(pa.array(chance.permutation(_CHUNK)[:count])), found.column(KEY))
            fresh = _with_keys(fresh, pc.if_else(is_insert, pc.add(fresh.column(KEY), 1), fresh.column(KEY)))
            gone, new = found.filter(pc.invert(is_insert)), fresh.filter(pa.array(ops != "D"))
            totals = _sum(_sum(totals, _totals(gone), -1), _totals(new), 1)
            made.append(fresh.add_column(0, workload.OPERATION, pa.array(ops)))
        together = pa.concat_tables(made)
        pq.write_table(together.take(pa.array(chance.permutation(together.num_rows))), path)
        _age(path)
        return totals


def _with_keys(rows: pa.Table, keys: pa.ChunkedArray) -> pa.Table:
    return rows.set_column(rows.schema.get_field_index(KEY), workload.SCHEMA.field(KEY), keys)


def _age(path: Path) -> None:
    """With a time of a minute ago: a job leaves files alone that may still be written."""
    os.utime(path, (time.time() - 60,) * 2)


def file_totals(path: Path) -> Totals:
    source = pq.ParquetFile(path)
    found = _totals(workload.SCHEMA.empty_table())
    for group in range(source.num_row_groups):
        found = _sum(found, _totals(source.read_row_group(group, workload.SCHEMA.names)), 1)
    return found


def check(job: Job, wanted: Totals) -> None:
    """Compare the totals of the replica, read by `deltalake`, with those that it must have.

    Raises:
        WrongResultError: they differ.
    """
    found = _totals(workload.SCHEMA.empty_table())
    stream = DeltaTable(job.layout.replica).scan(columns=workload.SCHEMA.names)
    for batch in pa.RecordBatchReader.from_stream(stream):
        found = _sum(found, _totals(pa.table(batch).cast(workload.SCHEMA)), 1)
    if wanted != found:
        raise WrongResultError(f"the replica has {found}, and must have {wanted}")


def _totals(rows: pa.Table) -> Totals:
    return {"rows": rows.num_rows, **{name: _total(rows.column(name)) for name in workload.SCHEMA.names}}


def _sum(totals: Totals, others: Totals, sign: int) -> Totals:
    return {name: (value + sign * others[name]) % 2**64 for name, value in totals.items()}


def _total(values: pa.ChunkedArray) -> int:
    kind = values.type
    if pa.types.is_string(kind):
        values = pc.utf8_length(values)
    elif pa.types.is_floating(kind):
        values = pc.floor(pc.multiply(values, 1e6)).cast(pa.int64())
    elif pa.types.is_decimal(kind):
        values = pc.multiply(values, pa.scalar(100)).cast(pa.int64())
    return int(pc.sum(values.cast(pa.int64())).as_py() or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--gib", type=float, default=10.0, help="size of the file")
    parser.add_argument("--memory", default="2g", help="of the tier")
    parser.add_argument("--changes", type=int, default=0, help="of a batch after the load, in one file")
    parser.add_argument("--kills", type=int, default=_TENTHS - 1, help="of a second load, one after each tenth")
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        job = Job(Path(folder), args.memory)
        landed = Path(job.layout.landing, "LOAD00000001.parquet")
        landed.parent.mkdir(parents=True)
        made = Rows(args.seed)
        rows = made.write(landed, round(args.gib * _GIB))
        totals = file_totals(landed)
        say(f"{rows:,} rows, {landed.stat().st_size / _GIB:.1f} GiB")
        seconds = job.run()
        check(job, totals)
        parts, peak = job.files_written(), job.peak_mib
        say(f"{parts} parts in {seconds:.1f} s, at most {peak:.0f} MiB")
        found = {"gib": args.gib, "rows": rows, "parts": parts, "seconds": round(seconds, 1), "peak_mib": round(peak)}
        if args.changes:
            after = made.write_changes(landed.with_name("20240101-000000000.parquet"), rows, args.changes, totals)
            found |= {"changes": args.changes, "batch_seconds": round(job.run(), 1)}
            check(job, after)
            found["batch_peak_mib"] = round(job.peak_mib)
            say(f"{args.changes:,} changes in {found['batch_seconds']} s, at most {job.peak_mib:.0f} MiB")
        if args.kills:
            landed.with_name("20240101-000000000.parquet").unlink(missing_ok=True)
            shutil.rmtree(job.root / "lake")
            found |= kill(job, parts, args.kills)
            check(job, totals)
    print_figures(found, "rows", "parts", "seconds", "peak_mib")


def kill(job: Job, parts: int, kills: int) -> dict[str, object]:
    """A load that is killed after each tenth of its parts, then runs to its end."""
    twice: list[int] = []
    for tenth in range(1, kills + 1):
        done = job.run_until(tenth * parts // (kills + 1))
        twice.append(job.files_written() - sum(twice) - done)
        say(f"killed at {done} of {parts} parts; {twice[-1]} begun and not done")
    resumed = job.run()
    return {"kills": kills, "parts_done_twice": twice, "last_run_seconds": round(resumed, 1)}


if __name__ == "__main__":
    main()
