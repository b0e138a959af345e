"""Whole courses: on this machine, on S3, on the fake workspace of Databricks, and on a standalone cluster."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.tools.platform_check import command, job_checks, storage_checks
from airflow_gddl.tools.platform_check.checks import Outcome
from airflow_gddl.tools.platform_check.job_checks import JobChecks
from tests.harness.waiting import wait_for
from tests.platform_check.ground import JOBS, Ground, on_workspace, outcomes

PASSED = dict.fromkeys((*JOBS, "cleanup"), "PASS")


def states(found: dict[str, Outcome]) -> dict[str, str]:
    """Check to state; of one that was not tried, the reason."""
    assert [one.line for one in found.values() if one.state == "FAIL"] == []
    return {name: one.reason or one.state for name, one in found.items()}


@pytest.mark.parametrize("place", ["ground", "bucket_ground"])
def test_jobs_of_this_machine(place: str, request: pytest.FixtureRequest) -> None:
    here: Ground = request.getfixturevalue(place)
    made = here.context()
    found = outcomes(made, *JOBS)
    assert states(found) == PASSED
    assert "tables were left" in found["job.cancel"].finding
    assert found["tables.rows"].finding.startswith("3,748")
    assert list(made.store.list(here.lake)) == []


def test_without_the_tables_of_the_demo_jobs_are_not_tried(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow_gddl.tools.simulate.simulation", None)
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


def test_runs_of_a_workspace(ground: Ground) -> None:
    pytest.importorskip("databricks.sdk")
    with on_workspace(ground) as (made, _):
        assert states(outcomes(made, *JOBS)) == PASSED


@pytest.fixture
def deaf(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A context whose workspace takes requests to stop, and runs go on."""
    pytest.importorskip("databricks.sdk")
    monkeypatch.setattr(job_checks, "END_SECONDS", 0.2)
    with on_workspace(ground) as (made, workspace):
        workspace.command = [sys.executable, "-c", "import time; time.sleep(600)"]
        with monkeypatch.context() as patch:
            patch.setattr(workspace, "cancel", lambda _: None)
            yield made, workspace


def test_a_run_that_does_not_stop_is_found(deaf: Any) -> None:
    found = outcomes(deaf[0], "job.cancel")
    assert found["job.cancel"].state == "FAIL"
    assert found["job.cancel"].finding.startswith("a run that was cancelled is running after 0.2 seconds")
    assert "is running; end it by hand" in found["cleanup"].finding


def test_a_run_that_is_waited_for_is_stopped_with_the_command(deaf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the platform did not end is named: it would write into the folder after its removal."""
    made, workspace = deaf
    taken: list[Outcome] = []
    monkeypatch.setattr(storage_checks, "PROBES", {})

    def stop() -> None:
        wait_for(lambda: bool(workspace.runs), "the run", seconds=300)
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=stop)
    sender.start()
    assert command.everything(made, taken.append) == signal.SIGTERM
    sender.join()
    found = {one.check: one for one in taken}
    assert {found[name].reason for name in JOBS} == {"stopped"}
    assert "is running; end it by hand" in found["cleanup"].finding


@pytest.mark.deep
def test_jobs_of_a_standalone_cluster(ground: Ground, tmp_path: Path) -> None:
    from tests.cluster.standalone import Cluster  # noqa: PLC0415 - needs pyspark

    with Cluster(tmp_path) as cluster:
        tier = {"tasks": "one", "cores": 1, "memory": "1g", "workers": 2}
        own = {"master": cluster.master, "python": sys.executable}
        settings = {"runner": "spark_submit", "runners": {"spark_submit": own}, "tiers": {"small": tier}}
        variables = {"GDDL_WITHOUT_SPARK": ""}
        made = replace(ground, settings=settings, environ=variables).context()
        assert states(outcomes(made, *JOBS)) == PASSED
