"""Rows that a resync reads from a real PostgreSQL, into a table over many tasks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from airflow_gddl.contract.actions import ResyncRows, Verify
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobOptions
from spark_jobs.job.job_tables import run_job
from tests.conftest import LocalPort
from tests.databases.test_initial_load import environ, rows_of
from tests.databases.test_resync_rows import LOGGED, SPEC, Service, unseen
from tests.harness.lake import Lake
from tests.one_task.postgres import emptied, execute, postgres

TIER = replace(DEFAULT_TIERS["small"], tasks="many")
QUIET = JobOptions(action=Verify(settle_seconds=0))


def test_keys_and_ranges_beside_changes_on_their_way(tmp_path: Path) -> None:
    lake, port = Lake(tmp_path, TIER), LocalPort("many")
    with postgres() as server:
        source = emptied(server)
        execute(source, *LOGGED.split(";\n\n"), "INSERT INTO s.t SELECT i, 'v' || i FROM generate_series(1, 50) i")
        runtime = replace(port.runtime, environ=environ(source))

        def result(options: JobOptions) -> JobResult:
            (outcome,) = run_job(lake.job([SPEC], options), runtime, lambda _: None)
            return outcome.result

        def done(options: JobOptions) -> JobResult:
            found = result(options)
            assert found.error is None, found.error
            return found

        service = Service(lake, source)
        service.write()
        assert done(JobOptions()).tasks == "many"
        unseen(source, "UPDATE s.t SET v = 'other' WHERE id > 20", "DELETE FROM s.t WHERE id IN (3, 30)")
        unseen(source, "INSERT INTO s.t VALUES (100, 'new')")
        execute(source, "UPDATE s.t SET v = 'on its way' WHERE id IN (4, 31)", "DELETE FROM s.t WHERE id = 32")
        done(JobOptions(action=ResyncRows(keys=({"id": "3"}, {"id": "4"}, {"id": "100"}))))
        done(JobOptions(action=ResyncRows(keys=tuple({"id": str(i)} for i in range(20, 51)))))
        assert lake.replica(SPEC) == rows_of(source)
        execute(source, "INSERT INTO s.t VALUES (32, 'again')", "UPDATE s.t SET v = 'last' WHERE id = 4")
        service.write()
        unseen(source, "UPDATE s.t SET v = 'lost' WHERE id = 9")
        done(JobOptions())
        assert result(QUIET).error is not None
        assert done(JobOptions(action=ResyncRows(differences=True))).details["resync"]["rows"] == 1
        assert lake.replica(SPEC) == rows_of(source)
        assert done(QUIET).details["source"]["different"] == 0
