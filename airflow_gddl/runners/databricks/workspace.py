"""Calls of a Databricks workspace by its SDK, repeated where that helps, with errors of this project."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import requests
from databricks.sdk import WorkspaceClient
from databricks.sdk.config import Config
from databricks.sdk.errors import (
    DeadlineExceeded,
    InternalError,
    PermissionDenied,
    TemporarilyUnavailable,
    TooManyRequests,
    Unauthenticated,
)
from databricks.sdk.errors.base import DatabricksError
from databricks.sdk.service.jobs import JobsAPI

from airflow_gddl import __version__
from airflow_gddl.contract.codes import CONNECTION_UNUSABLE, PLATFORM_REFUSED, PLATFORM_UNREACHABLE
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.runners.databricks.access import DatabricksAccess

T = TypeVar("T")
TRIES = 3
_PATIENCE_SECONDS = 120
_PASSING = (InternalError, DeadlineExceeded, TemporarilyUnavailable, TooManyRequests, TimeoutError)
_UNREACHED = (requests.RequestException, TimeoutError)


@dataclass(frozen=True)
class Workspace:
    """One workspace.

    Raises (every call through `ask`):
        RetriableError: `PLATFORM_UNREACHABLE`.
        FatalError: `PLATFORM_REFUSED`.
    """

    jobs: JobsAPI
    sleep: Callable[[float], None] = time.sleep

    def ask(self, call: Callable[[JobsAPI], T]) -> T:
        """Return the call's result; SDK errors that the caller handles must be caught inside `call`."""
        tried = 1
        while True:
            try:
                return call(self.jobs)
            except (DatabricksError, *_UNREACHED) as error:
                if tried == TRIES or not isinstance(error, (InternalError, DeadlineExceeded)):
                    raise _told(error) from error
            self.sleep(2.0**tried)
            tried += 1


def connect(access: DatabricksAccess) -> Workspace:
    """Connect to a workspace.

    Raises:
        FatalError: `CONNECTION_UNUSABLE`.
    """
    try:
        config = Config(
            product="airflow-gddl",
            product_version=__version__,
            retry_timeout_seconds=_PATIENCE_SECONDS,
            http_timeout_seconds=30,
            host=access.host or None,
            **access.login,
        )
        client = WorkspaceClient(config=config)
    except ValueError as error:
        remedy = "set databricks_conn_id to an Airflow connection, or DATABRICKS_HOST and DATABRICKS_TOKEN"
        what = f"no way to log in to Databricks: {_first_line(error)}"
        raise FatalError(CONNECTION_UNUSABLE, what, remedy=remedy) from error
    # The SDK has no setting for them.
    client.api_client._api_client._session.proxies.update(access.proxies)  # noqa: SLF001 - see above
    return Workspace(client.jobs)


def _told(error: Exception) -> GddlError:
    what = f"Databricks: {type(error).__name__}: {_first_line(error)}"
    if isinstance(error, (*_PASSING, requests.RequestException)):
        return RetriableError(PLATFORM_UNREACHABLE, what, remedy="the call is retried")
    if isinstance(error, (Unauthenticated, PermissionDenied)):
        remedy = "check the connection's token, and the right to see and run the job (CAN_MANAGE_RUN)"
        return FatalError(PLATFORM_REFUSED, what, remedy=remedy)
    return FatalError(PLATFORM_REFUSED, what, remedy="see the message above; `gddl deploy databricks` updates the jobs")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:500]
