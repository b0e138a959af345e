"""Glue as a `Platform`: runs of the saved job of a table's tier; and its settings in `gddl.yaml`.

Glue's API has no idempotency token, so the token is an argument of the run. Runs with this token are searched before a
run is started, and once more afterwards, in case two workers submit at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from airflow_gddl.contract import durations
from airflow_gddl.contract.durations import is_duration, seconds
from airflow_gddl.contract.errors import FatalError, FieldPath, SpecProblem
from airflow_gddl.contract.spec import CONTRACT_VERSION, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.contract.table_spec import STRICT
from airflow_gddl.runners.descriptor import RunnerDescriptor, settings_of
from airflow_gddl.runners.interface import (
    Connections,
    Handle,
    JobChange,
    Platform,
    RunRequest,
    RunStatus,
    State,
    check_contract,
    differences,
)
from airflow_gddl.runners.remote import CLIENT, code_of, translated

OLDEST = (6, 0)
"""The first version of Glue with Spark 4."""
# The service's own limits.
_MOST_RUNS = 1000
_FEWEST_WORKERS = 2
_LONGEST = 7 * 24 * 3600


@dataclass(frozen=True, kw_only=True)
class GlueTier:
    """The machines of one tier."""

    __pydantic_config__ = STRICT

    worker_type: str = "G.1X"
    """Type of its machines: `G.1X` has 4 cores and 16 GB, `G.2X` twice that, and so on up to `G.16X`."""
    workers: int | None = None
    """Machines, that of the driver among them; null: `workers` of the tier and one more."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, over ours."""


@dataclass(frozen=True, kw_only=True)
class GlueSettings:
    """Where jobs run, as whom, and what they run."""

    __pydantic_config__ = STRICT

    role: str
    """ARN of the role that jobs run as."""
    script: str
    """`s3://` URL of `gddl_glue.py`."""
    wheel: str
    """`s3://` URL of the wheel of this package."""
    dependencies: tuple[str, ...] = ("deltalake>=1.6.6,<1.7",)
    """What is installed beside the wheel."""
    glue_version: str = "6.0"
    """Version of Glue, 6.0 or newer."""
    delta_jars: tuple[str, ...] = ()
    """`s3://` URLs of Delta's JARs; empty: those of Glue."""
    job_name: str = "gddl"
    """The job of a tier is named `<job_name>-<tier>`."""
    max_concurrent_runs: int = 20
    """Runs of a job at once; more are queued."""
    timeout: str = "12h"
    """A run that takes longer is ended."""
    aws_conn_id: str = "aws_default"
    """Airflow connection; commands outside Airflow use what boto3 finds."""
    region: str | None = None
    """Region of the jobs; null: the connection's."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job."""
    local_roots: bool = False
    """Let landing and lake be local folders: for tests alone."""
    tiers: Mapping[str, GlueTier] = field(default_factory=dict)
    """What differs by tier."""

    def tier(self, size: str) -> GlueTier:
        return self.tiers.get(size, GlueTier())

    def job_of(self, size: str) -> str:
        """Name of the job that runs a tier's tables."""
        return f"{self.job_name}-{size}"


def check_settings(settings: GlueSettings) -> Iterator[SpecProblem]:
    """What types can't say."""
    urls: dict[FieldPath, str] = {("script",): settings.script, ("wheel",): settings.wheel}
    urls |= {("delta_jars", number): url for number, url in enumerate(settings.delta_jars)}
    for path, url in urls.items():
        if not url.startswith("s3://"):
            yield SpecProblem("FIELD_VALUE", path, url, "must be an s3:// URL", "write s3://bucket/key")
    if not settings.role.startswith("arn:"):
        remedy = "write arn:aws:iam::<account>:role/<name>"
        yield SpecProblem("FIELD_VALUE", ("role",), settings.role, "must be a role's ARN", remedy)
    yield from _check_numbers(settings)
    for size, tier in settings.tiers.items():
        if tier.workers is not None and tier.workers < _FEWEST_WORKERS:
            what, remedy = f"must be {_FEWEST_WORKERS} or more", "count the driver's machine, too"
            yield SpecProblem("FIELD_VALUE", ("tiers", size, "workers"), tier.workers, what, remedy)


def _check_numbers(settings: GlueSettings) -> Iterator[SpecProblem]:
    parts = settings.glue_version.split(".")
    if not all(part.isdigit() for part in parts) or tuple(map(int, parts)) < OLDEST:
        what, remedy = "has no Spark 4", "write 6.0 or newer"
        yield SpecProblem("FIELD_VALUE", ("glue_version",), settings.glue_version, what, remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem("DURATION_INVALID", ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")
    elif seconds(settings.timeout) > _LONGEST:
        yield SpecProblem("FIELD_VALUE", ("timeout",), settings.timeout, "longer than Glue allows", "write 7d or less")
    if not 1 <= settings.max_concurrent_runs <= _MOST_RUNS:
        what, remedy = f"must be 1 to {_MOST_RUNS}", "write a number between these"
        yield SpecProblem("FIELD_VALUE", ("max_concurrent_runs",), settings.max_concurrent_runs, what, remedy)


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.glue:make",
    start_seconds=lambda _settings, _tier: 60.0,  # an estimate
    settings=GlueSettings,
    check_settings=check_settings,
    package="boto3",
    extra="glue",
    deployed=True,
    bundle="airflow_gddl.bundle:GLUE",
)


Definition = Mapping[str, Any]
"""A job in the form of Glue's API."""
SPEC, TOKEN, REGION, CONTRACT = "--gddl_spec", "--gddl_token", "--gddl_region", "--gddl_contract"
"""Arguments of our script: URL of the JobSpec, token of its submission, region, contract version at deployment."""
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def jobs_of(tiers: Mapping[str, TierSpec], settings: GlueSettings) -> dict[str, Definition]:
    """Jobs by name, sorted."""
    return {settings.job_of(size): job_of(size, tier, settings) for size, tier in sorted(tiers.items())}


def job_of(size: str, tier: TierSpec, settings: GlueSettings) -> Definition:
    """The job that runs a tier's tables; each run receives its JobSpec as an argument."""
    own = settings.tier(size)
    return {
        "Name": settings.job_of(size),
        "Description": f"Loads tables of tier {size}; made by `gddl deploy glue`.",
        "Role": settings.role,
        "Command": {"Name": "glueetl", "ScriptLocation": settings.script, "PythonVersion": "3"},
        "DefaultArguments": arguments_of(own, settings),
        "ExecutionProperty": {"MaxConcurrentRuns": settings.max_concurrent_runs},
        "JobRunQueuingEnabled": True,
        # Airflow retries only the remaining tables; a retry by Glue would repeat all.
        "MaxRetries": 0,
        "Timeout": max(1, durations.seconds(settings.timeout) // 60),
        "GlueVersion": settings.glue_version,
        "WorkerType": own.worker_type,
        "NumberOfWorkers": own.workers if own.workers is not None else max(2, tier.workers + 1),
    }


def arguments_of(own: GlueTier, settings: GlueSettings) -> dict[str, str]:
    """Arguments that Glue itself reads, and those of our script that are the same for every run."""
    region = {"spark.executorEnv.AWS_REGION": settings.region} if settings.region else {}
    conf = {**_DELTA, **region, **own.spark_conf, **NO_SUBSTITUTION}
    arguments = {
        # One argument holds all settings: the first one bare, the others with the word before them.
        "--conf": " --conf ".join(f"{name}={value}" for name, value in conf.items()),
        "--additional-python-modules": ",".join([settings.wheel, *settings.dependencies]),
        "--enable-metrics": "true",
        CONTRACT: str(CONTRACT_VERSION),
    }
    if settings.delta_jars:
        arguments |= {"--extra-jars": ",".join(settings.delta_jars), "--user-jars-first": "true"}
    else:
        arguments["--datalake-formats"] = "delta"
    if settings.region:
        arguments[REGION] = settings.region
    return arguments


# Defined completely by the metadata: other entries are removed.
_WHOLE = frozenset({"DefaultArguments"})


def connect(settings: GlueSettings, connections: Connections) -> Any:
    """boto3's client.

    Raises:
        GddlError: as `remote.translated`.
    """
    with translated("Glue"):
        session = connections.aws(settings.aws_conn_id, settings.region)
        return session.client("glue", region_name=settings.region, config=CLIENT)


def plan(client: Any, wanted: Mapping[str, Definition]) -> list[JobChange[Definition]]:
    """Plan the change of each job, without changing anything. Jobs that are no longer wanted are kept.

    Raises:
        GddlError: as `remote.translated`.
    """
    return [_planned(client, name, definition) for name, definition in wanted.items()]


def _planned(client: Any, name: str, wanted: Definition) -> JobChange[Definition]:
    with translated("Glue"):
        try:
            actual = client.get_job(JobName=name)["Job"]
        except ClientError as error:
            if code_of(error) != "EntityNotFoundException":
                raise
            return JobChange(name=name, wanted=wanted, exists=False)
    return JobChange(name=name, wanted=wanted, exists=True, fields=tuple(differences(wanted, actual, _WHOLE)))


def apply(client: Any, changes: Iterable[JobChange[Definition]], tags: Mapping[str, str]) -> None:
    """Create and update jobs. After an error, earlier changes stay; run it again.

    Args:
        tags: of created jobs.

    Raises:
        GddlError: as `remote.translated`.
    """
    for change in changes:
        with translated("Glue"):
            if change.action == "create":
                client.create_job(**change.wanted, Tags=dict(tags))
            elif change.action == "update":
                update = {name: value for name, value in change.wanted.items() if name != "Name"}
                client.update_job(JobName=change.name, JobUpdate=update)


_STATES: Mapping[str, State] = {
    "RUNNING": "running",
    "STOPPING": "running",
    "SUCCEEDED": "succeeded",
    "FAILED": "failed",
    "ERROR": "failed",
    "TIMEOUT": "failed",
    "EXPIRED": "failed",
    "STOPPED": "cancelled",
}
_GONE = "EntityNotFoundException"
_LOOKBACK = timedelta(days=7)
"""How long a run may take: one that was started earlier has ended."""


def make(own: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("glue", GlueSettings, own)
    return GluePlatform(settings, connect(settings, connections))


@dataclass(frozen=True)
class GluePlatform(Platform):
    """See `Platform`. `client` is boto3's."""

    settings: GlueSettings
    client: Any

    def submit(self, request: RunRequest) -> Handle:
        """
        Raises:
            FatalError: `JOB_NOT_DEPLOYED`; `CONTRACT_VERSION`: the job was deployed by another version.
        """
        job = self.settings.job_of(request.size)
        with translated("Glue"):
            self._check_contract(job)
            found = self._first(job, request.token)
            if found is None:
                arguments = {SPEC: request.spec, TOKEN: request.token}
                started = str(self.client.start_job_run(JobName=job, Arguments=arguments)["JobRunId"])
                found = self._first(job, request.token) or started
                if found != started:
                    self._stop(job, started)
        return Handle(run=found, group=job, page=self._page(job, found))

    def poll(self, handle: Handle) -> RunStatus:
        with translated("Glue"):
            run = self._run(handle)
        if run is None:
            return RunStatus(state="lost", message=f"there is no run {handle.run} of job {handle.group}")
        state = str(run["JobRunState"])
        return RunStatus(state=_STATES.get(state, "waiting"), message=_message(state, run))

    def cancel(self, handle: Handle) -> None:
        with translated("Glue"):
            self._stop(handle.group, handle.run)

    def links(self, handle: Handle) -> Mapping[str, str]:
        """The log of the driver in CloudWatch."""
        try:
            run = self._run(handle)
        except (ClientError, BotoCoreError):
            return {}
        if run is None or not run.get("LogGroupName"):
            return {}
        # CloudWatch's pages write `/` twice quoted, with a dollar for the first percent sign.
        group = quote(quote(f"{run['LogGroupName']}/error", safe=""), safe="").replace("%", "$")
        logs = f"{self._console('cloudwatch')}#logsV2:log-groups/log-group/{group}/log-events/{handle.run}"
        return {"Log": logs}

    def _run(self, handle: Handle) -> Mapping[str, Any] | None:
        try:
            run: Mapping[str, Any] = self.client.get_job_run(JobName=handle.group, RunId=handle.run)["JobRun"]
        except ClientError as error:
            if code_of(error) != _GONE:
                raise
            return None
        return run

    def _first(self, job: str, token: str) -> str | None:
        """The run that was started first with this token."""
        found = [run for run in self._recent(job) if run.get("Arguments", {}).get(TOKEN) == token]
        return str(min(found, key=lambda run: (run["StartedOn"], run["Id"]))["Id"]) if found else None

    def _recent(self, job: str) -> Iterator[Mapping[str, Any]]:
        """Runs that may still be active, newest first."""
        since = datetime.now(UTC) - _LOOKBACK
        for page in self.client.get_paginator("get_job_runs").paginate(JobName=job):
            runs = page["JobRuns"]
            yield from runs
            if runs and runs[-1]["StartedOn"] < since:
                return

    def _stop(self, job: str, run: str) -> None:
        """A finished or unknown run need not be stopped: Glue reports it in its response."""
        self.client.batch_stop_job_run(JobName=job, JobRunIds=[run])

    def _check_contract(self, job: str) -> None:
        try:
            arguments = self.client.get_job(JobName=job)["Job"].get("DefaultArguments", {})
        except ClientError as error:
            if code_of(error) != _GONE:
                raise
            what = f"there is no Glue job named {job!r}"
            raise FatalError("JOB_NOT_DEPLOYED", what, remedy="run `gddl deploy glue`") from error
        check_contract("glue", job, arguments.get(CONTRACT))

    def _page(self, job: str, run: str) -> str:
        return f"{self._console('gluestudio')}#/job/{quote(job)}/run/{run}"

    def _console(self, service: str) -> str:
        region = self.client.meta.region_name
        return f"https://{region}.console.aws.amazon.com/{service}/home?region={region}"


def _message(state: str, run: Mapping[str, Any]) -> str:
    said = str(run.get("ErrorMessage") or run.get("StateDetail") or "")
    if _STATES.get(state) == "failed" and state != "FAILED":
        return f"{state}: {said}" if said else state
    return said
