"""A table over many tasks under a job that goes on, its files found by listings (docs/streaming.md)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.spec import Continuous, JobOptions
from tests.conftest import LocalPort
from tests.harness.background_job import BackgroundJob
from tests.harness.lake import Lake
from tests.harness.strategies import Case
from tests.spark.crash_tables import RUNS, TYPES, spec_of
from tests.spark.playing import Stage, verify


@pytest.fixture
def stage(spark: LocalPort, tmp_path: Path) -> Stage:
    spec = replace(spec_of("kept"), trigger="1s")
    return Stage(spark, Lake(tmp_path), [Case(spec=spec, types=TYPES, runs=RUNS)])


def kept(stage: Stage) -> BackgroundJob:
    specs = [case.spec for case in stage.cases]
    job = stage.port.tiered(stage.lake.job(specs, JobOptions(continuous=Continuous())))
    return BackgroundJob(job, stage.port.runtime)


def is_taken(stage: Stage) -> bool:
    for case in stage.cases:
        ledger = stage.lake.ledger(case.spec)
        landed = {str(path) for path in Path(stage.lake.layout(case.spec).landing).glob("*.parquet")}
        if landed != set(ledger.all_entries()) or ledger.plan() is not None:
            return False
    return True


def test_files_landing_during_the_job_match_the_oracle(stage: Stage) -> None:
    """The first run is an ordinary job's, the second one lands beside the job that goes on, and is news to it."""
    (case,) = stage.cases
    stage.land(0)
    stage.lake.results(LocalPort("one"), stage.lake.job([case.spec]))
    with kept(stage) as job:
        job.until(lambda: job.results_of(case.spec.table, "skipped") >= 1)
        stage.land(1)
        job.until(lambda: is_taken(stage))
    stage.judge(case, 1, None)
    verify(stage)
    assert stage.report() == ""
    after = stage.lake.results(stage.port, stage.lake.job([case.spec]))
    assert after[case.spec.table].status == "skipped"
