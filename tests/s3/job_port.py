"""An engine in a job of its own, started as users start it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from airflow_gddl.contract.packages import LEAVES_SPARK_OUT
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, TierTasks
from airflow_gddl.runners.interface import JobOutcome, ProgressEvent
from airflow_gddl.runners.this_machine import LocalRunner
from airflow_gddl.stores import Storage
from spark_jobs.tables.delta_log import DeltaCommits
from tests.harness.engine_port import EngineName


class Quiet:
    """Listens to nothing."""

    def on_progress(self, event: ProgressEvent) -> None: ...

    def on_result(self, result: JobResult) -> None: ...


@dataclass(frozen=True)
class JobPort:
    """See `EnginePort`.

    Attributes:
        environ: what the job is told beyond this process's environment.
    """

    name: EngineName
    environ: Mapping[str, str]

    def outcome(self, job: JobSpec) -> JobOutcome:
        # A Java process for each of the short jobs would take most of their time.
        tasks: TierTasks = "many" if self.name == "many" else "one"
        tiers = {size: replace(tier, tasks=tasks, cores=2, memory="1g") for size, tier in job.tiers.items()}
        environ = {**os.environ, LEAVES_SPARK_OUT: "" if self.name == "many" else "1", **self.environ}
        runner = LocalRunner(command=(sys.executable, "-m", "spark_jobs.main"), environ=environ)
        return runner.run(replace(job, tiers=tiers), Quiet())

    def run(self, job: JobSpec) -> list[JobResult]:
        by_table = {result.table: result for result in self.outcome(job).results}
        return [by_table[spec.table] for spec in job.tables]

    def read(self, path: str) -> list[dict[str, Any]]:
        storage = Storage(environ=self.environ)
        if not DeltaCommits(storage).exists(path):
            return []
        return pa.table(DeltaTable(path, storage_options=storage.options_of(path)).scan()).to_pylist()
