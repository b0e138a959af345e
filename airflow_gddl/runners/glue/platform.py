"""Glue as a `Platform`: runs of the saved job of a table's tier.

Glue's API has no idempotency token, so the token is an argument of the run. Runs with this token are searched before a
run is started, and once more afterwards, in case two workers submit at the same time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

from botocore.exceptions import BotoCoreError, ClientError

from airflow_gddl.contract.codes import JOB_NOT_DEPLOYED
from airflow_gddl.contract.errors import FatalError
from airflow_gddl.runners.aws import code_of, translated
from airflow_gddl.runners.descriptor import settings_of
from airflow_gddl.runners.glue.jobs import CONTRACT, SPEC, TOKEN
from airflow_gddl.runners.glue.settings import GlueSettings
from airflow_gddl.runners.interface import (
    Connections,
    Handle,
    Platform,
    RunRequest,
    RunStatus,
    State,
    check_contract,
)

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


def make(declared: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `descriptor.make_platform`."""
    settings = settings_of("glue", GlueSettings, declared)
    with translated("Glue"):
        return GluePlatform(settings, connections.aws(settings.aws_conn_id, "glue", settings.region))


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
            run_id = self._first(job, request.token)
            if run_id is None:
                arguments = {SPEC: request.spec, TOKEN: request.token}
                started = str(self.client.start_job_run(JobName=job, Arguments=arguments)["JobRunId"])
                run_id = self._first(job, request.token) or started
                if run_id != started:
                    self._stop(job, started)
        return Handle(run=run_id, group=job, page=f"{self._console('gluestudio')}#/job/{quote(job)}/run/{run_id}")

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
        runs = [run for run in self._recent(job) if run.get("Arguments", {}).get(TOKEN) == token]
        return str(min(runs, key=lambda run: (run["StartedOn"], run["Id"]))["Id"]) if runs else None

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
            raise FatalError(JOB_NOT_DEPLOYED, what, remedy="run `gddl deploy glue`") from error
        check_contract("glue", job, arguments.get(CONTRACT))

    def _console(self, service: str) -> str:
        region = self.client.meta.region_name
        return f"https://{region}.console.aws.amazon.com/{service}/home?region={region}"


def _message(state: str, run: Mapping[str, Any]) -> str:
    said = str(run.get("ErrorMessage") or run.get("StateDetail") or "")
    if _STATES.get(state) == "failed" and state != "FAILED":
        return f"{state}: {said}" if said else state
    return said
