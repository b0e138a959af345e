"""The pipeline over landed files, in this process and without a JVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, Action, JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, Observer, Runtime, silent, utc_now
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import RunTotals
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_local import NoSpark
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import run_table
from tests.landing import to_table, write
from tests.oracle import Run


@dataclass(frozen=True)
class InProcessPort:
    """See `EnginePort`."""

    def runtime(self, observe: Observer = silent, clock: Clock = utc_now) -> Runtime:
        return Runtime(storage=Storage(), spark=NoSpark(), observe=observe, clock=clock)

    def run(self, job: JobSpec) -> list[JobResult]:
        return [outcome.result for outcome in run_job(job, self.runtime(), lambda _: None)]

    def read(self, path: str) -> list[dict[str, Any]]:
        return pa.table(DeltaTable(path).scan()).to_pylist() if DeltaTable.is_deltatable(path) else []


@dataclass(frozen=True)
class InProcessLake:
    """A landing folder and a lake."""

    root: Path
    port: InProcessPort = InProcessPort()

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def layout(self, spec: TableSpec) -> Layout:
        return Layout.of(self.roots, spec)

    def ledger(self, spec: TableSpec) -> Ledger:
        return Ledger.open(Storage(), self.layout(spec).state)

    def land(self, spec: TableSpec, run: Run, types: Mapping[str, str]) -> None:
        for file in run.files:
            write(Path(self.layout(spec).landing), file.name, to_table(file.rows, file.columns, types))

    def table_run(self, spec: TableSpec, runtime: Runtime | None = None, action: Action = "run") -> TableRun:
        options = JobOptions(action=action)
        job = JobSpec(run_id="run", roots=self.roots, tables=(spec,), tiers=DEFAULT_TIERS, options=options)
        return TableRun(job=job, spec=spec, runtime=runtime or self.port.runtime())

    def run(
        self, spec: TableSpec, observe: Observer = silent, *, clock: Clock = utc_now, action: Action = "run"
    ) -> JobResult:
        """`pipeline.run_table`; errors are raised."""
        return run_table(self.table_run(spec, self.port.runtime(observe, clock), action), RunTotals())
