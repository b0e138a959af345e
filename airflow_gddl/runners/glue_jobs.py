"""Glue as a `Platform`: runs of the saved job of a table's tier.

Glue's API has no idempotency token, so the token is an argument of the run. Runs with this token are searched before a
run is started, and once more afterwards, in case two workers submit at the same time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from airflow_gddl.contract import durations
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.contract.spec import CONTRACT_VERSION, TierSpec
from airflow_gddl.contract.sql_types import NO_SUBSTITUTION
from airflow_gddl.runners.aws_errors import CLIENT, code_of, translated
from airflow_gddl.runners.descriptor import settings_of
from airflow_gddl.runners.glue import GlueSettings, GlueTier
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
        GddlError: as `aws_errors.translated`.
    """
    with translated("Glue"):
        session = connections.aws(settings.aws_conn_id, settings.region)
        return session.client("glue", region_name=settings.region, config=CLIENT)


def plan(client: Any, wanted: Mapping[str, Definition]) -> list[JobChange[Definition]]:
    """Plan the change of each job, without changing anything. Jobs that are no longer wanted are kept.

    Raises:
        GddlError: as `aws_errors.translated`.
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
        GddlError: as `aws_errors.translated`.
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
    """See `registry.make_platform`."""
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
