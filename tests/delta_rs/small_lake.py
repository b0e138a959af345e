"""Small tables with a load and some changes, and jobs over them without Spark."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, Runtime, utc_now
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, TableOutcome
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_local import NoSpark
from spark_jobs.job.table_job import attempt, totals_of
from tests.conftest import LocalPort
from tests.landing import write

TIER = replace(DEFAULT_TIERS["small"], tasks="processes")


@dataclass(frozen=True)
class SmallLake:
    """Attributes:
    port: engine that runs the jobs; null: `delta_rs`, in this process.
    """

    root: Path
    tier: TierSpec = TIER
    port: LocalPort | None = None

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def layout(self, spec: TableSpec) -> Layout:
        return Layout.of(self.roots, spec)

    def job(self, specs: Sequence[TableSpec], options: JobOptions | None = None, run_id: str = "run") -> JobSpec:
        tiers = {**DEFAULT_TIERS, "small": self.tier}
        return JobSpec(
            run_id=run_id, roots=self.roots, tables=tuple(specs), tiers=tiers, options=options or JobOptions()
        )

    def run(
        self, spec: TableSpec, options: JobOptions | None = None, clock: Clock = utc_now
    ) -> TableOutcome | Declined:
        job = self.job([spec], options)
        if self.port is not None:
            runtime = replace(self.port.runtime, clock=clock)
            (outcome,) = run_job(self.port.tiered(job), runtime, lambda _: None)
            return outcome
        run = TableRun(job=job, spec=spec, runtime=Runtime(storage=Storage(), spark=NoSpark(), clock=clock))
        return attempt(run, totals_of(job))

    def done(self, spec: TableSpec, options: JobOptions | None = None, clock: Clock = utc_now) -> JobResult:
        """The result of a run that has to succeed, or find nothing to do."""
        found = self.run(spec, options, clock)
        assert isinstance(found, TableOutcome), found
        assert found.result.error is None, found.result.error
        return found.result

    def load(self, spec: TableSpec, rows: int = 3) -> None:
        ids = list(range(rows))
        table = pa.table({"id": pa.array(ids, pa.int32()), "v": [f"load {i}" for i in ids]})
        write(Path(self.layout(spec).landing), "LOAD00000001.parquet", table)

    def change(self, spec: TableSpec, number: int, rows: Sequence[tuple[str, int, str | None]], day: int = 1) -> None:
        """A change file of (operation, id, v), in order of sequence."""
        columns: dict[str, Any] = {
            "Op": [r[0] for r in rows],
            "seq": [100 * number + i for i in range(len(rows))],
            "id": pa.array([r[1] for r in rows], pa.int32()),
            "v": pa.array([r[2] for r in rows], pa.string()),
        }
        write(Path(self.layout(spec).landing), f"202401{day:02d}-{number:09d}.parquet", pa.table(columns))

    def replica(self, spec: TableSpec) -> dict[int, str]:
        rows = pa.table(DeltaTable(self.layout(spec).replica).scan()).to_pylist()
        return {row["id"]: row["v"] for row in rows}


def spec_of(name: str = "t", **fields: Any) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), sequence_by=("seq",), **fields)
