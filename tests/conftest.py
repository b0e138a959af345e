"""One engine for the whole test session: Spark starts once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from spark_jobs.engines.delta_commits import DeltaCommits
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.job import run_job
from spark_jobs.runtime import LazySpark, Runtime
from spark_jobs.session import SessionSettings
from spark_jobs.storage import Storage
from tests.engine_port import EnginePort
from tests.lanes import group_of


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell which tests must share a process."""
    for item in items:
        group = group_of(item, config.rootpath / "tests")
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


class SparkPort:
    """The Spark engine in this process."""

    def __init__(self) -> None:
        self.spark = LazySpark(SessionSettings(cores=2, memory="3g", brief=True))
        self.runtime = Runtime(storage=Storage(), spark=self.spark)

    def run(self, job: JobSpec) -> list[JobResult]:
        return [outcome.result for outcome in run_job(job, self.runtime, lambda _: None)]

    def read(self, path: str) -> list[dict[str, Any]]:
        tables = Tables(self.spark.for_table(), DeltaCommits(self.runtime.storage))
        if not tables.exists(path):
            return []
        return [row.asDict(recursive=True) for row in tables.read(path).collect()]


@pytest.fixture(scope="session")
def engine() -> Iterator[EnginePort]:
    port = SparkPort()
    yield port
    port.spark.stop()
