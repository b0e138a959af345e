"""The calls of the Jobs API in bad weather, and what the fake refuses."""

from __future__ import annotations

import http.client
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from databricks.sdk.service.jobs import JobSettings

from airflow_gddl.contract.errors import FatalError, MetadataError, RetriableError
from airflow_gddl.contract.spec import DEFAULT_TIERS, TierSpec
from airflow_gddl.runners.databricks.access import DatabricksAccess
from airflow_gddl.runners.databricks.jobs import job_of
from airflow_gddl.runners.databricks.platform import DatabricksPlatform
from airflow_gddl.runners.databricks.settings import DatabricksSettings, DatabricksTier
from airflow_gddl.runners.databricks.workspace import Workspace, connect
from airflow_gddl.runners.interface import Handle, RunRequest
from devtools.fake_databricks.server import FakeServer, serving
from devtools.fake_databricks.workspace import Refusal, TaskProcess, allowed, arguments_of, settings_of
from spark_jobs import program as job_main
from spark_jobs.discovery import SOURCES
from tests.harness.waiting import wait_for
from tests.remote.conftest import OWN

SMALL = DEFAULT_TIERS["small"]
STAND_IN = """
import json, pathlib, sys, time
order = json.loads(sys.argv[sys.argv.index("--spec") + 1])
print("working on it", flush=True)
time.sleep(order["sleep"])
sys.exit(order["exit"])
"""
SLOW = '{"sleep": 300, "exit": 0}'
GOOD = '{"sleep": 0, "exit": 0}'
BAD = '{"sleep": 0, "exit": 3}'


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Any:
    with serving(["python3", "-c", STAND_IN]) as server:
        monkeypatch.setenv("DATABRICKS_HOST", server.workspace.url)
        monkeypatch.setenv("DATABRICKS_TOKEN", server.token)
        yield server


def platform(fake: FakeServer, **own: Any) -> DatabricksPlatform:
    """With its job deployed, and no patience between tries."""
    settings = DatabricksSettings(**{**OWN, **own})
    if not fake.workspace.jobs:
        fake.workspace.create(job_of("small", SMALL, settings))
    return DatabricksPlatform(settings, Workspace(connect(DatabricksAccess()).jobs, lambda _: None))


def order(spec: str = GOOD, asked: str = "t1") -> RunRequest:
    return RunRequest(run_id="j", spec=spec, size="small", tier=SMALL, token=asked)


def ended(made: DatabricksPlatform, handle: Handle) -> tuple[str, str]:
    wait_for(lambda: made.poll(handle).has_ended)
    sight = made.poll(handle)
    return sight.state, sight.message


def test_a_run_succeeds_or_fails_with_its_message(fake: FakeServer) -> None:
    made = platform(fake)
    assert ended(made, made.submit(order())) == ("succeeded", "")
    assert ended(made, made.submit(order(BAD, "t2"))) == ("failed", "RUN_EXECUTION_ERROR: working on it")


def test_the_same_token_is_the_same_run(fake: FakeServer) -> None:
    made = platform(fake)
    one, two = made.submit(order()), made.submit(order())
    assert one == two
    assert len(fake.workspace.runs) == 1
    assert made.submit(order(asked="t2")) != one


def test_an_answer_that_got_lost_leads_to_the_run_that_was_started(fake: FakeServer) -> None:
    made = platform(fake)
    fake.mood.answers = [None, "drop"]
    handle = made.submit(order())
    asked = [method for method, _ in fake.requests]
    assert asked.count("POST run-now") == 2
    assert list(fake.workspace.runs) == [int(handle.run)]


def test_throttling_honours_retry_after(fake: FakeServer) -> None:
    made = platform(fake)
    handle = made.submit(order())
    fake.mood.answers, fake.mood.retry_after = [429], 2
    begun = time.monotonic()
    made.poll(handle)
    assert time.monotonic() - begun >= 2


def test_server_errors_are_retried_and_then_reported_as_retriable(fake: FakeServer) -> None:
    made = platform(fake)
    handle = made.submit(order())
    fake.mood.answers = [500, 500]
    made.poll(handle)
    fake.mood.answers = [500] * 3
    with pytest.raises(RetriableError, match=r"PLATFORM_UNREACHABLE.*InternalError"):
        made.poll(handle)


@pytest.mark.parametrize(("status", "says"), [(403, "PermissionDenied"), (401, "Unauthenticated"), (400, "BadRequest")])
def test_refusals_are_final_and_say_why(fake: FakeServer, status: int, says: str) -> None:
    made = platform(fake)
    fake.mood.answers = [status]
    with pytest.raises(FatalError, match=rf"PLATFORM_REFUSED.*{says}"):
        made.submit(order())


def test_a_wrong_token_is_refused_and_never_shown(fake: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABRICKS_TOKEN", "hunter22")
    with pytest.raises(FatalError, match="PLATFORM_REFUSED") as met:
        platform(fake).submit(order())
    assert "hunter22" not in str(met.value)


def test_without_credentials_no_request_is_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    for name in ("DATABRICKS_HOST", "DATABRICKS_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DATABRICKS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(FatalError, match=r"CONNECTION_UNUSABLE.*DATABRICKS_HOST"):
        connect(DatabricksAccess())


def test_a_cancelled_run_ends_and_cancelling_what_has_ended_is_no_error(fake: FakeServer) -> None:
    made = platform(fake)
    handle = made.submit(order(SLOW))
    wait_for(lambda: made.poll(handle).state == "running")
    made.cancel(handle)
    assert ended(made, handle)[0] == "cancelled"
    made.cancel(handle)
    made.cancel(Handle(run="99"))
    assert made.poll(Handle(run="99")).state == "lost"


def test_a_run_with_a_cloud_failure_is_repaired_up_to_the_limit(fake: FakeServer) -> None:
    made = platform(fake, repairs=1)
    fake.workspace.cloud_failures = 2
    handle = made.submit(order())
    sight = made.poll(handle)
    assert (sight.state, sight.restartable, sight.has_ended) == ("failed", True, False)
    made.restart(handle)
    sight = made.poll(handle)
    assert (sight.restartable, sight.has_ended) == (False, True)
    fake.mood.answers = [None, 400]
    with pytest.raises(FatalError, match="PLATFORM_REFUSED"):
        made.restart(handle)
    assert "AWS_INSUFFICIENT_INSTANCE_CAPACITY_FAILURE" in sight.message
    again = made.submit(order(asked="t2"))
    assert ended(made, again)[0] == "succeeded"


def test_two_watchers_repair_a_run_once(fake: FakeServer) -> None:
    made = platform(fake, repairs=3)
    fake.workspace.cloud_failures = 1
    handle = made.submit(order(SLOW))
    made.restart(handle)
    made.restart(handle)
    assert len(fake.workspace.runs[int(handle.run)].repairs) == 1


def test_more_runs_than_allowed_are_queued(fake: FakeServer) -> None:
    made = platform(fake)
    (job,) = fake.workspace.jobs.values()
    job.max_concurrent_runs = 1
    first, second = made.submit(order(SLOW)), made.submit(order(asked="t2"))
    assert made.poll(second).state == "waiting"
    made.cancel(first)
    assert ended(made, second)[0] == "succeeded"


def test_a_job_that_another_version_deployed_starts_no_machine(fake: FakeServer) -> None:
    made = platform(fake)
    (job,) = fake.workspace.jobs.values()
    job.tags = {**(job.tags or {}), "gddl-contract": "0"}
    with pytest.raises(FatalError, match=r"CONTRACT_VERSION.*contract version 0.*gddl deploy databricks"):
        made.submit(order())
    assert fake.workspace.runs == {}


def test_two_jobs_of_one_name_are_not_chosen_between(fake: FakeServer) -> None:
    made = platform(fake)
    fake.workspace.create(job_of("small", SMALL, made.settings))
    with pytest.raises(FatalError, match=r"JOB_NOT_DEPLOYED.*2 jobs named"):
        made.submit(order())


# What the fake refuses


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"max_concurent_runs": 1}, "JobSettings.max_concurent_runs"),
        ({"queue": {"enable": True}}, "JobSettings.queue.enable"),
        ({"tasks": [{"task_key": "a", "python_wheel_task": {"package": "x"}}]}, "JobSettings"),
        ({"tasks": [{"task_key": "a", "environment_key": "none"}]}, "names environment none"),
        ({"tasks": [{"task_key": "a", "job_cluster_key": "none"}]}, "names job cluster none"),
        ({"performance_target": "FAST"}, "performance_target"),
    ],
)
def test_settings_that_the_sdk_does_not_know_are_refused(change: dict[str, Any], says: str) -> None:
    body = {**job_of("small", SMALL, DatabricksSettings(**OWN)).as_dict(), **change}
    with pytest.raises(Refusal, match=says):
        settings_of(body)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"job_id": 1, "idempotancy_token": "x"}, "unknown field 'idempotancy_token'"),
        ({"job_id": "1"}, "job_id must be int"),
        ({"job_id": 1, "job_parameters": {"spec": 5}}, "job_parameters.spec must be str"),
        ({"job_parameters": {}}, "job_id is missing"),
        ({"job_id": 1, "queue": {"on": True}}, "QueueSettings"),
    ],
)
def test_calls_that_the_sdk_does_not_know_are_refused(body: dict[str, Any], says: str) -> None:
    with pytest.raises(Refusal, match=says):
        arguments_of("run_now", body)


def test_a_parameter_that_the_job_has_not_is_refused(fake: FakeServer) -> None:
    made = platform(fake)
    (job,) = fake.workspace.jobs
    with pytest.raises(Refusal, match="no parameter 'other'"):
        fake.workspace.run_now({"job_id": job, "job_parameters": {"other": "x"}})
    assert made.settings.job_of("small") == "gddl-small"


LARGE = DEFAULT_TIERS["large"]
AUTO: dict[str, Any] = {"serverless": False, "node_type": "i3.xlarge", "discovery": "auto_loader"}


def test_auto_loader_is_an_argument_of_the_job() -> None:
    """One that the job understands."""
    own = DatabricksTier(**AUTO, auto_loader={"cloudFiles.useNotifications": "true"})
    (task,) = job_of("large", LARGE, DatabricksSettings(**OWN, tiers={"large": own})).tasks or ()
    assert task.python_wheel_task is not None
    arguments = task.python_wheel_task.parameters or []
    assert arguments[-3:] == ["--discovery", "auto_loader", "--stream-option=cloudFiles.useNotifications=true"]
    parsed = job_main._parser().parse_args(arguments)
    source = SOURCES[parsed.discovery].having(dict(parsed.stream_option))
    assert (source.format, source.options) == (
        "cloudFiles",
        {
            "cloudFiles.format": "binaryFile",
            "cloudFiles.allowOverwrites": "true",
            "cloudFiles.useNotifications": "true",
        },
    )
    plain = job_of("large", LARGE, DatabricksSettings(**OWN)).tasks or ()
    assert plain[0].python_wheel_task is not None
    assert "--discovery" not in (plain[0].python_wheel_task.parameters or [])


def test_auto_loader_is_for_tables_of_spark() -> None:
    settings = DatabricksSettings(**OWN, tiers={"small": DatabricksTier(**AUTO)})
    with pytest.raises(MetadataError, match=r"RUNNER_SETTINGS_INVALID.*tasks: many.*tiers\.small"):
        job_of("small", SMALL, settings)


@pytest.mark.parametrize("own", [{"serverless": True}, {"node_type": "i3.xlarge"}])
def test_what_is_deployed_is_taken_as_it_is(own: dict[str, Any]) -> None:
    settings = DatabricksSettings(**OWN, tiers={"small": DatabricksTier(**own)})
    job = job_of("small", TierSpec(workers=3), settings)
    for cluster in job.job_clusters or ():
        assert cluster.new_cluster.spark_conf == {"spark.sql.variable.substitute": "false"}
    assert settings_of(job.as_dict()) == JobSettings.from_dict(job.as_dict())


def asked(fake: FakeServer, path: str = "/api/2.2/jobs/list", **headers: str) -> int:
    given = {"Host": fake.workspace.url.removeprefix("http://"), "Authorization": f"Bearer {fake.token}", **headers}
    with closing(http.client.HTTPConnection("127.0.0.1", int(fake.workspace.url.rpartition(":")[2]))) as connection:
        connection.putrequest("GET", path, skip_host=True)
        for name, value in {**given, "Connection": "close"}.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        answer.read()
        return answer.status


def test_the_fake_takes_its_own_token_and_address_only(fake: FakeServer) -> None:
    assert asked(fake) == 200
    for token in ("fake", "", fake.token[:-1], "é"):
        assert asked(fake, Authorization=f"Bearer {token}") == 401, token
    for host in ("evil.example", "evil.example:80", "", "127.0.0.1"):
        assert [asked(fake, path, Host=host) for path in ("/api/2.2/jobs/list", "/runs/1")] == [403, 403], host
    with serving(["true"]) as other:
        assert other.token != fake.token
    assert fake.token not in repr(fake)


def test_a_job_sets_listed_variables_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    (tmp_path / "sitecustomize.py").write_text("print('code of the caller')")
    given = {"PYTHONPATH": str(tmp_path), "GDDL_JARS": "/x", "LD_PRELOAD": "/x", "GDDL_SETTLE": "7s", "AWS_REGION": "r"}
    assert allowed({"TZDIR": "/x", "AWS_REGION_": "/x", "MY_TZ": "/x", "TZ": "UTC"}) == {"TZ": "UTC"}
    show = "import os; print([os.environ.get(n) for n in ('PYTHONPATH', 'GDDL_JARS', 'GDDL_SETTLE', 'AWS_REGION')])"
    process = TaskProcess([sys.executable, "-c", show], given)
    assert process.wait() == 0
    assert list(process.lines) == ["[None, None, '7s', 'r']"]
