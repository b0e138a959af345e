"""Windows of a replica that Spark loads and compares, with a real PostgreSQL."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.one_task.postgres import execute, postgres
from tests.one_task.test_completeness import SPEC, name_the_hour


def test_one_lost_file_is_named_by_its_hour(tmp_path: Path) -> None:
    lake, port = Lake(tmp_path, replace(DEFAULT_TIERS["small"], tasks="many")), LocalPort("many")
    with postgres() as engine:
        execute(engine, "CREATE SCHEMA s")
        environ = {"GDDL_SOURCE_SHOP": engine.url.render_as_string(hide_password=False)}
        runtime = replace(port.runtime, environ=environ)

        def result(options: JobOptions) -> JobResult:
            (outcome,) = run_job(lake.job([SPEC], options), runtime, lambda _: None)
            return outcome.result

        name_the_hour(lake, engine, 60, result, lambda: result(JobOptions(full_listing=True)))
