"""The most memory of one task with a tall, a wide, a very wide table and one of long texts, against stated bounds.

    python benchmarks/memory_bounds.py [--scale 1.0]

Each shape is loaded, and then gets a batch of changes, in a process of its own whose address space is limited to the
bound: a step that needs more fails. The last line of standard output is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measuring import WrongResultError, print_figures, say

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.batch.totals import TableOutcome
from spark_jobs.job.table_job import run_guarded
from spark_jobs.spark.tasks import keep_freed_memory

SPEC = TableSpec(table="s.t", keys=("id",), sequence_by=("seq",), size="medium", settle="0s")
_MIB = 1024**2
_GROUP = 1_000_000
Rows = Callable[[int, int], dict[str, pa.Array]]
"""Columns of so many rows from an id on."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """A table and its bound.

    Attributes:
        rows: of the full load, at scale 1.
        group: rows of a row group of its files.
        changes: rows that a batch updates.
        most_mib: of address space, the libraries (some 900 MiB) included.
    """

    rows: int
    group: int
    changes: int
    most_mib: int
    columns: Rows


def _tall(start: int, count: int) -> dict[str, pa.Array]:
    return {"v": pa.array(np.arange(start, start + count) % 1000, pa.int32())}


def _of_numbers(columns: int) -> Rows:
    def made(start: int, count: int) -> dict[str, pa.Array]:
        values = np.arange(start, start + count, dtype=np.int64)
        return {f"c{number}": pa.array(values * (number + 1) % 100_003) for number in range(columns)}

    return made


def _long(start: int, count: int) -> dict[str, pa.Array]:
    def text(number: int) -> str:
        return np.random.default_rng(number).integers(97, 123, _MIB, np.uint8).tobytes().decode()

    return {"doc": pa.array([text(number) for number in range(start, start + count)], pa.string())}


SHAPES = {
    "50,000,000 rows of two columns": Shape(
        rows=50_000_000, group=_GROUP, changes=10_000, most_mib=6144, columns=_tall
    ),
    "200 columns": Shape(rows=500_000, group=50_000, changes=10_000, most_mib=6144, columns=_of_numbers(200)),
    "10,000 columns": Shape(rows=2_000, group=500, changes=100, most_mib=6144, columns=_of_numbers(10_000)),
    "texts of 1 MiB": Shape(rows=400, group=100, changes=40, most_mib=6144, columns=_long),
}
"""Bounds are `task_memory` of tier `medium`."""


def _files(shape: Shape, rows: int, folder: Path) -> None:
    folder.mkdir(parents=True)
    per_file = max(shape.group, rows // 5)
    for number, start in enumerate(range(0, rows, per_file), start=1):
        path, writer = folder / f"LOAD{number:08d}.parquet", None
        for first in range(start, min(start + per_file, rows), shape.group):
            count = min(shape.group, rows - first)
            table = pa.table({"id": pa.array(range(first, first + count), pa.int64()), **shape.columns(first, count)})
            writer = writer or pq.ParquetWriter(path, table.schema)
            writer.write_table(table)
        if writer is not None:
            writer.close()


def _changes(shape: Shape, rows: int, folder: Path) -> int:
    count = min(shape.changes, rows)
    ids = pa.array(range(0, rows, rows // count), pa.int64()).slice(0, count)
    values = shape.columns(rows, count)
    control = {"Op": pa.array(["U"] * count), "seq": pa.array([f"{n:020d}" for n in range(count)])}
    pq.write_table(pa.table({**control, "id": ids, **values}), folder / "20240101-000000001.parquet")
    return count


def _run(root: Path, most_mib: int) -> Iterator[dict[str, float]]:
    """The load, and the batch, in this process; the most memory so far after each."""
    resource.setrlimit(resource.RLIMIT_AS, (most_mib * _MIB, most_mib * _MIB))
    keep_freed_memory()
    roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
    job = JobSpec(run_id="run", roots=roots, tables=(SPEC,))
    (root / "waiting").rename(Layout.of(roots, SPEC).landing)
    for step in ("load", "batch"):
        if step == "batch":
            change = next((root / "changes").iterdir())
            change.rename(Path(Layout.of(roots, SPEC).landing) / change.name)
        begun, cpu = time.monotonic(), time.process_time()
        found = run_guarded(job, SPEC, Runtime(storage=Storage(), spark=NoSpark()))
        if not isinstance(found, TableOutcome) or found.result.status != "succeeded":
            raise WrongResultError(f"{step}: {found}")
        yield {
            "seconds": round(time.monotonic() - begun, 1), "cpu_seconds": round(time.process_time() - cpu, 1),
            "rows": found.result.rows_read,
            "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }  # fmt: skip


def _child(folder: str, most_mib: str) -> None:
    root = Path(folder)
    Path(Layout.of(Roots(landing=str(root / "landing"), lake=str(root / "lake")), SPEC).landing).parent.mkdir(
        parents=True, exist_ok=True
    )
    print(json.dumps(list(_run(root, int(most_mib)))))


@dataclass(frozen=True, kw_only=True)
class Figure:
    """What a shape took.

    Attributes:
        bound_mib: of address space.
        load_peak_mib, peak_mib: resident memory after the load, and after the batch.
    """

    shape: str
    rows: int
    bound_mib: int
    load_peak_mib: float
    peak_mib: float
    load_cpu_seconds: float
    cpu_seconds: float


def measured(name: str, shape: Shape, scale: float) -> Figure:
    rows = max(shape.group // 10, int(shape.rows * scale))
    with tempfile.TemporaryDirectory(prefix="gddl-memory-") as folder:
        root = Path(folder)
        _files(shape, rows, root / "waiting")
        (root / "changes").mkdir()
        changes = _changes(shape, rows, root / "changes")
        command = [sys.executable, __file__, "--child", folder, str(shape.most_mib)]
        ended = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if ended.returncode:
            raise WrongResultError(f"{name}: ended with status {ended.returncode} within {shape.most_mib:,} MiB")
        load, batch = json.loads(ended.stdout.splitlines()[-1])
    if (load["rows"], batch["rows"]) != (rows, changes):
        raise WrongResultError(f"{name}: {load['rows']} and {batch['rows']} rows instead of {rows} and {changes}")
    return Figure(
        shape=name, rows=rows, bound_mib=shape.most_mib, load_peak_mib=load["peak_mib"], peak_mib=batch["peak_mib"],
        load_cpu_seconds=load["cpu_seconds"], cpu_seconds=batch["cpu_seconds"],
    )  # fmt: skip


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        _child(*sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the rows of each shape")
    scale = parser.parse_args().scale
    figures = []
    for name, shape in SHAPES.items():
        figures.append(measured(name, shape, scale))
        say(str(figures[-1]))
    print_figures([asdict(figure) for figure in figures], "rows", "bound_mib", "load_peak_mib", "peak_mib")


if __name__ == "__main__":
    main()
