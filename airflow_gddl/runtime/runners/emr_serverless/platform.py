"""EMR Serverless as a `Platform`.

Its waiting is ours (`RemoteRunner`, `GddlRunTrigger`): no limit but the job run's own timeout ends a run, and nobody
cancels one because he is tired of waiting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, ParamValidationError

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.runtime.runners.connections import Connections
from airflow_gddl.runtime.runners.emr_serverless.settings import EmrSettings
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
_PASSING = ("Throttl", "TooManyRequests", "InternalServer", "ServiceUnavailable", "RequestTimeout", "RequestLimit")
_CREDENTIALS = ("ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidSignatureException")
_GONE = "ResourceNotFoundException"
_OVER = ("ValidationException", "ConflictException", _GONE)
# The standard mode honours Retry-After and throttling with growing pauses.
_CLIENT = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=10, read_timeout=30)


def make(own: Mapping[str, Any], _environ: Mapping[str, str], connections: Connections) -> Platform:
    """See `registry.make_platform`."""
    settings = settings_of("emr_serverless", EmrSettings, own)
    with _telling():
        session = connections.aws(settings.aws_conn_id, settings.region)
        return EmrPlatform(settings, session.client("emr-serverless", region_name=settings.region, config=_CLIENT))


@dataclass(frozen=True)
class EmrPlatform:
    """See `Platform`. `client` is boto3's."""

    settings: EmrSettings
    client: Any

    def submit(self, order: RunRequest) -> Handle:
        request = request_of(order, self.settings)
        with _telling():
            started = self.client.start_job_run(**request)
        group, run = str(started["applicationId"]), str(started["jobRunId"])
        return Handle(run=run, group=group, page=self._page(group, run))

    def look(self, handle: Handle) -> RunStatus:
        with _telling():
            try:
                found = self.client.get_job_run(applicationId=handle.group, jobRunId=handle.run)["jobRun"]
            except ClientError as error:
                if _code(error) != _GONE:
                    raise
                return RunStatus(state="lost", message=f"there is no job run {handle.run}")
        return RunStatus(state=_STATES.get(found["state"], "waiting"), message=str(found.get("stateDetails") or ""))

    def cancel(self, handle: Handle) -> None:
        with _telling():
            try:
                self.client.cancel_job_run(applicationId=handle.group, jobRunId=handle.run)
            except ClientError as error:
                # One that has ended can't be cancelled, and needs not.
                if _code(error) not in _OVER:
                    raise

    def mend(self, handle: Handle) -> None:
        """Never asked for: the service itself starts a run's driver again where its machine was lost."""
        raise FatalError("PLATFORM_REFUSED", f"job run {handle.run} can't be repaired", remedy="run again")

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


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except ClientError as error:
        raise _told(error) from error
    except (ParamValidationError, NoCredentialsError) as error:
        remedy = "correct runners.emr_serverless in gddl.yaml, and the credentials"
        raise FatalError("PLATFORM_REFUSED", f"EMR Serverless: {error}", remedy=remedy) from error
    except BotoCoreError as error:
        raise RetriableError("PLATFORM_UNREACHABLE", f"EMR Serverless: {error}", remedy="it is tried again") from error


def _told(error: ClientError) -> GddlError:
    what = f"EMR Serverless: {error}"[:500]
    if _code(error).startswith(_PASSING):
        return RetriableError("PLATFORM_UNREACHABLE", what, remedy="it is tried again")
    remedy = "see its words, and the rights that docs/platforms/emr-serverless.md lists"
    if _code(error) in _CREDENTIALS:
        remedy = "renew the credentials of aws_conn_id, or of the environment; a role renews them by itself"
    return FatalError("PLATFORM_REFUSED", what, remedy=remedy)


def _code(error: ClientError) -> str:
    return cast("str", error.response.get("Error", {}).get("Code", ""))
