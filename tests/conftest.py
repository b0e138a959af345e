"""The engines under test, one of each for the whole session: Spark starts once, and only when it is needed."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from copy import copy
from dataclasses import replace
from typing import Any, get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from airflow_gddl.contract.packages import LEAVES_SPARK_OUT
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.spark.session_settings import SessionSettings
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.places import TaskBounds, usual_bounds
from tests.harness import airflow_home, examples
from tests.harness.engine_port import EngineName, EnginePort, on_engine
from tests.harness.lanes import group_of, lane_of
from tests.harness.places import bounds_of, with_commits


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(examples)
    airflow_home.set_up()
    # Processes that tests are spread over are told a width, which commands then fold their tables to.
    os.environ.pop("COLUMNS", None)
    # Hundreds of short commands would each start a Java process. Tests of jobs on Spark take `with_spark`.
    os.environ.setdefault(LEAVES_SPARK_OUT, "1")
    # Files are whole once a test has written them; processes that tests start inherit it.
    os.environ["GDDL_SETTLE"] = "0s"
    # Collecting imports all libraries and compiles all tests: millions of objects that stay, walked again and again.
    gc.disable()


@pytest.fixture
def with_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that the test starts use Spark, as users' do."""
    monkeypatch.delenv(LEAVES_SPARK_OUT)


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell which tests must share a process, and which lane they are in."""
    for item in items:
        lane = lane_of(item)
        if lane != "core":
            item.add_marker(lane)
        if examples.is_property(item):
            item.add_marker(pytest.mark.random)
        group = group_of(item, config.rootpath / "tests")
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Null: xdist's own, where tests are not spread by group."""
    from tests.harness.scheduling import WaitingApart  # noqa: PLC0415 - xdist may be missing where the hook is not called

    return WaitingApart(config, log) if config.getoption("dist") == "loadgroup" else None


ENGINES: tuple[EngineName, ...] = get_args(EngineName)
# All tests share it, and Delta keeps each table that it has seen for an hour: with less, collecting takes over.
SPARK = LazySpark(SessionSettings(cores=2, memory="6g", brief=True))


class LocalPort:
    """An engine in this process; `run` works on a table of many tasks as `way_of` says.

    Attributes:
        bounds: of every table instead.
    """

    def __init__(self, name: EngineName, bounds: TaskBounds | None = None) -> None:
        self.name, self.bounds, self.spark = name, bounds, SPARK
        self.commits_by_table = False
        chosen = usual_bounds if bounds is None else lambda _: bounds
        self.runtime = Runtime(storage=Storage(), spark=self.spark, bounds_of=chosen)

    def everywhere(self) -> LocalPort:
        """The port whose jobs work on each table as `way_of` says."""
        if self.name != "many" or self.bounds is not None:
            return self
        port = copy(self)
        port.runtime, port.commits_by_table = replace(self.runtime, bounds_of=bounds_of), True
        return port

    def tiered(self, job: JobSpec) -> JobSpec:
        """The job with this engine in every tier."""
        job = replace(job, tiers={size: on_engine(self.name, tier) for size, tier in job.tiers.items()})
        return with_commits(job) if self.commits_by_table else job

    def run(self, job: JobSpec) -> list[JobResult]:
        port = self.everywhere()
        return [outcome.result for outcome in run_job(port.tiered(job), port.runtime, lambda _: None)]

    def read(self, path: str) -> list[dict[str, Any]]:
        if not DeltaCommits(self.runtime.storage).exists(path):
            return []
        try:
            return pa.table(DeltaTable(path).scan()).to_pylist()
        except DeltaError:  # a table with features that only Spark reads
            return self.read_by_spark(path)

    def read_by_spark(self, path: str) -> list[dict[str, Any]]:
        """The same, by a reader that takes every table and a second of time."""
        from spark_jobs.tables.spark_merge import SparkTables  # noqa: PLC0415 - tests of the other engine import no Spark

        tables = SparkTables(self.spark.for_table(), DeltaCommits(self.runtime.storage))
        return [row.asDict(recursive=True) for row in tables.read(path).collect()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tasks", choices=[*ENGINES, "both"], default="both", help="places to test: tasks of a tier")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--tasks")
        names = ENGINES if chosen == "both" else (chosen,)
        metafunc.parametrize("engine", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> EnginePort:
    return LocalPort(request.param)


@pytest.fixture(autouse=True)
def _commands_start_the_job_itself(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests of Airflow name another job for this process, which `gddl` would start, too."""
    if "airflow" not in request.path.parts[-2:]:
        monkeypatch.delenv("AIRFLOW__GDDL__JOB_COMMAND", raising=False)


@pytest.fixture(scope="session", autouse=True)
def _no_spark_is_left() -> Iterator[None]:
    yield
    SPARK.stop()
