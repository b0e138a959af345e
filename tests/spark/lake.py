"""A landing folder and a lake on disk, and jobs over them in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Observer, silent
from spark_jobs.job.job_tables import run_job
from spark_jobs.ledger.ledger import Ledger
from tests.conftest import LocalPort
from tests.harness.landing import to_table, write
from tests.oracle import Run

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Lake:
    """Attributes:
    tiers: beyond the usual ones.
    """

    root: Path
    tiers: Mapping[str, TierSpec] = field(default_factory=dict)

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def layout(self, spec: TableSpec) -> Layout:
        return Layout.of(self.roots, spec)

    def ledger(self, spec: TableSpec) -> Ledger:
        return Ledger.open(Storage(), self.layout(spec).state)

    def land(self, spec: TableSpec, run: Run, types: Mapping[str, str]) -> None:
        """Remove the files that are gone before the run, and write its files in its order."""
        for name in run.removed:
            (Path(self.layout(spec).landing) / name).unlink()
        for file in run.files:
            write(Path(self.layout(spec).landing), file.name, to_table(file.rows, file.columns, types))

    def job(self, specs: Sequence[TableSpec], options: JobOptions | None = None, run_id: str = "run") -> JobSpec:
        tiers = {**DEFAULT_TIERS, **self.tiers}
        return JobSpec(
            run_id=run_id, roots=self.roots, tables=tuple(specs), tiers=tiers, options=options or JobOptions()
        )

    def run(self, port: LocalPort, job: JobSpec, observe: Observer = silent) -> dict[str, JobResult]:
        """Results by table."""
        if not job.tables:
            return {}
        outcomes = run_job(port.tiered(job), replace(port.runtime, observe=observe), lambda _: None)
        return {outcome.result.table: outcome.result for outcome in outcomes}


def on_spark(job: JobSpec) -> JobSpec:
    """The job with Spark in every tier."""
    return replace(job, tiers={size: replace(tier, tasks="many") for size, tier in job.tiers.items()})


def read(path: str) -> list[Row]:
    """All rows of a Delta table by a reader that isn't Spark; empty when there is no table."""
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[Row] = read_table(path).to_pylist()
    return rows


def read_table(path: str) -> pa.Table:
    """All rows of a Delta table, with or without deletion vectors."""
    table = DeltaTable(path)
    vectors = "deletionVectors" in (table.protocol().reader_features or ())  # which the dataset of pyarrow lacks
    return pa.table(table.scan()) if vectors else table.to_pyarrow_table()
