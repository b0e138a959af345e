"""Bucket-wide S3 errors, recognised by the text of any client's error."""

from __future__ import annotations

import re
from dataclasses import dataclass

from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError
from airflow_gddl.contract.s3 import PROFILE_REMEDY


@dataclass(frozen=True)
class _KnownError:
    code: str
    sign: re.Pattern[str]
    what: str
    remedy: str
    passing: bool = False


_FAULTS = (
    _KnownError(
        "S3_CREDENTIALS_EXPIRED",
        re.compile(r"\b(ExpiredToken(Exception)?|TokenRefreshRequired)\b"),
        "the credentials have expired",
        "fetch new ones; a role of the machine, or an Airflow connection that assumes one, renews them by itself",
    ),
    _KnownError(
        "S3_CREDENTIALS_REFUSED",
        re.compile(
            r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|UnrecognizedClientException|XAdminUserNotFound)\b"
        ),
        "S3 does not know the credentials",
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the connection of aws_conn_id",
    ),
    _KnownError(
        "S3_CREDENTIALS_MISSING",
        re.compile(
            r"169\.254\.169\.254|169\.254\.170\.2|Unable to load credentials|No AWS Credentials|NoCredentialsError"
            r"|no providers? in chain provided credentials|CredentialsNotLoaded|NoAuthWithAWSException"
        ),
        "no credentials are found: neither in the environment nor of a role of this machine",
        f"name an Airflow connection with aws_conn_id, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set"
        f" AWS_PROFILE ({PROFILE_REMEDY.partition(',')[0]})",
    ),
    _KnownError(
        "S3_BUCKET_MISSING",
        re.compile(r"\bNoSuchBucket\b|UnknownStoreException|bucket does not exist", re.IGNORECASE),
        "there is no such bucket",
        "correct the root or the endpoint, or make the bucket",
    ),
    _KnownError(
        "S3_REGION_WRONG",
        re.compile(
            r"PermanentRedirect|AuthorizationHeaderMalformed|redirect without LOCATION|IllegalLocationConstraint"
        ),
        "the bucket is in another region",
        "set AWS_REGION to the bucket's",
    ),
    _KnownError(
        "S3_UNREACHABLE",
        re.compile(
            r"error sending request|tcp connect error|dns error|[Cc]onnection refused|ConnectException|UnknownHost"
            r"|Connect to .* failed|ConnectTimeout|error trying to connect|operation timed out|client error \(Connect\)"
        ),
        "the endpoint does not answer",
        "check AWS_ENDPOINT_URL, AWS_REGION and the network",
        passing=True,
    ),
)
CODES = frozenset({"S3_ENDPOINT_INVALID", *(fault.code for fault in _FAULTS)})
"""Codes of errors that affect all tables of the job."""
# Matches the message without paths: a path may contain the name of an error.
_URL = re.compile(r"\b(?:s3a?|https?)://(?!169\.254\.)\S*")


def s3_error(text: str, where: str) -> GddlError | None:
    """Translate an error's text; null if it is not recognised.

    Args:
        text: of any length; never repeated, since it may contain signed requests.
        where: the bucket or object.
    """
    bare = _URL.sub("", text)
    fault = next((fault for fault in _FAULTS if fault.sign.search(bare)), None)
    if fault is None:
        return None
    family = RetriableError if fault.passing else FatalError
    return family(fault.code, fault.what, where=where, remedy=fault.remedy)
