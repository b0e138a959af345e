"""Whole courses: on this machine, on S3, on stand-ins of Glue and Databricks, and on a standalone cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.platform_check import course
from airflow_gddl.platform_check.checks import CHECKS, Outcome
from airflow_gddl.platform_check.job_checks import JobChecks
from airflow_gddl.runners.child import Stopped, stoppable
from airflow_gddl.runners.interface import JobOutcome
from tests.harness.waiting import wait_for
from tests.platform_check import catalogs
from tests.platform_check.ground import Ground, outcomes
from tests.platform_check.platforms import DeafGlue, ForgetfulGlue, GlueConnections, on_emr, on_glue, on_workspace
from tests.s3.faulty import Way

OF_ENGINES = ("tables.athena", "tables.databricks_sql")
JOBS = tuple(name for name in CHECKS if name.startswith(("job.", "tables.")) and name not in OF_ENGINES)
WITHOUT_SPARK = tuple(name for name in JOBS if name != "tables.spark")


def states(found: dict[str, Outcome]) -> dict[str, str]:
    """Check to state; of one that was not tried, the reason."""
    bad = [one.line for one in found.values() if one.state == "FAIL"]
    assert bad == []
    return {name: one.reason or one.state for name, one in found.items()}


@pytest.mark.parametrize("place", ["ground", "bucket_ground"])
def test_jobs_of_this_machine(place: str, request: pytest.FixtureRequest) -> None:
    here: Ground = request.getfixturevalue(place)
    made = here.context()
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as other:
        found = outcomes(made, *WITHOUT_SPARK)
        assert other.poll() is None, "only the job is killed, and no other child of this process"
        other.kill()
    passed = dict.fromkeys((*WITHOUT_SPARK, "cleanup"), "PASS")
    assert states(found) == {**passed, "job.once": "job-here"}
    assert "tables were left" in found["job.cancel"].finding
    assert "JOB_DIED" in found["job.killed"].finding
    assert found["tables.rows"].finding.startswith("7,496"), "the tables of both lakes"
    assert list(made.store.list(made.place.lake)) == []


def test_requests_of_a_job_stay_within_the_bound(bucket_ground: Ground, way: Way) -> None:
    here = replace(bucket_ground, environ={**bucket_ground.environ, "AWS_ENDPOINT_URL": way.endpoint})
    made = here.context()
    assert states(outcomes(made, "job.load")) == {"job.load": "PASS", "cleanup": "PASS"}
    assert 50 < len(way.requests) < made.bounds.job_requests / made.bounds.jobs


@pytest.mark.deep
def test_spark_of_this_machine_merges(ground: Ground) -> None:
    found = outcomes(ground.context(), "job.load", "tables.spark")
    assert states(found) == {"job.load": "PASS", "tables.spark": "PASS", "cleanup": "PASS"}


def test_without_java_spark_is_not_tried(ground: Ground, tmp_path: Path) -> None:
    program = tmp_path / "bin"
    program.mkdir()
    cli = replace(ground.cli, environ={**ground.cli.environ, "PATH": str(program), "JAVA_HOME": str(program)})
    found = outcomes(ground.context(cli=cli), "tables.spark")
    assert states(found)["tables.spark"] == "no-java"


def test_without_the_tables_of_the_demo_jobs_are_not_tried(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow_gddl.simulate.simulation", None)
    found = outcomes(ground.context(), "job.load", "job.cancel", "tables.rows")
    assert states(found) == {
        "job.load": "no-package", "job.cancel": "failed", "tables.rows": "failed", "cleanup": "PASS",
    }  # fmt: skip
    assert "; pip install 'airflow-gddl[demo]'" in found["job.load"].line


def test_a_table_without_a_result_is_found(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    """As from a runner that forgets one; what the others did does not count for it."""

    def run(_: object, spec: JobSpec, *__: object) -> JobOutcome:
        names = [table.table for table in spec.tables if table.table != "nyc.planes"]
        results = tuple(JobResult(table=name, status="succeeded", run_id=spec.run_id) for name in names)
        return JobOutcome(results=results, exit_status=0)

    monkeypatch.setattr(JobChecks, "outcome_of", run)
    found = outcomes(ground.context(), "job.load")["job.load"]
    assert (found.state, found.finding) == ("FAIL", "the job ended without a result of nyc.planes")


def test_runs_of_glue(ground: Ground) -> None:
    with on_glue(ground, holds_jobs=False) as made:
        found = outcomes(made, *WITHOUT_SPARK)
        assert isinstance(made.connections, GlueConnections)
        ends = [run.answer()["JobRunState"] for run in made.connections.service.runs]
    assert states(found) == dict.fromkeys((*WITHOUT_SPARK, "cleanup"), "PASS")
    assert found["job.killed"].finding == "5 of 5 tables failed with REMOTE_RUN_FAILED"
    assert ends.count("FAILED") == 1


def test_a_run_that_does_not_stop_is_found(ground: Ground) -> None:
    taken: list[Outcome] = []
    with on_glue(ground, DeafGlue, minutes=0.1) as made:
        course.everything(replace(made, end_seconds=0.2), taken.append, ("job.cancel",))
    found = {one.check: one for one in taken}
    assert found["cleanup"].finding == "the run jr_0 is running; end it by hand"
    assert (found["job.cancel"].state, found["job.cancel"].code) == ("FAIL", "PLATFORM_JOB_NOT_CANCELLED")
    assert found["job.cancel"].finding == "a run that was cancelled is running at the time limit"


def test_a_run_that_is_waited_for_is_stopped_with_the_command(ground: Ground) -> None:
    """What the platform did not end is named: it would write into the folder after its removal."""
    taken: list[Outcome] = []
    with on_glue(ground, DeafGlue) as made:
        assert isinstance(made.connections, GlueConnections)
        runs = made.connections.service.runs

        def stop() -> None:
            wait_for(lambda: bool(runs), "the run")
            time.sleep(0.2)
            os.kill(os.getpid(), signal.SIGTERM)

        sender = threading.Thread(target=stop)
        sender.start()
        with pytest.raises(Stopped), stoppable():
            course.everything(replace(made, end_seconds=0.2), taken.append, ("job.load",))
        sender.join()
    assert [(one.check, one.finding) for one in taken] == [("cleanup", "the run jr_0 is running; end it by hand")]


def test_both_runs_of_one_token_are_stopped(ground: Ground) -> None:
    with on_glue(ground, ForgetfulGlue) as made:
        found = outcomes(made, "job.once")
        assert isinstance(made.connections, GlueConnections)
        runs = made.connections.service.runs
        assert found["job.once"].state == "FAIL"
        for run in runs:
            assert run.process is not None
            run.process.wait(60)
        assert [run.answer()["JobRunState"] for run in runs] == ["STOPPED", "STOPPED"]


def test_runs_of_emr_serverless(ground: Ground) -> None:
    """moto keeps no tokens and runs nothing: two submissions are two runs, and both are cancelled."""
    pytest.importorskip("moto")
    with on_emr(ground) as (made, states_of_runs):
        found = outcomes(made, "job.once", "job.cancel")
        assert (found["job.once"].state, found["job.once"].code) == ("FAIL", "PLATFORM_JOB_TWICE")
        assert found["job.cancel"].state == "PASS"
        assert states_of_runs() == ["CANCELLED", "CANCELLED"]


def test_runs_of_a_workspace(ground: Ground) -> None:
    pytest.importorskip("databricks.sdk")
    with on_workspace(ground) as made:
        found = outcomes(made, *WITHOUT_SPARK)
    assert states(found) == dict.fromkeys((*WITHOUT_SPARK, "cleanup"), "PASS")
    assert found["job.killed"].finding == "5 of 5 tables failed with REMOTE_RUN_FAILED"
    assert found["tables.rows"].finding.startswith("7,496"), "the tables of both lakes"


def test_a_warehouse_of_the_workspace_reads_a_table_of_its_jobs(ground: Ground) -> None:
    pytest.importorskip("databricks.sdk")
    with catalogs.warehouses(ground, one="RUNNING") as (there, sql), on_workspace(there, sql=sql) as made:
        wanted = ("catalog.register", "tables.databricks_sql")
        assert states(outcomes(made, *wanted)) == dict.fromkeys((*wanted, "cleanup"), "PASS")


@pytest.mark.deep
def test_jobs_of_a_standalone_cluster(ground: Ground, tmp_path: Path) -> None:
    from tests.cluster.standalone import Cluster  # noqa: PLC0415 - needs pyspark

    with Cluster(tmp_path) as cluster:
        own = {"master": cluster.master, "spark_home": None, "python": sys.executable}
        tier = {"tasks": "one", "cores": 1, "memory": "1g", "workers": 2}
        settings = {
            "runner": "spark_submit",
            "runners": {"spark_submit": {name: value for name, value in own.items() if value}},
            "tiers": {"small": tier},
        }
        variables = {"GDDL_WITHOUT_SPARK": ""}
        made = replace(ground, settings=settings, environ=variables).context(minutes=15)
        found = outcomes(made, *JOBS)
    passed = dict.fromkeys((*JOBS, "cleanup"), "PASS")
    assert states(found) == {**passed, "job.once": "job-here"}
