"""Maintenance on Spark, with deletion vectors: the same rows and transactions, and what was deleted stays deleted."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.actions import Maintain, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions, TableSpec
from spark_jobs.batch import tidying
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.lake import Lake, spec_of

TIER = replace(DEFAULT_TIERS["small"], tasks="many", deletion_vectors=True)


def done(lake: Lake, spec: TableSpec, options: JobOptions, port: LocalPort, days: float = 0) -> JobResult:
    """The result of a job as if so many days ago."""
    runtime = replace(port.runtime, clock=lambda: datetime.now(UTC) - timedelta(days=days))
    (outcome,) = run_job(lake.job([spec], options), runtime, lambda _: None)
    assert outcome.result.error is None, outcome.result.error
    return outcome.result


def rows(port: LocalPort, path: str) -> list[str]:
    return sorted(map(str, port.read(path)))


def transaction(port: LocalPort, path: str) -> int:
    from spark_jobs.tables.delta_log import DeltaCommits  # noqa: PLC0415 - beside the import of Spark
    from spark_jobs.tables.spark_merge import SparkTables  # noqa: PLC0415 - Spark starts with the first test that asks

    return SparkTables(port.spark.for_table(), DeltaCommits(port.runtime.storage)).last_transaction(path, "gddl:merge")


@pytest.mark.deep
def test_maintenance_works_on_tables_with_deletion_vectors(tmp_path: Path) -> None:
    port, spec = LocalPort("many"), spec_of(changes_retention="30d")
    lake = Lake(tmp_path, TIER)
    lake.load(spec, 1000)
    done(lake, spec, JobOptions(), port, 40)
    for n in range(1, 4):
        lake.change(spec, n, [("U", 0, f"v{n}"), ("I", 2000 + n, "new"), ("D", n, None)])
        done(lake, spec, JobOptions(), port, 40)
    layout = lake.layout(spec)
    before, made = rows(port, layout.replica), transaction(port, layout.replica)
    reported: dict[str, Any] = done(lake, spec, JobOptions(action=Maintain()), port).details
    assert reported["changes_cut"] == 3 + 1 + 2, (
        "load rows of the deleted keys and of 0, and all updates of 0 but the last"
    )
    assert reported["tombstones_removed"] == 3
    assert reported["compacted"]["changes"]["files_after"] == 1
    assert (rows(port, layout.replica), transaction(port, layout.replica)) == (before, made)
    assert done(lake, spec, JobOptions(action=Verify()), port).details["verdict"] == "equal"
    lake.change(spec, 9, [("U", 5, "after")])
    assert done(lake, spec, JobOptions(), port).main.updated == 1


def test_a_small_table_tidies_up_between_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By Spark's own VACUUM, whose clock nobody sets; what it removes: `tests/one_task/test_growth.py`."""
    monkeypatch.setattr(tidying, "BATCHES_PER_TIDYING", 3)
    port, spec = LocalPort("many"), spec_of(settle="0s")
    lake = Lake(tmp_path, replace(TIER, deletion_vectors=False))
    lake.load(spec)
    done(lake, spec, JobOptions(), port)
    vacuums, log = [], Path(lake.layout(spec).replica, "_delta_log")
    orphan = Path(lake.layout(spec).replica, "of-a-failed-writer.parquet")
    orphan.write_bytes(b"PAR1")
    os.utime(orphan, (time.time() - 30 * 86400,) * 2)
    for n in range(1, 6):
        lake.change(spec, n, [("U", n % 3, f"v{n}")])
        result = done(lake, spec, JobOptions(), port)
        assert (result.main.updated, result.warnings) == (1, ())
        vacuums.append(sum("VACUUM END" in path.read_text() for path in log.glob("*.json")))
    assert vacuums == [0, 1, 1, 1, 1], "batch 3; after batch 6 no file is old enough to be removed"
    assert not orphan.exists()
    assert lake.replica(spec) == {0: "v3", 1: "v4", 2: "v5"}
