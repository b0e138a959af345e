"""What tiers change: deletion vectors and type widening, or plain tables for any reader; the rows are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.batch.runtime import NoSpark, Runtime
from spark_jobs.job.job_tables import run_job
from spark_jobs.tables.delta_log import DeltaCommits
from spark_jobs.tables.spark_merge import SparkTables
from tests.conftest import LocalPort
from tests.harness.asked import options_of
from tests.harness.engine_port import EnginePort

ROUNDS = (
    ("LOAD00000001.parquet", {"id": [1, 2, 3], "n": pa.array([1, 2, 3], pa.int32())}),
    (
        "20240101-000000001.parquet",
        {
            "Op": ["U", "D", "U", "I"],
            "id": [1, 2, 3, 4],
            "n": pa.array([10, None, 2**40, 4], pa.int64()),
            "seq": [1, 2, 3, 4],
        },
    ),
    ("20240101-000000002.parquet", {"Op": ["U"], "id": [4], "n": pa.array([44], pa.int32()), "seq": [5], "new": ["x"]}),
)


def job(root: Path, size: str, **options: Any) -> JobSpec:
    spec = TableSpec(table="shop.t", keys=("id",), sequence_by=("seq",), size=size, history=True)
    roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
    return JobSpec(run_id="test", roots=roots, tables=(spec,), options=options_of(**options))


def layout(root: Path) -> Layout:
    order = job(root, "small")
    return Layout.of(order.roots, order.tables[0])


def play(engine: EnginePort, root: Path, size: str, rounds: int = len(ROUNDS)) -> list[JobResult]:
    results = []
    for name, columns in ROUNDS[:rounds]:
        folder = root / "landing" / "shop" / "t"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name)
        results += engine.run(job(root, size))
    return results


@pytest.mark.deep_on_many
def test_small_tier_is_for_any_reader(engine: EnginePort, tmp_path: Path) -> None:
    every_round(engine, tmp_path, "small")
    any_reader_takes_it(cast("LocalPort", engine), tmp_path)


def test_large_tier_deletes_by_vector(engine: EnginePort, tmp_path: Path) -> None:
    """In one task a wider type is written into all files, so that the table needs no feature for it."""
    every_round(engine, tmp_path, "large")
    more = ["typeWidening"] if cast("LocalPort", engine).name == "many" else []
    features_of(tmp_path, engine, "deletionVectors", *more)


def every_round(engine: EnginePort, tmp_path: Path, size: str) -> None:
    """Whatever the tier, the rows are the same."""
    results = play(engine, tmp_path, size)
    assert [r.error for r in results] == [None] * len(ROUNDS)
    assert results[1].schema_changes == ("widened n int -> bigint",)
    assert results[2].schema_changes == ("added column new string",)
    rows = {r["id"]: (r["n"], r["new"], r["seq"]) for r in engine.read(layout(tmp_path).replica)}
    assert rows == {1: (10, None, 1), 3: (2**40, None, 3), 4: (44, "x", 5)}
    (verdict,) = engine.run(job(tmp_path, size, action="verify"))
    assert verdict.details["verdict"] == "equal", verdict


def any_reader_takes_it(port: LocalPort, root: Path) -> None:
    for path in (layout(root).replica, layout(root).changes, layout(root).history):
        read = DeltaTable(path)
        assert read.protocol().reader_features in (None, []), path
        assert pa.table(read.scan()).num_rows == len(port.read_by_spark(path))


def features_of(root: Path, engine: EnginePort, *wanted: str) -> None:
    tables = SparkTables(cast("LocalPort", engine).spark.for_table(), DeltaCommits(Storage()))
    detail = tables.handle(layout(root).replica).detail().collect()[0]
    assert set(wanted) <= set(detail["tableFeatures"])


class Untouched(NoSpark):
    """Must not be asked."""

    def for_table(self, _work: int | None = None, /) -> Any:
        raise AssertionError("Spark was started for nothing")


@pytest.mark.deep_on_many
def test_idle_run_starts_no_spark(engine: EnginePort, tmp_path: Path) -> None:
    play(engine, tmp_path, "small")
    (idle,) = run_job(job(tmp_path, "small"), Runtime(storage=Storage(), spark=Untouched()), lambda _: None)
    assert (idle.result.status, idle.result.error) == ("skipped", None)


class Asked(NoSpark):
    """Notes for how much work a session is asked for, and has none."""

    def __init__(self) -> None:
        self.work: list[int | None] = []

    def for_table(self, work: int | None = None, /) -> Any:
        self.work.append(work)
        raise FatalError("JAVA_MISSING", "there is no Java")


def test_a_session_is_asked_for_with_the_work_to_do(tmp_path: Path) -> None:
    name, columns = ROUNDS[0]
    file = tmp_path / "landing" / "shop" / "t" / name
    file.parent.mkdir(parents=True)
    pq.write_table(pa.table(columns), file)
    spark = Asked()
    (outcome,) = run_job(job(tmp_path, "large"), Runtime(storage=Storage(), spark=spark), lambda _: None)
    assert outcome.result.error is not None
    assert (outcome.result.error.code, spark.work) == (
        "JAVA_MISSING",
        [7 * file.stat().st_size],
    )  # a landed byte costs some seven of the replica
