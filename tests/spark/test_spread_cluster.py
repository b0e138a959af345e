"""Small tables over Spark tasks by `mapInArrow`: all are done, and one that fails stops no other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from spark_jobs.job.runtime import Runtime
from spark_jobs.job.spread_cluster import ClusterSpread
from spark_jobs.job.tables import run_job
from spark_jobs.storage.objects import Storage
from tests.conftest import SPARK
from tests.delta_rs.small_lake import TIER, SmallLake, spec_of
from tests.landing import write_bytes

NAMES = ("a", "b", "c", "poisoned", "large")


def run(lake: SmallLake, names: tuple[str, ...]) -> dict[str, JobResult]:
    shown: list[JobResult] = []
    runtime = Runtime(storage=Storage(), spark=SPARK, spread=ClusterSpread(SPARK, Storage()))
    run_job(lake.job([spec_of(name) for name in names]), runtime, shown.append)
    return {result.table.removeprefix("s."): result for result in shown}


def test_tables_over_tasks(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """And those that the engine declines are left to Spark as a whole."""
    if request.config.getoption("--engine") == "delta_rs":
        pytest.skip("it takes Spark")
    lake = SmallLake(tmp_path, replace(TIER, delta_rs_max_bytes=20_000))
    for name in NAMES:
        lake.load(spec_of(name), rows=10_000 if name == "large" else 3)
    write_bytes(Path(lake.layout(spec_of("poisoned")).state), "commits/00000000000000000001.json", b"not json")
    done = run(lake, NAMES)
    assert {n: (r.status, r.engine) for n, r in done.items()} == {
        **dict.fromkeys("abc", ("succeeded", "delta_rs")),
        "poisoned": ("failed", "delta_rs"),
        "large": ("succeeded", "spark"),
    }
    assert [w.code for w in done["large"].warnings] == ["ENGINE_FALLBACK"]
    assert len(lake.replica(spec_of("large"))) == 10_000
    assert {r.status for r in run(lake, ("a", "b", "c", "large")).values()} == {"skipped"}
    assert list(Storage().list(f"{lake.roots.lake}/_gddl/jobs")) == []
