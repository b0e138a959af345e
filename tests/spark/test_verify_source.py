"""Spark's replicas against a real PostgreSQL."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Rebuild, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.one_task.postgres import postgres
from tests.one_task.test_verify_source import COLUMNS, SPEC

TIER = replace(DEFAULT_TIERS["small"], tasks="many")
QUIET = JobOptions(action=Verify(settle_seconds=0))


def test_all_types_compare(tmp_path: Path) -> None:
    lake, port = Lake(tmp_path, TIER), LocalPort("many")
    with postgres() as engine:
        fill(engine)
        environ = {"GDDL_SOURCE_SHOP": engine.url.render_as_string(hide_password=False)}
        runtime = replace(port.runtime, environ=environ)

        def result(options: JobOptions) -> JobResult:
            (outcome,) = run_job(lake.job([SPEC], options), runtime, lambda _: None)
            return outcome.result

        arrays = {name: pa.array(values, kind) for name, (_, kind, values) in COLUMNS.items()}
        write(Path(lake.layout(SPEC).landing), "LOAD00000001.parquet", pa.table(arrays))
        assert result(JobOptions()).error is None
        DeltaTable(lake.layout(SPEC).replica).delete("id = 2")
        reported = result(QUIET)
        assert reported.error is not None
        assert [(k["key"], k["state"]) for k in reported.details["source"]["keys"]] == [('{"id": "2"}', "missing")]
        assert result(JobOptions(action=Rebuild())).error is None
        reported = result(QUIET)
        assert reported.error is None, reported.details
        assert set(reported.details["source"]["not_compared"]) == {"fixed"}


def fill(engine: sa.Engine) -> None:
    columns = ", ".join(f"{name} {kind[0]}" for name, kind in COLUMNS.items())
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE SCHEMA s"))
        connection.execute(sa.text(f"CREATE TABLE s.t ({columns})"))
        table = sa.Table("t", sa.MetaData(), schema="s", autoload_with=connection)
        for i in range(3):
            row = {name: values[i] for name, (_, _, values) in COLUMNS.items()}
            connection.execute(
                table.insert(), {**row, "doc": sa.null() if row["doc"] is None else json.loads(row["doc"])}
            )
