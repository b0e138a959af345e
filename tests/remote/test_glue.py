"""Glue jobs deployed, their runs started, followed and stopped; results come out of the lake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import EndpointConnectionError, NoRegionError, ProfileNotFound

from airflow_gddl.contract.errors import FatalError, RetriableError
from airflow_gddl.contract.spec import CONTRACT_VERSION, DEFAULT_TIERS, JobSpec, Roots, TierSpec
from airflow_gddl.runners.aws import translated
from airflow_gddl.runners.glue.jobs import job_of, jobs_of, render
from airflow_gddl.runners.glue.platform import GluePlatform, make
from airflow_gddl.runners.glue.settings import GlueSettings, GlueTier, check_settings
from airflow_gddl.runners.interface import ENDED, FromEnvironment, Handle, RunRequest
from airflow_gddl.runners.remote import Attempts, RemoteRunner, TaskKey
from airflow_gddl.stores import Storage
from tests.harness.lake import Lake, spec_of
from tests.harness.landing import write_bytes
from tests.remote.glue_service import GlueService, Run
from tests.remote.heard import Heard
from tests.remote.test_emr_serverless import SECRETS

ROLE = "arn:aws:iam::123456789012:role/gddl"
OWN: dict[str, Any] = {
    "role": ROLE,
    "script": "s3://code/gddl_glue.py",
    "wheel": "s3://code/airflow_gddl-0.1.0-py3-none-any.whl",
    "region": "eu-west-1",
}
TIERS = {"small": DEFAULT_TIERS["small"]}


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[GlueService]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    made = GlueService(tmp_path)
    yield made
    made.close()


@pytest.fixture
def quiet(service: GlueService) -> GlueService:
    """One that starts no processes."""
    service.runs_jobs = False
    return service


def platform(service: GlueService, **own: Any) -> GluePlatform:
    made = make({**OWN, **own}, {}, FromEnvironment())
    assert isinstance(made, GluePlatform)
    service.attach(made.client)
    return made


def deployed(service: GlueService, **own: Any) -> None:
    settings, client = GlueSettings(**{**OWN, **own}), service.client()
    for job in jobs_of(TIERS, settings).values():
        client.create_job(**job)


def order(asked: str = "gddl-abc-1") -> RunRequest:
    return RunRequest(run_id="j-1", spec="s3://lake/_gddl/specs/j-1.json", size="small", tier=TierSpec(), token=asked)


# Deploying


def test_a_template_of_cloudformation_holds_the_jobs(quiet: GlueService, tmp_path: Path) -> None:
    settings = GlueSettings(**OWN)
    said = render(tmp_path, TIERS, settings, Roots(landing="s3://b/landing", lake="s3://b/lake"))
    command = f"aws cloudformation deploy --stack-name gddl --template-file {tmp_path / 'gddl-glue.json'}"
    assert f"`{command} --region eu-west-1`" in said
    template = json.loads((tmp_path / "gddl-glue.json").read_text())
    (job,) = template["Resources"].values()
    assert job["Type"] == "AWS::Glue::Job"
    quiet.client().create_job(**job["Properties"])
    assert quiet.jobs["gddl-small"] == job_of("small", TIERS["small"], settings)


def test_what_a_job_says() -> None:
    job = job_of("large", TierSpec(workers=4), GlueSettings(**OWN, tiers={"large": GlueTier(worker_type="G.2X")}))
    assert (job["GlueVersion"], job["WorkerType"], job["NumberOfWorkers"], job["MaxRetries"]) == ("6.0", "G.2X", 5, 0)
    assert job["Command"] == {"Name": "glueetl", "ScriptLocation": OWN["script"], "PythonVersion": "3"}
    arguments = job["DefaultArguments"]
    assert arguments["--datalake-formats"] == "delta"
    assert arguments["--additional-python-modules"].split(",")[0] == OWN["wheel"]
    assert arguments["--conf"].split(" --conf ") == [
        "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.executorEnv.AWS_REGION=eu-west-1",
        "spark.sql.variable.substitute=false",
    ]


def test_settings_that_glue_would_refuse_are_named() -> None:
    wrong = GlueSettings(
        role="gddl",
        script="/tmp/x.py",  # noqa: S108 - a path that is wrong
        wheel="s3://code/w.whl",
        tiers={"small": GlueTier(workers=1)},
    )
    fields = [problem.path for problem in check_settings(wrong)]
    assert fields == [("script",), ("role",), ("tiers", "small", "workers")]
    assert list(check_settings(GlueSettings(**OWN))) == []


# Runs


def test_a_run_is_started_polled_and_stopped(quiet: GlueService) -> None:
    deployed(quiet)
    made = platform(quiet)
    handle = made.submit(order())
    (run,) = quiet.runs
    assert run.arguments == {"--gddl_spec": order().spec, "--gddl_token": "gddl-abc-1"}
    page = "https://eu-west-1.console.aws.amazon.com/gluestudio/home?region=eu-west-1#/job/gddl-small/run/jr_0"
    assert (handle.run, handle.group, handle.page) == ("jr_0", "gddl-small", page)
    (log,) = made.links(handle).values()
    assert log.endswith("#logsV2:log-groups/log-group/$252Faws-glue$252Fjobs$252Ferror/log-events/jr_0")
    run.state = "RUNNING"
    made.cancel(handle)
    assert made.poll(handle).state == "cancelled"
    made.cancel(handle)


def test_every_state_of_the_service_is_known(quiet: GlueService) -> None:
    deployed(quiet)
    made = platform(quiet)
    handle = made.submit(order())
    found = {}
    for state in made.client.meta.service_model.shape_for("JobRunState").enum:
        quiet.runs[0].state = state
        found[state] = made.poll(handle).state
    assert {state: at for state, at in found.items() if at in ENDED} == {
        "SUCCEEDED": "succeeded", "FAILED": "failed", "ERROR": "failed", "TIMEOUT": "failed", "EXPIRED": "failed",
        "STOPPED": "cancelled",
    }  # fmt: skip
    assert {state for state, at in found.items() if at == "running"} == {"RUNNING", "STOPPING"}


def test_one_token_starts_one_run_however_many_came_after_it(quiet: GlueService) -> None:
    deployed(quiet)
    made = platform(quiet)
    first = made.submit(order())
    for number in range(2, 6):
        made.submit(order(f"gddl-abc-{number}"))
    assert made.submit(order()) == first
    assert len(quiet.runs) == 5


def test_of_two_concurrent_submissions_the_later_run_is_stopped(quiet: GlueService) -> None:
    deployed(quiet)
    made, other = platform(quiet), []

    def somebody_else(model: Any, **_: Any) -> None:
        if model.name == "StartJobRun" and not other:
            earlier = datetime.now(UTC) - timedelta(seconds=1)
            other.append(Run("jr_other", "gddl-small", {"--gddl_token": "gddl-abc-1"}, None, "RUNNING", earlier))
            quiet.runs += other

    made.client.meta.events.register("before-parameter-build.glue", somebody_else)
    assert made.submit(order()).run == "jr_other"
    assert [(run.id, run.stopping) for run in quiet.runs] == [("jr_other", False), ("jr_1", False)]
    assert "BatchStopJobRun" in quiet.calls


def test_old_runs_are_not_searched(quiet: GlueService) -> None:
    deployed(quiet)
    made = platform(quiet)
    for number in range(7):
        made.submit(order(f"gddl-{number}"))
    for run in quiet.runs:
        run.started -= timedelta(days=8)
    quiet.calls.clear()
    made.submit(order("gddl-new"))
    assert quiet.calls.count("GetJobRuns") == 2  # a page before, a page after


def test_a_run_that_is_not_there_is_lost(quiet: GlueService) -> None:
    deployed(quiet)
    made = platform(quiet)
    handle = Handle(run="jr_nope", group="gddl-small")
    assert made.poll(handle).state == "lost"
    assert made.links(handle) == {}
    made.cancel(handle)


def test_without_a_deployed_job_nothing_is_started(quiet: GlueService) -> None:
    with pytest.raises(FatalError, match=r"JOB_NOT_DEPLOYED.*gddl-small.*gddl deploy glue"):
        platform(quiet).submit(order())
    assert quiet.runs == []


def test_a_job_that_another_version_deployed_is_refused(quiet: GlueService) -> None:
    deployed(quiet)
    quiet.jobs["gddl-small"]["DefaultArguments"]["--gddl_contract"] = str(CONTRACT_VERSION + 1)
    with pytest.raises(FatalError, match=r"CONTRACT_VERSION.*gddl deploy glue"):
        platform(quiet).submit(order())
    assert quiet.runs == []


@pytest.mark.parametrize(
    ("code", "family", "says"),
    [
        ("ThrottlingException", RetriableError, "PLATFORM_UNREACHABLE"),
        ("InternalServiceException", RetriableError, "PLATFORM_UNREACHABLE"),
        ("ConcurrentRunsExceededException", RetriableError, "PLATFORM_UNREACHABLE"),
        ("ResourceNumberLimitExceededException", RetriableError, "PLATFORM_UNREACHABLE.*when other runs have ended"),
        ("ServiceQuotaExceededException", RetriableError, "PLATFORM_UNREACHABLE.*ask AWS for a larger quota"),
        ("AccessDeniedException", FatalError, "PLATFORM_REFUSED.*permissions.*glue.md"),
        ("ExpiredTokenException", FatalError, "PLATFORM_REFUSED.*renew the credentials"),
    ],
)
def test_errors_are_retriable_and_refusals_fatal(
    quiet: GlueService, monkeypatch: pytest.MonkeyPatch, code: str, family: type[Exception], says: str
) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0.0)
    deployed(quiet)
    quiet.refuses["StartJobRun"] = code
    with pytest.raises(family, match=says):
        platform(quiet).submit(order())


@pytest.mark.parametrize(
    ("error", "family", "says"),
    [
        (NoRegionError(), FatalError, r"PLATFORM_REFUSED.*region.*runners\.glue in gddl\.yaml"),
        (ProfileNotFound(profile="x"), FatalError, "PLATFORM_REFUSED.*profile"),
        (EndpointConnectionError(endpoint_url="https://x"), RetriableError, "PLATFORM_UNREACHABLE"),
    ],
)
def test_a_setting_that_lacks_is_not_tried_again(error: Exception, family: type[Exception], says: str) -> None:
    with pytest.raises(family, match=says), translated("Glue"):
        raise error


# A load's whole way


def runner(service: GlueService, spec: JobSpec, *, patient: bool = True) -> RemoteRunner:
    store = Storage()
    attempts = Attempts(store, spec.roots.lake, TaskKey(pipeline="p", run="r", task="t"))
    return RemoteRunner(
        open=lambda: platform(service), store=store, attempts=attempts, first_pause=0.05, patient=patient
    )


def pack(folder: Path, *names: str) -> tuple[Lake, JobSpec]:
    lake = Lake(folder)
    specs = [spec_of(name) for name in names]
    for spec in specs:
        lake.load(spec)
    return lake, lake.job(specs)


def test_a_pack_is_loaded_by_one_run_and_every_result_comes_back(service: GlueService, tmp_path: Path) -> None:
    deployed(service)
    lake, spec = pack(tmp_path, "a", "b")
    heard = Heard()
    outcome = runner(service, spec).run(spec, heard)
    assert heard.states == {"s.a": "succeeded", "s.b": "succeeded"}
    assert (outcome.exit_status, outcome.waiting) == (0, None)
    assert lake.replica(spec.tables[0]) == {0: "load 0", 1: "load 1", 2: "load 2"}
    assert len(service.runs) == 1
    assert outcome.log is not None
    assert outcome.log.endswith("/job/gddl-small/run/jr_0")


def test_the_run_of_a_lost_worker_is_resumed(service: GlueService, tmp_path: Path) -> None:
    deployed(service)
    _, spec = pack(tmp_path, "a")
    assert runner(service, spec, patient=False).run(spec, Heard()).waiting is not None
    heard = Heard()
    runner(service, spec).run(spec, heard)
    assert (heard.states, len(service.runs)) == ({"s.a": "succeeded"}, 1)


def test_a_run_stopped_by_a_user_fails_its_tables(service: GlueService, tmp_path: Path) -> None:
    deployed(service)
    _, spec = pack(tmp_path, "a")
    service.holds_jobs = True
    assert runner(service, spec, patient=False).run(spec, Heard()).waiting is not None
    platform(service).cancel(Handle(run="jr_0", group="gddl-small"))
    process = service.runs[0].process
    assert process is not None
    process.wait(60)
    heard = Heard()
    runner(service, spec).run(spec, heard)
    assert heard.states == {"s.a": "REMOTE_RUN_CANCELLED"}


def test_no_credential_of_aws_reaches_requests_lake_or_logs(
    service: GlueService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """With a table that fails beside one that is loaded; the run has the credentials in its environment."""
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    caplog.set_level("DEBUG", logger="airflow_gddl")
    deployed(service)
    lake, spec = pack(tmp_path, "a", "b")
    write_bytes(Path(lake.layout(spec.tables[1]).landing), "LOAD00000001.parquet", b"none")
    started, heard = runner(service, spec), Heard()
    outcome = started.run(spec, heard)
    assert heard.states == {"s.a": "succeeded", "s.b": "FIRST_LOAD_UNREADABLE"}
    made = started.platform
    links = made.links(Handle(run="jr_0", group="gddl-small"))
    assert all("Signature" not in url and "oken" not in url for url in links.values())
    kept = {str(path): path.read_bytes() for path in lake.root.rglob("*") if path.is_file()}
    assert any("_gddl/specs/" in path for path in kept)
    requests = (service.jobs, [run.arguments for run in service.runs])
    kept["said"] = repr((outcome, heard.results, requests, links, caplog.text)).encode()
    assert [(path, name) for path, data in kept.items() for name, v in SECRETS.items() if v.encode() in data] == []
