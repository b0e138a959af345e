"""EMR Serverless as a `Platform`.

`RemoteRunner` and `GddlRunTrigger` wait for runs: only the job run's own timeout ends a run, no client timeout cancels
one. The service itself restarts the driver of a run whose machine was lost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from airflow_gddl.metadata.runners.emr_serverless import EmrSettings
from airflow_gddl.runtime.runners.aws_errors import CLIENT, code_of, translated
from airflow_gddl.runtime.runners.connections import Connections
from airflow_gddl.runtime.runners.emr_serverless.submission import request_of
from airflow_gddl.runtime.runners.own import settings_of
from airflow_gddl.runtime.runners.platform import Handle, Platform, RunRequest, RunStatus, State

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
    """See `registry.make_platform`."""
    settings = settings_of("emr_serverless", EmrSettings, own)
    with translated(_SERVICE):
        session = connections.aws(settings.aws_conn_id, settings.region)
        return EmrPlatform(settings, session.client("emr-serverless", region_name=settings.region, config=CLIENT))


@dataclass(frozen=True)
class EmrPlatform(Platform):
    """See `Platform`. `client` is boto3's."""

    settings: EmrSettings
    client: Any

    def submit(self, order: RunRequest) -> Handle:
        request = request_of(order, self.settings)
        with translated(_SERVICE):
            started = self.client.start_job_run(**request)
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

    def links(self, handle: Handle) -> Mapping[str, str]:
        """Spark's own UI, live or from history; its URL is signed and holds for an hour."""
        try:
            found = self.client.get_dashboard_for_job_run(applicationId=handle.group, jobRunId=handle.run)
        except (ClientError, BotoCoreError):
            return {}
        return {"Spark UI": str(found["url"])}

    def _page(self, group: str, run: str) -> str:
        region = self.client.meta.region_name
        return (
            f"https://{region}.console.aws.amazon.com/emr/home?region={region}#/serverless/applications/{group}/{run}"
        )
