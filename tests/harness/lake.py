"""A landing folder and a lake on disk, what lands there, and jobs over them in this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Observer, Runtime, silent
from spark_jobs.batch.table_run import TableRun
from spark_jobs.batch.totals import Declined, RunTotals, TableOutcome
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.table_job import attempt, totals_of
from spark_jobs.ledger.ledger import Ledger
from spark_jobs.pipeline import run_table
from spark_jobs.plan.batching import SourceLimits
from spark_jobs.tables.file_parts import PartBounds
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.landing import to_table, write
from tests.oracle import Run

Row = Mapping[str, Any]
TIER = DEFAULT_TIERS["small"]


def spec_of(name: str = "t", **fields: Any) -> TableSpec:
    return TableSpec(table=f"s.{name}", keys=("id",), sequence_by=("seq",), **fields)


@dataclass(frozen=True)
class Lake:
    """Attributes:
    tier: of tables of size `small`, which has the way of commit, too.
    port: engine that runs the jobs, at the place that it says; None: one task in this process.
    limits: of what jobs read from sources themselves.
    parts: how a first load in one task is divided, without a port; None: as usual.
    """

    root: Path
    tier: TierSpec = TIER
    port: LocalPort | None = None
    limits: SourceLimits = field(default_factory=SourceLimits)
    parts: PartBounds | None = None

    @property
    def roots(self) -> Roots:
        return Roots(landing=str(self.root / "landing"), lake=str(self.root / "lake"))

    def layout(self, spec: TableSpec) -> Layout:
        return Layout.of(self.roots, spec)

    def landing(self, spec: TableSpec) -> Path:
        return Path(self.layout(spec).landing)

    def ledger(self, spec: TableSpec) -> Ledger:
        return Ledger.open(Storage(), self.layout(spec).state)

    def land(self, spec: TableSpec, run: Run, types: Mapping[str, str]) -> None:
        """Remove the files that are gone before the run, and write its files in its order."""
        for name in run.removed:
            (self.landing(spec) / name).unlink()
        for file in run.files:
            write(self.landing(spec), file.name, to_table(file.rows, file.columns, types))

    def load(self, spec: TableSpec, rows: int = 3) -> None:
        ids = list(range(rows))
        table = pa.table({"id": pa.array(ids, pa.int32()), "v": [f"load {i}" for i in ids]})
        write(self.landing(spec), "LOAD00000001.parquet", table)

    def change(self, spec: TableSpec, number: int, rows: Sequence[tuple[str, int, str | None]], day: int = 1) -> None:
        """A change file of (operation, id, v), in order of sequence."""
        columns: dict[str, Any] = {
            "Op": [r[0] for r in rows],
            "seq": [100 * number + i for i in range(len(rows))],
            "id": pa.array([r[1] for r in rows], pa.int32()),
            "v": pa.array([r[2] for r in rows], pa.string()),
        }
        write(self.landing(spec), f"202401{day:02d}-{number:09d}.parquet", pa.table(columns))

    def job(self, specs: Sequence[TableSpec], options: JobOptions | None = None, run_id: str = "run") -> JobSpec:
        tiers = {**DEFAULT_TIERS, "small": self.tier}
        return JobSpec(
            run_id=run_id, roots=self.roots, tables=tuple(specs), tiers=tiers, options=options or JobOptions()
        )

    def table_run(self, spec: TableSpec, options: JobOptions | None = None, **runtime: Any) -> TableRun:
        """Without Spark, with these fields of the runtime."""
        job = self.job([spec], options)
        given = {"storage": Storage(), "limits": self.limits, "parts": self.parts, **runtime}
        return TableRun(job=job, spec=spec, runtime=Runtime(spark=NoSpark(), **given))

    def run(self, spec: TableSpec, options: JobOptions | None = None, **runtime: Any) -> TableOutcome | Declined:
        if self.port is not None:
            job = self.port.tiered(self.job([spec], options))
            (outcome,) = run_job(job, replace(self.port.runtime, limits=self.limits, **runtime), silent)
            return outcome
        run = self.table_run(spec, options, **runtime)
        return attempt(run, totals_of(run.job))

    def raising(self, spec: TableSpec, options: JobOptions | None = None, **runtime: Any) -> JobResult:
        """`pipeline.run_table`; errors are raised."""
        return run_table(self.table_run(spec, options, **runtime), RunTotals())

    def result(self, spec: TableSpec, options: JobOptions | None = None, **runtime: Any) -> JobResult:
        """The result of a run, whatever it is."""
        found = self.run(spec, options, **runtime)
        assert isinstance(found, TableOutcome), found
        return found.result

    def done(self, spec: TableSpec, options: JobOptions | None = None, **runtime: Any) -> JobResult:
        """The result of a run that has to succeed, or find nothing to do."""
        found = self.result(spec, options, **runtime)
        assert found.error is None, found.error
        return found

    def results(self, port: LocalPort, job: JobSpec, observe: Observer = silent) -> dict[str, JobResult]:
        """Of a whole job on a port, by table."""
        if not job.tables:
            return {}
        outcomes = run_job(port.tiered(job), replace(port.runtime, observe=observe), silent)
        return {outcome.result.table: outcome.result for outcome in outcomes}

    def rows(self, path: str) -> list[dict[str, Any]]:
        """All rows of a Delta table; empty when there is no table."""
        return read(path) if self.port is None else self.port.read(path)

    def replica(self, spec: TableSpec) -> dict[int, str]:
        rows = pa.table(DeltaTable(self.layout(spec).replica).scan()).to_pylist()
        return {row["id"]: row["v"] for row in rows}


@dataclass
class LakeTable:
    """One table of a lake, whose row may change."""

    lake: Lake
    spec: TableSpec

    @property
    def roots(self) -> Roots:
        return self.lake.roots

    @property
    def layout(self) -> Layout:
        return self.lake.layout(self.spec)

    @property
    def landing(self) -> Path:
        return self.lake.landing(self.spec)

    def run(self, options: JobOptions | None = None, **fields: Any) -> JobResult:
        """The result of a run that has to succeed, by options or some of their fields."""
        return self.lake.done(self.spec, options or options_of(**fields))

    def refused(self, options: JobOptions | None = None) -> ErrorInfo:
        """The error of a run that has to fail."""
        error = self.lake.result(self.spec, options).error
        assert error is not None
        return error

    def rows(self, kind: str) -> list[dict[str, Any]]:
        return self.lake.rows(getattr(self.layout, kind))

    def values(self, kind: str, *columns: str) -> list[tuple[Any, ...]]:
        return sorted(tuple(row.get(name) for name in columns) for row in self.rows(kind))


def on_spark(job: JobSpec) -> JobSpec:
    """The job with Spark in every tier."""
    return replace(job, tiers={size: replace(tier, tasks="many") for size, tier in job.tiers.items()})


def read(path: str) -> list[dict[str, Any]]:
    """All rows of a Delta table by a reader that isn't Spark; empty when there is no table."""
    if not DeltaTable.is_deltatable(path):
        return []
    rows: list[dict[str, Any]] = read_table(path).to_pylist()
    return rows


def read_table(path: str) -> pa.Table:
    """All rows of a Delta table, with or without deletion vectors."""
    table = DeltaTable(path)
    vectors = "deletionVectors" in (table.protocol().reader_features or ())  # which the dataset of pyarrow lacks
    return pa.table(table.scan()) if vectors else table.to_pyarrow_table()
