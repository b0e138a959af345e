"""The engines under test, one of each for the whole session: Spark starts once, and only when it is needed."""

from __future__ import annotations

import gc
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, get_args

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError
from hypothesis import settings

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import LazySpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.plan.planned_batch import BatchPlan
from spark_jobs.spark.session_settings import SessionSettings
from spark_jobs.tables import table_rows
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.engine import TableContext
from tests.engine_port import EngineName, EnginePort, on_engine
from tests.lanes import group_of, is_deep, is_wide

# The time of an example is no finding: on a busy machine any may take seconds. The same examples are drawn each time,
# so that no change is blamed for what chance found; `make test-deep` draws others (`--hypothesis-profile chance`).
settings.register_profile("repeated", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("chance", deadline=None, print_blob=True, max_examples=1000)
settings.load_profile("repeated")


def pytest_configure() -> None:
    # Processes that tests are spread over are told a width, which commands then fold their tables to.
    os.environ.pop("COLUMNS", None)
    # Hundreds of short commands would each start a Java process. Tests of the default spread unset these.
    for tier in ("SMALL", "MEDIUM"):
        os.environ.setdefault(f"GDDL_TIERS__{tier}__TASKS", "processes")
    # Files are whole once a test has written them; processes that tests start inherit it.
    os.environ["GDDL_SETTLE"] = "0s"
    # Collecting imports all libraries and compiles all tests: millions of objects that stay, walked again and again.
    gc.disable()


def pytest_collection_finish() -> None:
    gc.freeze()
    gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tell which tests must share a process, and which lane they are in."""
    for item in items:
        if is_deep(item):
            item.add_marker(pytest.mark.deep)
        if item.get_closest_marker("deep") is None and is_wide(item):
            item.add_marker(pytest.mark.wide)
        group = group_of(item, config.rootpath / "tests")
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """Null: xdist's own, where tests are not spread by group."""
    from tests.scheduling import WaitingApart  # noqa: PLC0415 - xdist may be missing where the hook is not called

    return WaitingApart(config, log) if config.getoption("dist") == "loadgroup" else None


ENGINES: tuple[EngineName, ...] = get_args(EngineName)
# All tests share it, and Delta keeps each table that it has seen for an hour: with less, collecting takes over.
SPARK = LazySpark(SessionSettings(cores=2, memory="6g", brief=True))


@dataclass(frozen=True)
class Way:
    """How engine `spark` writes a table.

    Attributes:
        merged: by commits of Spark's Delta, like tables that only it can write.
        in_tasks: whole tables in tasks, by small ranges of keys, like large ones.
        large: batches by ranges of keys, like large ones.
    """

    merged: bool = False
    in_tasks: bool = False
    large: bool = False


def way_of(table: str) -> Way:
    """Two tables of eight are `merged`, every second one of either `in_tasks`, and so on.

    `GDDL_MERGED=014567` merges the other eighths; none if it is empty. A batch of such a table costs ten others.
    """
    number = zlib.crc32(table.encode())
    merged = str(number // 8 % 8) in os.environ.get("GDDL_MERGED", "23")
    return Way(merged=merged, in_tasks=bool(number // 2 % 2), large=bool(number // 4 % 2))


def table_of(way: Way, name: str = "crm.orders") -> str:
    """A table that is written in this way."""
    return next(table for table in (f"{name}_{number}" for number in range(1000)) if way_of(table) == way)


@contextmanager
def ways_of_spark() -> Iterator[None]:
    """Write each table as `way_of` says."""
    from spark_jobs.tables.many_tasks import BatchesBesideSpark, ManyTasksEngine  # noqa: PLC0415 - others import no Spark

    tables_of, is_small = ManyTasksEngine.tables_of, BatchesBesideSpark._is_small

    def small(self: BatchesBesideSpark, plan: BatchPlan, *others: Any) -> bool:
        large = plan.source == "files" and way_of(self.context.spec.table).large
        return not large and is_small(self, plan, *others)

    def known(self: ManyTasksEngine, context: TableContext, *paths: str) -> Any:
        way = way_of(context.spec.table)
        if way.merged:
            context = replace(context, tier=replace(context.tier, commit="merge"))
        tables = tables_of(self, context, *paths)
        if way.in_tasks:
            tables.is_for_tasks = lambda _: True
        return tables

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BatchesBesideSpark, "_is_small", small)
        patch.setattr(ManyTasksEngine, "tables_of", known)
        patch.setattr(table_rows, "RANGE_BYTES", 8_000)
        yield


class LocalPort:
    """An engine in this process."""

    def __init__(self, name: EngineName) -> None:
        self.name = name
        self.spark = SPARK
        self.runtime = Runtime(storage=Storage(), spark=self.spark)

    def tiered(self, job: JobSpec) -> JobSpec:
        """The job with this engine in every tier."""
        return replace(job, tiers={size: on_engine(self.name, tier) for size, tier in job.tiers.items()})

    def run(self, job: JobSpec) -> list[JobResult]:
        with ways_of_spark() if self.name == "spark" else nullcontext():
            return [outcome.result for outcome in run_job(self.tiered(job), self.runtime, lambda _: None)]

    def read(self, path: str) -> list[dict[str, Any]]:
        if not DeltaCommits(self.runtime.storage).exists(path):
            return []
        try:
            return pa.table(DeltaTable(path).scan()).to_pylist()
        except DeltaError:  # a table with features that only Spark reads
            return self.read_by_spark(path)

    def read_by_spark(self, path: str) -> list[dict[str, Any]]:
        """The same, by a reader that takes every table and a second of time."""
        from spark_jobs.tables.merged_tables import SparkTables  # noqa: PLC0415 - tests of the other engine import no Spark

        tables = SparkTables(self.spark.for_table(), DeltaCommits(self.runtime.storage))
        return [row.asDict(recursive=True) for row in tables.read(path).collect()]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--engine", choices=[*ENGINES, "both"], default="both", help="engines to test")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "engine" in metafunc.fixturenames:
        chosen = metafunc.config.getoption("--engine")
        names = ENGINES if chosen == "both" else (chosen,)
        metafunc.parametrize("engine", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> EnginePort:
    return LocalPort(request.param)


@pytest.fixture(scope="session", autouse=True)
def _no_spark_is_left() -> Iterator[None]:
    yield
    SPARK.stop()
