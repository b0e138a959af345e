"""EMR Serverless as a `Platform`: job runs of an application.

`RemoteRunner` and `GddlRunTrigger` wait for runs: only the job run's own timeout ends a run, no client timeout cancels
one. The service itself restarts the driver of a run whose machine was lost.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import ClientError

from airflow_gddl.contract import durations
from airflow_gddl.contract.codes import RUNNER_SETTINGS_INVALID
from airflow_gddl.contract.errors import MetadataError, documented
from airflow_gddl.contract.spec import TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.aws import code_of, translated
from airflow_gddl.runners.descriptor import settings_of
from airflow_gddl.runners.emr_serverless.settings import EmrSettings, EmrTier
from airflow_gddl.runners.interface import Connections, Handle, Platform, RunRequest, RunStatus, State

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
    application = settings.tier(size).application_id or settings.application_id
    if application is None:
        raise _wrong(f"tier {size} has no application", f"runners.emr_serverless.tiers.{size}.application_id")
    return application


def spark_conf(tier: TierSpec, tier_settings: EmrTier, settings: EmrSettings) -> Mapping[str, str]:
    """Settings of Spark: the tier's cores and memory, the environment, then the tier's own settings."""
    if tier.cores not in CORES:
        raise _wrong(f"machines have {', '.join(map(str, CORES))} cores, not {tier.cores}", "tiers")
    conf = {
        "spark.driver.cores": str(tier.cores),
        "spark.driver.memory": tier.memory,
        "spark.executor.cores": str(tier.cores),
        "spark.executor.memory": tier.memory,
        "spark.executor.instances": str(tier.workers),
        "spark.dynamicAllocation.maxExecutors": str(max(tier.workers, tier_settings.max_executors or 0)),
        "spark.emr-serverless.driver.disk": tier_settings.disk,
        "spark.emr-serverless.executor.disk": tier_settings.disk,
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
    return {**conf, **tier_settings.spark_conf, **NO_SUBSTITUTION}


def _wrong(what: str, where: str) -> MetadataError:
    return MetadataError(
        RUNNER_SETTINGS_INVALID, what, where=f"gddl.yaml, {where}", remedy=f"see {documented('metadata.md')}"
    )


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


def make(declared: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("emr_serverless", EmrSettings, declared)
    with translated(_SERVICE):
        return EmrPlatform(settings, connections.aws(settings.aws_conn_id, "emr-serverless", settings.region))


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
                job_run = self.client.get_job_run(applicationId=handle.group, jobRunId=handle.run)["jobRun"]
            except ClientError as error:
                if code_of(error) != _GONE:
                    raise
                return RunStatus(state="lost", message=f"there is no job run {handle.run}")
        return RunStatus(state=_STATES.get(job_run["state"], "waiting"), message=str(job_run.get("stateDetails") or ""))

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
