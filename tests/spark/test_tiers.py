"""What tiers change: deletion vectors and type widening, or plain tables for any reader; the rows are the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, Roots, TableSpec
from airflow_gddl.stores import Storage
from spark_jobs.engines.delta_commits import DeltaCommits
from spark_jobs.engines.spark.tables import Tables
from spark_jobs.job.tables import run_job
from spark_jobs.job.worker import NoSpark
from spark_jobs.table.runtime import Runtime
from tests.conftest import LocalPort
from tests.engine_port import EnginePort

ROUNDS = (
    ("LOAD00000001.parquet", {"id": [1, 2, 3], "n": pa.array([1, 2, 3], pa.int32())}),
    (
        "20240101-000000001.parquet",
        {"Op": ["U", "D"], "id": [1, 2], "n": pa.array([10, None], pa.int32()), "seq": [1, 2]},
    ),
    (
        "20240101-000000002.parquet",
        {"Op": ["U", "I"], "id": [3, 4], "n": pa.array([2**40, 4], pa.int64()), "seq": [3, 4]},
    ),
    ("20240101-000000003.parquet", {"Op": ["U"], "id": [4], "n": pa.array([44], pa.int32()), "seq": [5], "new": ["x"]}),
)


def job(root: Path, size: str, **options: Any) -> JobSpec:
    spec = TableSpec(table="shop.t", keys=("id",), sequence_by=("seq",), size=size, history=True)
    roots = Roots(landing=str(root / "landing"), lake=str(root / "lake"))
    return JobSpec(run_id="test", roots=roots, tables=(spec,), options=JobOptions(**options))


def layout(root: Path) -> Layout:
    order = job(root, "small")
    return Layout.of(order.roots, order.tables[0])


def play(engine: EnginePort, root: Path, size: str) -> list[JobResult]:
    results = []
    for name, columns in ROUNDS:
        folder = root / "landing" / "shop" / "t"
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table(columns), folder / name)
        results += engine.run(job(root, size))
    return results


@pytest.mark.parametrize("size", ["small", "large"])
def test_tier_does_not_change_rows(engine: EnginePort, tmp_path: Path, size: str) -> None:
    results = play(engine, tmp_path, size)
    assert [r.error for r in results] == [None] * len(ROUNDS)
    assert results[2].schema_changes == ("widened n int -> bigint",)
    assert results[3].schema_changes == ("added column new string",)
    rows = {r["id"]: (r["n"], r["new"], r["seq"]) for r in engine.read(layout(tmp_path).replica)}
    assert rows == {1: (10, None, 1), 3: (2**40, None, 3), 4: (44, "x", 5)}
    (verdict,) = engine.run(job(tmp_path, size, action="verify"))
    assert verdict.details["verdict"] == "equal", verdict
    if size == "small":
        any_reader_takes_it(cast("LocalPort", engine), tmp_path)
    elif cast("LocalPort", engine).name == "spark":
        it_deletes_by_vector(cast("LocalPort", engine), tmp_path)


def any_reader_takes_it(port: LocalPort, root: Path) -> None:
    for path in (layout(root).replica, layout(root).changes, layout(root).history):
        read = DeltaTable(path)
        assert read.protocol().reader_features in (None, []), path
        assert pa.table(read.scan()).num_rows == len(port.read_by_spark(path))


def it_deletes_by_vector(port: LocalPort, root: Path) -> None:
    tables = Tables(port.spark.for_table(), DeltaCommits(Storage()))
    detail = tables.handle(layout(root).replica).detail().collect()[0]
    assert {"deletionVectors", "typeWidening"} <= set(detail["tableFeatures"])


class Untouched(NoSpark):
    """Must not be asked."""

    def for_table(self) -> Any:
        raise AssertionError("Spark was started for nothing")


def test_idle_run_starts_no_spark(engine: EnginePort, tmp_path: Path) -> None:
    play(engine, tmp_path, "small")
    (idle,) = run_job(job(tmp_path, "small"), Runtime(storage=Storage(), spark=Untouched()), lambda _: None)
    assert (idle.result.status, idle.result.error) == ("skipped", None)
