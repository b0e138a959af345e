"""Spark's replicas against a real PostgreSQL, and a resync that it decides about."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import sqlalchemy as sa
from deltalake import DeltaTable

from airflow_gddl.contract.actions import Resync, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.harness.lake import Lake
from tests.harness.landing import write
from tests.one_task.postgres import execute, postgres
from tests.one_task.test_verify_source import COLUMNS, SPEC, three

TIER = replace(DEFAULT_TIERS["small"], tasks="many")
QUIET = JobOptions(action=Verify(settle_seconds=0))


def test_all_types_compare_and_resync(tmp_path: Path) -> None:
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
        mended = result(JobOptions(action=Resync()))
        assert mended.details["resync"] == {
            "files": 1, "rows": 3, "rows_before": 2, "appear": 1, "vanish": 0, "change": 0, "columns": (),
            "archived": 0, "far_before": 1, "far_after": 0,
        }  # fmt: skip
        reported = result(QUIET)
        assert reported.error is None, reported.details
        assert set(reported.details["source"]["not_compared"]) == {"fixed"}


def test_resync_is_decided_by_the_source(tmp_path: Path) -> None:
    """Refused where it would be worse, failed while it differs, and without rows that the source has no more."""
    lake, port, resync = Lake(tmp_path, TIER), LocalPort("many"), JobOptions(action=Resync())
    with postgres() as engine:
        execute(engine, "CREATE SCHEMA s")
        three(tmp_path, engine)
        url = engine.url.render_as_string(hide_password=False)
        runtime = replace(port.runtime, environ={"GDDL_SOURCE_SHOP": url, "GDDL_SETTLE": "0s"})

        def code() -> str | None:
            (outcome,) = run_job(lake.job([SPEC], resync), runtime, lambda _: None)
            return None if outcome.result.error is None else outcome.result.error.code

        execute(engine, "UPDATE s.t SET v = 'changed' WHERE id = 1")
        DeltaTable(lake.layout(SPEC).replica).update(updates={"v": "'changed'"}, predicate="id = 1")
        assert (code(), lake.replica(SPEC)[1]) == ("RESYNC_REFUSED", "changed")
        lake.change(SPEC, 1, [("U", 1, "changed")])
        execute(engine, "INSERT INTO s.t (id, v) VALUES (77, 'never landed')")
        assert (code(), lake.replica(SPEC)) == ("RESYNC_DIFFERENT", {0: "load 0", 1: "changed", 2: "load 2"})
        for path in Path(lake.layout(SPEC).landing).iterdir():
            path.unlink()
        execute(engine, "DELETE FROM s.t WHERE id <> 1")
        write(Path(lake.layout(SPEC).landing), "LOAD00000002.parquet", pa.table({"id": [1], "v": ["changed"]}))
        assert (code(), lake.replica(SPEC)) == (None, {1: "changed"})


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
