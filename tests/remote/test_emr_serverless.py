"""Job runs of EMR Serverless, against moto; each request passes botocore's own model on its way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
import moto
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ParamValidationError
from moto.core import DEFAULT_ACCOUNT_ID
from moto.emrserverless.models import emrserverless_backends

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import FatalError, MetadataError, RetriableError
from airflow_gddl.contract.layout import result_name, results_folder
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobSpec, Roots, TableSpec, TierSpec
from airflow_gddl.runners.emr_serverless.platform import EmrPlatform, make, request_of
from airflow_gddl.runners.emr_serverless.settings import EmrSettings, EmrTier
from airflow_gddl.runners.interface import ENDED, FromEnvironment, Handle, RunRequest
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey
from airflow_gddl.stores import Storage
from tests.remote.heard import Heard

ROLE = "arn:aws:iam::123456789012:role/gddl"
OWN: dict[str, Any] = {"execution_role": ROLE, "entry_point": "s3://code/task.py", "region": "eu-west-1"}
RELEASE = "emr-spark-8.0.0"
TIER = TierSpec(cores=2, memory="6g", workers=3)
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "canary-of-aws",
    "AWS_SESSION_TOKEN": "canary-of-a-session",
    "AIRFLOW_CONN_AWS_DEFAULT": "aws://key:canary-of-a-connection@",
    "GDDL_MASK_KEY": "canary-of-the-mask-0123456789abcdef",
    "GDDL_SOURCE_SHOP": "canary-of-a-database",
}


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with moto.mock_aws():
        yield boto3.client("emr-serverless", region_name="eu-west-1")


@pytest.fixture
def application(client: Any) -> str:
    made = client.create_application(name="gddl", releaseLabel="emr-7.10.0", type="SPARK")["applicationId"]
    # moto's pattern of labels is older than this one.
    emrserverless_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].applications[made].release_label = RELEASE
    client.start_application(applicationId=made)
    return str(made)


def order(asked: str = "gddl-abc-1") -> RunRequest:
    return RunRequest(run_id="j-1", spec="s3://lake/_gddl/specs/j-1.json", size="small", tier=TIER, token=asked)


def platform(application: str, **own: Any) -> EmrPlatform:
    made = make({**OWN, "application_id": application, **own}, {}, FromEnvironment())
    assert isinstance(made, EmrPlatform)
    return made


def test_a_job_run_is_started_polled_and_cancelled(client: Any, application: str) -> None:
    made = platform(application, archive="s3://code/env.tar.gz", log_uri="s3://logs/x", tags={"team": "data"})
    handle = made.submit(order())
    found = client.get_job_run(applicationId=application, jobRunId=handle.run)["jobRun"]
    submit = found["jobDriver"]["sparkSubmit"]
    assert (found["executionRole"], submit["entryPoint"]) == (ROLE, "s3://code/task.py")
    assert submit["entryPointArguments"] == ["--spec", "s3://lake/_gddl/specs/j-1.json", "--results"]
    assert found["tags"] == {"gddl-tier": "small", "team": "data"}
    assert (found["executionTimeoutMinutes"], found["releaseLabel"]) == (720, RELEASE)
    assert handle.page.startswith("https://eu-west-1.console.aws.amazon.com/emr/")
    assert handle.page.endswith(f"/{application}/{handle.run}")
    made.cancel(handle)
    assert (made.poll(handle).state, made.poll(handle).has_ended) == ("cancelled", True)
    made.cancel(handle)


def test_every_state_of_the_service_is_known(client: Any, application: str) -> None:
    made = platform(application)
    handle = made.submit(order())
    (run,) = emrserverless_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].job_runs[application]
    seen = {}
    for state in client.meta.service_model.shape_for("JobRunState").enum:
        run.state, run.state_details = state, f"it is {state}"
        seen[state] = made.poll(handle).state
        assert made.poll(handle).message == f"it is {state}"
    ends = {state: found for state, found in seen.items() if found in ENDED}
    assert ends == {"SUCCESS": "succeeded", "FAILED": "failed", "CANCELLED": "cancelled"}
    assert {state for state, found in seen.items() if found == "running"} == {"RUNNING", "CANCELLING"}


def test_spark_settings(client: Any) -> None:
    settings = EmrSettings(
        **OWN, archive="s3://code/env.tar.gz", tiers={"small": EmrTier(application_id="a", max_executors=8)}
    )
    request = request_of(order(), settings)
    text = request["jobDriver"]["sparkSubmit"]["sparkSubmitParameters"]
    conf = dict(word.split("=", 1) for word in text.split() if word != "--conf")
    assert conf["spark.executor.memory"] == "6g"
    assert conf["spark.sql.variable.substitute"] == "false"
    assert conf["spark.jars"].endswith("/delta-spark.jar,/usr/share/aws/delta/lib/delta-storage.jar")
    assert (conf["spark.executor.instances"], conf["spark.dynamicAllocation.maxExecutors"]) == ("3", "8")
    assert conf["spark.archives"] == "s3://code/env.tar.gz#environment"
    assert conf["spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON"] == "./environment/bin/python"
    assert conf["spark.executorEnv.AWS_REGION"] == "eu-west-1"
    assert (request["clientToken"], request["applicationId"]) == ("gddl-abc-1", "a")


def test_tries_of_one_attempt_send_one_client_token(client: Any, application: str) -> None:
    # moto keeps no tokens: what is asked is what can be held.
    made, sent = platform(application), []
    made.client.meta.events.register(
        "provide-client-params.emr-serverless.StartJobRun", lambda params, **_: sent.append(params["clientToken"])
    )
    made.submit(order())
    made.submit(order())
    made.submit(order("gddl-abc-2"))
    assert sent == ["gddl-abc-1", "gddl-abc-1", "gddl-abc-2"]


def test_a_job_run_that_is_not_there_is_lost(client: Any, application: str) -> None:
    made = platform(application)
    handle = Handle(run="00nope", group=application)
    assert made.poll(handle).state == "lost"
    made.cancel(handle)


def test_an_application_that_is_not_there_is_a_refusal(client: Any) -> None:
    with pytest.raises(FatalError, match=r"PLATFORM_REFUSED.*ResourceNotFound"):
        platform("00nowhere").submit(order())


@pytest.mark.parametrize(
    ("tier", "own", "says"),
    [(TierSpec(cores=3), {"application_id": "a"}, "1, 2, 4, 8, 16 cores, not 3"), (TIER, {}, "has no application")],
)
def test_unsupported_settings_are_refused_before_a_request(tier: TierSpec, own: dict[str, Any], says: str) -> None:
    asked = RunRequest(run_id="j", spec="s3://x", size="small", tier=tier, token="")
    with pytest.raises(MetadataError, match=rf"RUNNER_SETTINGS_INVALID.*{says}"):
        request_of(asked, EmrSettings(**OWN, **own))


class Failing:
    """A client whose answers are errors."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def get_job_run(self, **_: object) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "family", "code"),
    [
        (ClientError({"Error": {"Code": "ThrottlingException"}}, "GetJobRun"), RetriableError, "PLATFORM_UNREACHABLE"),
        (ClientError({"Error": {"Code": "InternalServerException"}}, "G"), RetriableError, "PLATFORM_UNREACHABLE"),
        (EndpointConnectionError(endpoint_url="https://x"), RetriableError, "PLATFORM_UNREACHABLE"),
        (
            ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetJobRun"),
            FatalError,
            "PLATFORM_REFUSED.*permissions",
        ),
        (
            ClientError({"Error": {"Code": "ExpiredTokenException"}}, "GetJobRun"),
            FatalError,
            "PLATFORM_REFUSED.*renew the credentials",
        ),
        (ParamValidationError(report="x"), FatalError, "PLATFORM_REFUSED"),
    ],
)
def test_errors_are_retriable_and_refusals_fatal(error: Exception, family: type[Exception], code: str) -> None:
    made = EmrPlatform(EmrSettings(**OWN), Failing(error))
    with pytest.raises(family, match=code):
        made.poll(Handle(run="r", group="a"))


# A load's whole way


def run_of(roots: Roots, application: str, sleep: Callable[[float], None]) -> RemoteRunner:
    store = Storage()
    attempts = Attempts(store, roots.lake, TaskKey(pipeline="p", run="r", task="t"))
    return RemoteRunner(open=lambda: platform(application), store=store, attempts=attempts, sleep=sleep)


@dataclass
class Service:
    """What a job run does while somebody waits for it: nothing, until it has taken so long."""

    roots: Roots
    application: str
    takes: float
    waited: float = 0.0
    calls: list[str] = field(default_factory=list)

    def sleep(self, seconds: float) -> None:
        self.waited += seconds
        if self.waited < self.takes:
            return
        result = JobResult(table="s.a", status="succeeded", run_id="j-1", rows_read=7)
        folder = Path(results_folder(self.roots.lake, "j-1"))
        folder.mkdir(parents=True, exist_ok=True)
        (folder / result_name("s.a")).write_text(to_json(result))
        self.be("SUCCESS")

    def be(self, state: str) -> None:
        (run,) = self.runs
        run.state = state

    @property
    def runs(self) -> list[Any]:
        return list(emrserverless_backends[DEFAULT_ACCOUNT_ID]["eu-west-1"].job_runs[self.application])

    def listen(self, runner: RemoteRunner) -> None:
        made = runner.platform
        assert isinstance(made, EmrPlatform)
        events = made.client.meta.events
        events.register("provide-client-params.emr-serverless.*", lambda model, **_: self.calls.append(model.name))
        # moto's job runs have succeeded as soon as they are started.
        events.register("after-call.emr-serverless.StartJobRun", lambda **_: self.be("RUNNING"))


def test_runs_are_waited_for_without_a_timeout(client: Any, application: str, tmp_path: Path) -> None:
    """The stock waiter cancels after 25 minutes: this run takes 13 hours, is looked at, and never cancelled."""
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    service = Service(roots, application, takes=13 * 3600)
    runner, heard = run_of(roots, application, service.sleep), Heard()
    service.listen(runner)
    spec = JobSpec(run_id="j", roots=roots, tables=(TableSpec(table="s.a", keys=("id",)),))
    outcome = runner.run(spec, heard)
    assert (outcome.exit_status, heard.states, heard.results[0].rows_read) == (0, {"s.a": "succeeded"}, 7)
    assert (set(service.calls), service.calls.count("StartJobRun")) == ({"StartJobRun", "GetJobRun"}, 1)
    assert service.waited >= 13 * 3600
    # A look a minute at most, and some at the start.
    assert service.calls.count("GetJobRun") < 13 * 60 * 1.5


def test_a_waiting_command_that_is_stopped_cancels_its_job_run(client: Any, application: str, tmp_path: Path) -> None:
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    service = Service(roots, application, takes=60)

    def sleep(seconds: float) -> None:
        service.sleep(seconds)
        raise KeyboardInterrupt

    runner = run_of(roots, application, sleep)
    service.listen(runner)
    spec = JobSpec(run_id="j", roots=roots, tables=(TableSpec(table="s.a", keys=("id",)),))
    with pytest.raises(KeyboardInterrupt):
        runner.run(spec, Heard())
    (run,) = service.runs
    assert run.state == "CANCELLED"
    assert [attempt.stopped for attempt in runner.attempts.all()] == [True]


def test_no_credential_of_aws_reaches_requests_lake_or_logs(
    client: Any, application: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor a signed URL, which is one: no call asks for the Spark UI's."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    caplog.set_level("DEBUG", logger="airflow_gddl")
    roots = Roots(landing=str(tmp_path / "landing"), lake=str(tmp_path / "lake"))
    service, sent = Service(roots, application, takes=60), []
    runner, heard = run_of(roots, application, service.sleep), Heard()
    service.listen(runner)
    made = runner.platform
    assert isinstance(made, EmrPlatform)
    made.client.meta.events.register("provide-client-params.*.*", lambda params, **_: sent.append(params))
    outcome = runner.run(JobSpec(run_id="j", roots=roots, tables=(TableSpec(table="s.a", keys=("id",)),)), heard)
    assert heard.states == {"s.a": "succeeded"}
    handle = Handle(run=service.runs[0].id, group=application)
    assert made.links(handle) == {}
    assert set(service.calls) == {"StartJobRun", "GetJobRun"}
    kept = {str(path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any("_gddl/specs/" in path for path in kept)
    kept["said"] = repr((outcome, heard.results, sent, caplog.text, made.settings)).encode()
    assert [(path, name) for path, data in kept.items() for name, v in SECRETS.items() if v.encode() in data] == []
