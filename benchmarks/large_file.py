"""The full load of one large file: seconds, resident memory, and what is done twice when the job is killed.

    python benchmarks/large_file.py [--gib 10] [--memory 2g]

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
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import workload
from deltalake import DeltaTable
from measuring import WrongResultError, say, tree_mib
from workload import KEY, TABLE

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec, Roots, TableSpec

_GIB, _CHUNK, _TENTHS = 1024**3, 1_000_000, 10


@dataclass
class Job:
    """Attributes:
    peak_mib: most resident memory of its processes together, looked at ten times a second.
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
        started = time.perf_counter()
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


def write(path: Path, size: int, seed: int) -> int:
    """One file of about so many bytes; returns its rows. All but the keys repeats after each million."""
    rows, count = workload.load_rows(0, _CHUNK, (seed, "large")), 0
    at = rows.schema.get_field_index(KEY)
    with pq.ParquetWriter(path, rows.schema) as writer:
        while path.stat().st_size < size:
            keys = pc.add(rows.column(KEY), 2 * count)
            writer.write_table(rows.set_column(at, KEY, keys), row_group_size=_CHUNK // 10)
            count += _CHUNK
    os.utime(path, (time.time() - 60,) * 2)
    return count


def check(job: Job, landed: Path) -> None:
    """Compare the totals of each column of the replica with those of the file.

    Raises:
        WrongResultError: they differ.
    """
    stored = [Path(uri.removeprefix("file://")) for uri in DeltaTable(job.layout.replica).file_uris()]
    wanted, found = _totals([landed]), _totals(stored)
    if wanted != found:
        raise WrongResultError(f"the replica has {found}, the file {wanted}")


def _totals(files: list[Path]) -> dict[str, int]:
    """Rows, and of each column the sum of its values, or of the lengths of its texts, modulo 2**64."""
    sums = {"rows": 0, **dict.fromkeys(workload.SCHEMA.names, 0)}
    for path in files:
        source = pq.ParquetFile(path)
        for group in range(source.num_row_groups):
            rows = source.read_row_group(group, workload.SCHEMA.names)
            sums["rows"] += rows.num_rows
            for name in rows.column_names:
                sums[name] = (sums[name] + _total(rows.column(name))) % 2**64
    return sums


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
    parser.add_argument("--seed", type=int, default=1, help="equal seeds give equal files")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gddl-benchmark-") as folder:
        job = Job(Path(folder), args.memory)
        landed = Path(job.layout.landing, "LOAD00000001.parquet")
        landed.parent.mkdir(parents=True)
        rows = write(landed, round(args.gib * _GIB), args.seed)
        say(f"{rows:,} rows, {landed.stat().st_size / _GIB:.1f} GiB")
        seconds = job.run()
        check(job, landed)
        parts, peak = job.files_written(), job.peak_mib
        say(f"{parts} parts in {seconds:.1f} s, at most {peak:.0f} MiB")
        shutil.rmtree(job.root / "lake")
        twice = []
        for tenth in range(1, _TENTHS):
            done = job.run_until(tenth * parts // _TENTHS)
            twice.append(job.files_written() - sum(twice) - done)
            say(f"killed at {done} of {parts} parts; {twice[-1]} begun and not done")
        resumed = job.run()
        check(job, landed)
    found = {
        "gib": args.gib, "rows": rows, "parts": parts, "seconds": round(seconds, 1), "peak_mib": round(peak),
        "kills": len(twice), "parts_done_twice": twice, "last_run_seconds": round(resumed, 1),
    }  # fmt: skip
    print(json.dumps(found))


if __name__ == "__main__":
    main()
