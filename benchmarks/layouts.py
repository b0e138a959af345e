"""What a layout saves: files that a filter opens and rows that batches write anew, counted from Delta's log.

    python benchmarks/layouts.py [--rows 200000] [--batches 10] [--tasks one|many]

Changes come to the newest of forty days, as they do to orders. Counts, not seconds: they are the same on every machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from measuring import print_figures, say

from airflow_gddl.contract.actions import Maintain
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session import SessionSettings

DAYS = 40
FIRST = date(2024, 1, 1)
FILE_BYTES = 512 * 1024
# Outside Databricks Delta takes the size of files from the session alone.
_SIZES = {
    "spark.databricks.delta.optimize.maxFileSize": str(FILE_BYTES),
    "spark.databricks.delta.optimize.minFileSize": str(FILE_BYTES // 2),
    "spark.sql.files.maxRecordsPerFile": "20000",
}
_SPARK = LazySpark(SessionSettings(cores=2, memory="4g", brief=True, extra=_SIZES))
FIGURES = ("files", "opened_for_a_day", "opened_for_a_key", "rows_written", "bytes_written")
LAYOUTS: Mapping[str, Mapping[str, Any]] = {
    "none": {},
    "cluster_by: [day]": {"cluster_by": ("day",)},
    "cluster_by: [id]": {"cluster_by": ("id",)},
    "partition_by: [day]": {"partition_by": ("day",)},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--batches", type=int, default=10)
    parser.add_argument("--tasks", choices=("one", "many"), default="one")
    asked = parser.parse_args()
    found: dict[str, dict[str, int]] = {}
    for name, fields in LAYOUTS.items():
        with TemporaryDirectory() as folder:
            found[name] = dict(zip(FIGURES, _measured(Path(folder), fields, asked), strict=True))
        say(f"{name}: {found[name]}")
    print_figures(found, "files", "rows_written", "bytes_written")


def _measured(root: Path, fields: Mapping[str, Any], arguments: argparse.Namespace) -> tuple[int, int, int, int, int]:
    spec = TableSpec(table="s.orders", keys=("id",), sequence_by=("seq",), size="medium", **fields)
    roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
    layout = Layout.of(roots, spec)
    tiers = {**DEFAULT_TIERS, "medium": replace(DEFAULT_TIERS["medium"], tasks=arguments.tasks)}
    job = JobSpec(run_id="r", roots=roots, tables=(spec,), tiers=tiers)
    chance = np.random.default_rng(1)
    days = chance.permutation(np.arange(arguments.rows) % DAYS)
    _land(layout, "LOAD00000001.parquet", np.arange(arguments.rows), days)
    _run(job)
    _run(replace(job, options=JobOptions(action=Maintain())))
    newest = np.flatnonzero(days >= DAYS - 2)
    first = 0
    for batch in range(arguments.batches + 1):  # the first one gives the table the type of its sequence
        ids = np.sort(chance.choice(newest, 200, replace=False))
        _land(layout, f"20240301-{batch + 1:09d}.parquet", ids, days[ids], batch + 1)
        _run(job)
        first = first or DeltaTable(layout.replica).version()
    written = list(_written(layout.replica, first))
    day, key = str(FIRST + timedelta(days=7)), arguments.rows // 2
    table = DeltaTable(layout.replica)
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return (
        len(files), sum(_may_hold(f, "day", day) for f in files), sum(_may_hold(f, "id", key) for f in files),
        sum(rows for rows, _ in written), sum(size for _, size in written),
    )  # fmt: skip


def _land(layout: Layout, name: str, ids: np.ndarray, days: np.ndarray, batch: int = 0) -> None:
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.int64()),
        "day": pa.array([FIRST + timedelta(days=int(d)) for d in days], pa.date32()),
        "note": pa.array([f"{batch} {hash((int(i), batch)):x}" for i in ids]),
    }
    if batch:
        columns = {"Op": ["U"] * len(ids), "seq": [batch * 10_000 + n for n in range(len(ids))], **columns}
    Path(layout.landing).mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), Path(layout.landing, name))


def _run(job: JobSpec) -> None:
    (outcome,) = run_job(job, Runtime(storage=Storage(), spark=_SPARK), lambda _: None)
    if outcome.result.error is not None or outcome.result.warnings:
        raise SystemExit(f"{outcome.result.error} {outcome.result.warnings}")


def _written(path: str, after: int) -> Iterator[tuple[int, int]]:
    """Rows and bytes of each file that was added after a version."""
    for version in range(after + 1, DeltaTable(path).version() + 1):
        for line in Path(path, "_delta_log", f"{version:020d}.json").read_text().splitlines():
            if found := json.loads(line).get("add"):
                yield json.loads(found["stats"])["numRecords"], found["size"]


def _may_hold(file: Mapping[str, Any], column: str, value: Any) -> bool:
    """As readers decide it: by the partition's value, else by the bounds."""
    if f"partition.{column}" in file:
        return str(file[f"partition.{column}"]) == value
    low, high = file[f"min.{column}"], file[f"max.{column}"]
    kind = type(value)
    return bool(kind(low) <= value <= kind(high))


if __name__ == "__main__":
    main()
