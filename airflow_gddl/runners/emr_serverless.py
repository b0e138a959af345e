"""EMR Serverless as a `Platform`, and its settings in `gddl.yaml`.

`RemoteRunner` and `GddlRunTrigger` wait for runs: only the job run's own timeout ends a run, no client timeout cancels
one. The service itself restarts the driver of a run whose machine was lost.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError

from airflow_gddl.contract import durations
from airflow_gddl.contract.durations import is_duration
from airflow_gddl.contract.errors import FieldPath, MetadataError, SpecProblem
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.contract.table_spec import STRICT
from airflow_gddl.runners.descriptor import RunnerDescriptor, settings_of
from airflow_gddl.runners.interface import Connections, Handle, Platform, RunRequest, RunStatus, State
from airflow_gddl.runners.remote import CLIENT, code_of, translated


@dataclass(frozen=True, kw_only=True)
class EmrTier:
    """What differs for one tier."""

    __pydantic_config__ = STRICT

    application_id: str | None = None
    """Its application; null: that of all."""
    max_executors: int | None = None
    """Executors when there is much to do; null: `workers` of the tier."""
    disk: str = "20g"
    """Disk of each machine, 20g to 200g."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Settings of Spark, over ours."""


@dataclass(frozen=True, kw_only=True)
class EmrSettings:
    """Where jobs run, as whom, and what they run."""

    __pydantic_config__ = STRICT

    execution_role: str
    """ARN of the role that jobs run as."""
    entry_point: str
    """`s3://` URL of the script that calls `spark_jobs.main.task`."""
    application_id: str | None = None
    """Application of tiers that name none."""
    archive: str | None = None
    """`s3://` URL of the packed Python environment; null: the application's image has it."""
    aws_conn_id: str = "aws_default"
    """Airflow connection; commands outside Airflow use what boto3 finds."""
    region: str | None = None
    """Region of the applications; null: the connection's."""
    timeout: str = "12h"
    """A job run that takes longer is ended."""
    log_uri: str | None = None
    """`s3://` URL for logs, beside those that the service keeps for 30 days; null: none."""
    tags: Mapping[str, str] = field(default_factory=dict)
    """Tags of every job run."""
    local_roots: bool = False
    """Let landing and lake be local folders: for tests alone."""
    tiers: Mapping[str, EmrTier] = field(default_factory=dict)
    """What differs by tier."""

    def tier(self, size: str) -> EmrTier:
        return self.tiers.get(size, EmrTier())


def check_settings(settings: EmrSettings) -> Iterator[SpecProblem]:
    """What types can't say."""
    urls: dict[FieldPath, str | None] = {
        ("entry_point",): settings.entry_point,
        ("archive",): settings.archive,
        ("log_uri",): settings.log_uri,
    }
    for path, url in urls.items():
        if url is not None and not url.startswith("s3://"):
            yield SpecProblem("FIELD_VALUE", path, url, "must be an s3:// URL", "write s3://bucket/key")
    if not settings.execution_role.startswith("arn:"):
        remedy = "write arn:aws:iam::<account>:role/<name>"
        yield SpecProblem("FIELD_VALUE", ("execution_role",), settings.execution_role, "must be a role's ARN", remedy)
    if not is_duration(settings.timeout):
        yield SpecProblem("DURATION_INVALID", ("timeout",), settings.timeout, "not a duration", "write e.g. 12h")


RUNNER = RunnerDescriptor(
    platform="airflow_gddl.runners.emr_serverless:make",
    start_seconds=lambda _settings, _tier: 120.0,  # an estimate
    settings=EmrSettings,
    check_settings=check_settings,
    package="boto3",
    extra="emr-serverless",
    capacity="airflow_gddl.planning.plan:EMR_SERVERLESS",
    bundle="airflow_gddl.bundle:EMR_SERVERLESS",
)


CORES = (1, 2, 4, 8, 16)
PYTHON = "./environment/bin/python"
"""Path of the unpacked archive on driver and executors."""
_DELTA = ",".join(f"/usr/share/aws/delta/lib/{name}.jar" for name in ("delta-spark", "delta-storage"))
"""Delta JARs of the release (`emr-spark-8.0.0`), not on the class path by default."""


def request_of(request: RunRequest, settings: EmrSettings) -> dict[str, Any]:
    """Arguments of `start_job_run`.

    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`.
    """
    conf = spark_conf(request.tier, settings.tier(request.size), settings)
    arguments: dict[str, Any] = {
        "applicationId": application_of(request.size, settings),
        "clientToken": request.token,
        "executionRoleArn": settings.execution_role,
        "name": f"gddl-{request.size}-{request.run_id}"[:256],
        "executionTimeoutMinutes": max(5, durations.seconds(settings.timeout) // 60),
        "jobDriver": {
            "sparkSubmit": {
                "entryPoint": settings.entry_point,
                "entryPointArguments": ["--spec", request.spec, "--results"],
                "sparkSubmitParameters": " ".join(f"--conf {_word(f'{k}={v}')}" for k, v in conf.items()),
            }
        },
        "tags": {"gddl-tier": request.size, **settings.tags},
    }
    if settings.log_uri:
        monitoring = {"s3MonitoringConfiguration": {"logUri": settings.log_uri}}
        arguments["configurationOverrides"] = {"monitoringConfiguration": monitoring}
    return arguments


def _word(text: str) -> str:
    """Quoted only where it must be: the service's own pages show `#` and `*` bare."""
    return shlex.quote(text) if any(c.isspace() or c in "\"'" for c in text) else text


def application_of(size: str, settings: EmrSettings) -> str:
    """
    Raises:
        MetadataError: `RUNNER_SETTINGS_INVALID`: neither the tier nor the runner names one.
    """
    found = settings.tier(size).application_id or settings.application_id
    if found is None:
        raise _wrong(f"tier {size} has no application", f"runners.emr_serverless.tiers.{size}.application_id")
    return found


def spark_conf(tier: TierSpec, own: EmrTier, settings: EmrSettings) -> Mapping[str, str]:
    """Settings of Spark: the tier's cores and memory, the environment, then the tier's own settings."""
    if tier.cores not in CORES:
        raise _wrong(f"machines have {', '.join(map(str, CORES))} cores, not {tier.cores}", "tiers")
    conf = {
        "spark.driver.cores": str(tier.cores),
        "spark.driver.memory": tier.memory,
        "spark.executor.cores": str(tier.cores),
        "spark.executor.memory": tier.memory,
        "spark.executor.instances": str(tier.workers),
        "spark.dynamicAllocation.maxExecutors": str(max(tier.workers, own.max_executors or 0)),
        "spark.emr-serverless.driver.disk": own.disk,
        "spark.emr-serverless.executor.disk": own.disk,
        "spark.jars": _DELTA,
    }
    if settings.archive:
        conf |= {
            "spark.archives": f"{settings.archive}#environment",
            "spark.emr-serverless.driverEnv.PYSPARK_DRIVER_PYTHON": PYTHON,
            "spark.emr-serverless.driverEnv.PYSPARK_PYTHON": PYTHON,
            "spark.executorEnv.PYSPARK_PYTHON": PYTHON,
        }
    if settings.region:
        conf |= {
            "spark.emr-serverless.driverEnv.AWS_REGION": settings.region,
            "spark.executorEnv.AWS_REGION": settings.region,
        }
    return {**conf, **own.spark_conf, **NO_SUBSTITUTION}


def _wrong(what: str, where: str) -> MetadataError:
    return MetadataError("RUNNER_SETTINGS_INVALID", what, where=f"gddl.yaml, {where}", remedy="see docs/metadata.md")


_STATES: Mapping[str, State] = {
    "RUNNING": "running",
    "CANCELLING": "running",
    "SUCCESS": "succeeded",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
}
_GONE = "ResourceNotFoundException"
_OVER = ("ValidationException", "ConflictException", _GONE)
_SERVICE = "EMR Serverless"


def make(own: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("emr_serverless", EmrSettings, own)
    with translated(_SERVICE):
        session = connections.aws(settings.aws_conn_id, settings.region)
        return EmrPlatform(settings, session.client("emr-serverless", region_name=settings.region, config=CLIENT))


@dataclass(frozen=True)
class EmrPlatform(Platform):
    """See `Platform`. `client` is boto3's."""

    settings: EmrSettings
    client: Any

    def submit(self, request: RunRequest) -> Handle:
        arguments = request_of(request, self.settings)
        with translated(_SERVICE):
            started = self.client.start_job_run(**arguments)
        group, run = str(started["applicationId"]), str(started["jobRunId"])
        return Handle(run=run, group=group, page=self._page(group, run))

    def poll(self, handle: Handle) -> RunStatus:
        with translated(_SERVICE):
            try:
                found = self.client.get_job_run(applicationId=handle.group, jobRunId=handle.run)["jobRun"]
            except ClientError as error:
                if code_of(error) != _GONE:
                    raise
                return RunStatus(state="lost", message=f"there is no job run {handle.run}")
        return RunStatus(state=_STATES.get(found["state"], "waiting"), message=str(found.get("stateDetails") or ""))

    def cancel(self, handle: Handle) -> None:
        with translated(_SERVICE):
            try:
                self.client.cancel_job_run(applicationId=handle.group, jobRunId=handle.run)
            except ClientError as error:
                # A finished run can't be cancelled, and need not be.
                if code_of(error) not in _OVER:
                    raise

    def _page(self, group: str, run: str) -> str:
        region = self.client.meta.region_name
        return (
            f"https://{region}.console.aws.amazon.com/emr/home?region={region}#/serverless/applications/{group}/{run}"
        )
