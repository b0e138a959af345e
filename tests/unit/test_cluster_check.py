"""What a cluster must have; the questions themselves are asked of a real one in `tests/cluster`."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.result import STARTING_SPARK, TableTasks
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime, Step
from spark_jobs.job.job_tables import run_job
from spark_jobs.job.spread_spark import SparkSpread
from spark_jobs.spark import cluster_check
from spark_jobs.spark.cluster_check import check_versions
from tests.harness.lake import Lake, spec_of


@dataclass
class Row:
    said: str

    def __getitem__(self, name: str) -> str:
        return str(getattr(self, name))


@dataclass
class Cluster:
    """A session of some version, without a JVM as under Spark Connect, whose executors tell what `tell` makes of it."""

    version: str = "4.2.0"
    said: dict[str, Any] = field(default_factory=dict)

    def range(self, *_: int) -> Cluster:
        return self

    def mapInArrow(self, probe: Any, _schema: str) -> Cluster:  # noqa: N802 - Spark's name
        (batch,) = list(probe(iter([pa.RecordBatch.from_pydict({"id": [0]})])))
        self.said = {**json.loads(batch["said"][0].as_py()), **self.said}
        return self

    def collect(self) -> list[Row]:
        return [Row(json.dumps(self.said))]


@pytest.mark.parametrize("version", ["4.0.1", "4.1.0", "4.2.0", "4.3.0-SNAPSHOT"])
def test_supported_versions_pass(version: str) -> None:
    check_versions(Cluster(version))  # type: ignore[arg-type]  # as much of a session as is asked


@pytest.mark.parametrize("version", ["3.5.6", "5.0.0"])
def test_other_versions_are_refused(version: str) -> None:
    with pytest.raises(FatalError, match=f"Spark {version}") as caught:
        check_versions(Cluster(version))  # type: ignore[arg-type]  # as much of a session as is asked
    assert caught.value.code == "SPARK_UNSUPPORTED"
    assert "4.0" in caught.value.remedy


def test_on_databricks_it_is_spark_that_counts() -> None:
    """Its Delta has numbers of its own, and lies where nobody asks."""
    check_versions(having_delta("3.9.9", "4.0.0"), {"DATABRICKS_RUNTIME_VERSION": "17.3"})
    old: Any = Cluster("3.5.0")
    with pytest.raises(FatalError, match=r"Databricks Runtime 15\.4 is Spark 3\.5\.0.*spark_version") as caught:
        check_versions(old, {"DATABRICKS_RUNTIME_VERSION": "15.4"})
    assert caught.value.code == "SPARK_UNSUPPORTED"


def having_delta(delta: str | None, spark: str = "4.2.0") -> Any:
    """A session whose JVM has that Delta, or none."""
    names: Any = type("Names", (), {})
    jvm, package = names(), names()
    jvm.io = names()
    jvm.io.delta = names()
    if delta is not None:
        package.VERSION = lambda: delta
        setattr(jvm.io.delta, "package", package)  # noqa: B010 - `package` is a word of Java's, not Python's
    cluster = Cluster(spark)
    cluster._jvm = jvm  # type: ignore[attr-defined]  # where a classic session has its JVM
    return cluster


def test_supported_deltas_pass() -> None:
    for delta, spark in (("4.0.0", "4.0.2"), ("4.4.0", "4.2.0"), ("4.0.0-amzn-1-spark", "4.0.2-amzn-0")):
        check_versions(having_delta(delta, spark), {})


@pytest.mark.parametrize(
    ("delta", "code"),
    [
        ("3.3.2", "DELTA_UNSUPPORTED"),
        ("4.2.0", "DELTA_UNSUPPORTED"),
        ("5.0.0", "DELTA_UNSUPPORTED"),
        (None, "DELTA_MISSING"),
    ],
)
def test_other_deltas_and_none_are_refused(delta: str | None, code: str) -> None:
    with pytest.raises(FatalError, match=code) as caught:
        check_versions(having_delta(delta), {})
    assert (caught.value.code, delta or "no Delta" in str(caught.value)) == (code, delta or True)
    assert caught.value.remedy


class Refusing(NoSpark):
    """A source of Spark sessions whose Spark is too old."""

    @property
    def is_started(self) -> bool:
        return False

    def for_table(self, _work: int | None = None, /) -> Any:
        old: Any = Cluster("3.5.6")
        check_versions(old, {})


@pytest.mark.parametrize("tasks", ["many", "one"])
def test_nothing_is_written_before_it_is_refused(tmp_path: Path, tasks: TableTasks) -> None:
    tier = TierSpec(tasks=tasks)
    lake, spark = Lake(tmp_path, tier), Refusing()
    specs = [spec_of("a"), spec_of("b")]
    for spec in specs:
        lake.load(spec)
    reported: list[str] = []

    def observe(step: Step) -> None:
        reported.append(step.step)

    spread = SparkSpread(spark, Storage(), observe=observe)
    runtime = Runtime(storage=Storage(), spark=spark, spread=spread, observe=observe)
    outcomes = run_job(lake.job(specs), runtime, lambda _: None)
    assert [o.result.error.code if o.result.error else None for o in outcomes] == ["SPARK_UNSUPPORTED"] * 2
    assert [path.name for path in tmp_path.glob("lake/*") if path.name != "_gddl"] == []
    assert STARTING_SPARK in reported, "what takes long is announced"


def test_matching_executors_are_accepted() -> None:
    cluster_check.check_executors(Cluster(), 1)  # type: ignore[arg-type]  # as much of a session as is asked


@pytest.mark.parametrize(
    ("said", "code", "shown"),
    [
        ({"contract": 99}, "CONTRACT_VERSION", "contract version 99, the driver's 1"),
        ({"contract": None}, "EXECUTOR_UNFIT", "lacks airflow-gddl"),
        ({"deltalake": None, "pyarrow": None}, "EXECUTOR_UNFIT", "lacks deltalake, pyarrow"),
        ({"deltalake": "0.9.1", "host": "node7"}, "EXECUTOR_UNFIT", "deltalake 0.9.1"),
    ],
)
def test_mismatched_executors_are_reported(said: dict[str, Any], code: str, shown: str) -> None:
    with pytest.raises(FatalError) as caught:
        cluster_check.check_executors(Cluster(said=said), 1)  # type: ignore[arg-type]  # as much of a session as is asked
    assert caught.value.code == code
    assert shown in str(caught.value)
    assert said.get("host", "") in str(caught.value)


@pytest.mark.parametrize(
    ("environ", "own"),
    [
        ({"PYSPARK_PYTHON": sys.executable}, True),
        ({"PYSPARK_PYTHON": "/opt/another/python"}, False),
        ({}, False),
        ({"PYSPARK_PYTHON": sys.executable, "GDDL_SPARK_MASTER": "spark://there:7077"}, False),
        ({"PYSPARK_PYTHON": sys.executable, "PYSPARK_GATEWAY_PORT": "1"}, False),
    ],
)
def test_only_this_process_s_own_python_is_not_asked(environ: dict[str, str], own: bool) -> None:
    assert cluster_check.is_this_python(environ) is own
