"""Small tables whose rows name a catalog, and jobs over them by the code of every job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_gddl.contract.extensions import CatalogSpec
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import Clock, NoSpark, Runtime, utc_now
from spark_jobs.job.job_tables import run_job
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write

GLUE = CatalogSpec(kind="glue", region="eu-west-1")


@dataclass(frozen=True)
class CatalogWorld:
    """Attributes:
    catalogs: that the jobs know.
    environ, clock: of the jobs.
    """

    root: Path
    catalogs: Mapping[str, CatalogSpec] = field(default_factory=lambda: {"main": GLUE})
    environ: Mapping[str, str] = field(default_factory=dict)
    clock: Clock = utc_now

    @property
    def lake(self) -> Lake:
        return Lake(self.root)

    def job(self, specs: Sequence[TableSpec], options: JobOptions | None = None) -> JobSpec:
        return replace(self.lake.job(specs, options), catalogs=self.catalogs)

    def run(self, *specs: TableSpec, options: JobOptions | None = None) -> Any:
        """Results by table; of one table its result."""
        runtime = Runtime(storage=Storage(), spark=NoSpark(), environ=self.environ, clock=self.clock)
        shown: list[JobResult] = []
        outcomes = run_job(self.job(specs, options), runtime, shown.append)
        found = {outcome.result.table: outcome.result for outcome in outcomes}
        assert {result.table: result for result in shown} == found
        return found if len(specs) > 1 else found[specs[0].table]

    def add_column(self, spec: TableSpec, number: int) -> None:
        """A change file with a column that the table lacks."""
        columns = {
            "Op": ["I"],
            "seq": [100 * number],
            "id": pa.array([1000 + number], pa.int32()),
            "v": ["more"],
            f"extra{number}": pa.array(["x"]),
        }
        write(Path(self.lake.layout(spec).landing), f"20240102-{number:09d}.parquet", pa.table(columns))


def row(name: str = "orders", **fields: Any) -> TableSpec:
    return spec_of(name, **{"catalog": "main", "settle": "0s", **fields})


def codes(result: JobResult) -> list[str]:
    return [warning.code for warning in result.warnings if warning.code.startswith("CATALOG_")]
