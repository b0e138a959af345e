"""The whole way through a workspace: jobs deployed, runs of the real job, results out of the lake."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import DEFAULT_TIERS, JobSpec
from airflow_gddl.runners.databricks.jobs import jobs_of
from airflow_gddl.runners.databricks.settings import DatabricksSettings
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_runner, settings_of
from airflow_gddl.runners.remote import RemoteRunner, TaskKey
from devtools.fake_databricks.server import FakeServer
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write_bytes
from tests.remote.conftest import OWN
from tests.remote.heard import Heard


def deployed(fake: FakeServer, **own: Any) -> None:
    """Make the jobs of default tiers."""
    settings = settings_of("databricks", DatabricksSettings, {**OWN, **own})
    for job in jobs_of({"small": DEFAULT_TIERS["small"]}, settings).values():
        fake.workspace.create(job)


def runner(spec: JobSpec, run: str = "r1", **submission: Any) -> RemoteRunner:
    """As a try of a task has one."""
    task = TaskKey(pipeline="p", run=run, task="initial_load")
    made = make_runner(
        "databricks",
        RunnerSettings(
            command=(),
            environ={},
            declared=OWN,
            submission=SubmissionContext(task=task, roots=spec.roots, **submission),
        ),
    )
    assert isinstance(made, RemoteRunner)
    made.first_pause = 0.05
    return made


def pack(lake: Lake, names: Sequence[str]) -> JobSpec:
    specs = [spec_of(name) for name in names]
    for spec in specs:
        lake.load(spec)
    return lake.job(specs)


def test_a_pack_is_loaded_by_one_run_and_every_result_comes_back(fake: FakeServer, lake: Lake) -> None:
    deployed(fake)
    spec = pack(lake, ["a", "b", "c"])
    heard = Heard()
    outcome = runner(spec).run(spec, heard)
    assert heard.states == {"s.a": "succeeded", "s.b": "succeeded", "s.c": "succeeded"}
    assert (outcome.exit_status, outcome.waiting, len(outcome.results)) == (0, None, 3)
    assert {result.main.rows for result in heard.results} == {3}
    assert lake.replica(spec.tables[0]) == {0: "load 0", 1: "load 1", 2: "load 2"}
    (started,) = fake.workspace.runs.values()
    assert outcome.log == started.page == f"{fake.workspace.url}/runs/{started.run_id}"
    assert (started.attempts, started.parameters["spec"]) == (1, f"{spec.roots.lake}/_gddl/specs/run-1.json")


def test_without_a_deployed_job_nothing_is_started(fake: FakeServer, lake: Lake) -> None:
    spec = pack(lake, ["a"])
    with pytest.raises(FatalError, match=r"JOB_NOT_DEPLOYED.*gddl-small.*gddl deploy databricks"):
        runner(spec).run(spec, Heard())
    assert fake.workspace.runs == {}


def test_the_run_of_a_lost_worker_is_resumed(fake: FakeServer, lake: Lake) -> None:
    deployed(fake)
    spec = pack(lake, ["a", "b"])
    first = runner(spec, patient=False).run(spec, Heard())
    assert first.waiting is not None
    heard = Heard()
    second = runner(spec)
    second.run(spec, heard)
    second.settle()
    assert heard.states == {"s.a": "succeeded", "s.b": "succeeded"}
    assert (fake.workspace.started, [r.run_id for r in heard.results]) == (1, ["run-1", "run-1"])
    # Its results are taken: who asks again, a person who cleared the task, has a run of its own.
    third = Heard()
    runner(spec).run(spec, third)
    assert (fake.workspace.started, third.states) == (2, {"s.a": "skipped", "s.b": "skipped"})


def test_no_credential_of_a_workspace_or_of_airflow_reaches_lake_or_jobs(
    fake: FakeServer, lake: Lake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a table that fails beside one that is loaded: specification, answers, records, logs, definitions of jobs."""
    secrets = {"AWS_SECRET_ACCESS_KEY": "canary-aws", "AIRFLOW_CONN_DB": "canary-conn", "GDDL_SOURCE_SHOP": "canary-db"}
    for name, value in secrets.items():
        monkeypatch.setenv(name, value)
    caplog.set_level("DEBUG")
    deployed(fake)
    spec = pack(lake, ["a", "b"])
    write_bytes(Path(lake.layout(spec.tables[1]).landing), "LOAD00000001.parquet", b"none")
    heard = Heard()
    outcome = runner(spec).run(spec, heard)
    assert heard.states == {"s.a": "succeeded", "s.b": "FIRST_LOAD_UNREADABLE"}
    kept = {path: path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    assert any("specs" in path.parts for path in kept)
    said = repr((outcome, heard.results, fake.workspace.jobs, caplog.text)).encode()
    for secret in (fake.token, *secrets.values()):
        assert [path for path, data in {**kept, Path("said"): said}.items() if secret.encode() in data] == []
