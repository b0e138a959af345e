"""boto3 for the platforms of AWS: sessions, settings of clients, errors of this project."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConfigParseError,
    InvalidRegionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
)

from airflow_gddl.contract.codes import PLATFORM_REFUSED, PLATFORM_UNREACHABLE
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError

# The standard mode honours Retry-After and throttling with growing pauses.
CLIENT = Config(retries={"mode": "standard", "total_max_attempts": 5}, connect_timeout=10, read_timeout=30)
_PASSING = (
    "Throttl",
    "TooManyRequests",
    "Internal",
    "ServiceUnavailable",
    "RequestTimeout",
    "RequestLimit",
    "OperationTimeout",
)
_QUOTAS = ("LimitExceeded", "QuotaExceeded", "RunsExceeded")
"""In codes of what is full until other runs have ended; `LimitExceeded` is also how a rate is refused."""
_SETTINGS = (
    ParamValidationError,
    NoCredentialsError,
    PartialCredentialsError,
    NoRegionError,
    InvalidRegionError,
    ProfileNotFound,
    ConfigParseError,
)
"""What boto3 raises before it asks the service: asking again gives the same."""
_CREDENTIALS = ("ExpiredTokenException", "ExpiredToken", "UnrecognizedClientException", "InvalidSignatureException")


def client(service: str, region: str | None) -> Any:
    """boto3's client of a service, with the credentials of this process.

    Args:
        region: None: as boto3 finds it.
    """
    return boto3.Session(region_name=region).client(service, config=CLIENT)


@contextmanager
def translated(service: str) -> Iterator[None]:
    """
    Args:
        service: its name, for messages: `EMR Serverless`, `Glue`.

    Raises:
        RetriableError: `PLATFORM_UNREACHABLE`.
        FatalError: `PLATFORM_REFUSED`.
    """
    section = service.lower().replace(" ", "_")
    try:
        yield
    except ClientError as error:
        raise _refusal(error, service) from error
    except _SETTINGS as error:
        remedy = f"correct runners.{section} in gddl.yaml (region, aws_conn_id), or the credentials of the environment"
        raise FatalError(PLATFORM_REFUSED, f"{service}: {error}", remedy=remedy) from error
    except BotoCoreError as error:
        raise RetriableError(PLATFORM_UNREACHABLE, f"{service}: {error}", remedy="the call is retried") from error


def code_of(error: ClientError) -> str:
    return cast("str", error.response.get("Error", {}).get("Code", ""))


def _refusal(error: ClientError, service: str) -> GddlError:
    what = f"{service}: {error}"[:500]
    if code_of(error).startswith(_PASSING):
        return RetriableError(PLATFORM_UNREACHABLE, what, remedy="the call is retried")
    if any(word in code_of(error) for word in _QUOTAS):
        remedy = "the call is retried: it may go through when other runs have ended; else ask AWS for a larger quota"
        return RetriableError(PLATFORM_UNREACHABLE, what, remedy=remedy)
    guide = service.lower().replace(" ", "-")
    remedy = f"see the message above and the permissions that docs/platforms/{guide}.md lists"
    if code_of(error) in _CREDENTIALS:
        remedy = "renew the credentials of aws_conn_id, or of the environment; a role renews them by itself"
    return FatalError(PLATFORM_REFUSED, what, remedy=remedy)
