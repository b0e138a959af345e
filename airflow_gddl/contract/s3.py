"""S3 access: endpoint, region and credentials from the environment, with the same meaning for every client."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from airflow_gddl.contract.codes import (
    PACKAGE_MISSING,
    S3_BUCKET_MISSING,
    S3_CREDENTIALS_EXPIRED,
    S3_CREDENTIALS_MISSING,
    S3_CREDENTIALS_REFUSED,
    S3_ENDPOINT_INVALID,
    S3_REGION_WRONG,
    S3_UNREACHABLE,
    Code,
)
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError

SCHEME = "s3://"
PROFILE_REMEDY = "pip install 'airflow-gddl[s3]', or set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_ROLE_ARN", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)  # fmt: skip
_REGIONS = ("AWS_REGION", "AWS_DEFAULT_REGION")
_TRUE = ("true", "1", "yes", "on")
_OWN_CREDENTIALS = (
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
)


@dataclass(frozen=True, kw_only=True)
class S3Settings:
    """Settings of S3 access, without credentials.

    Attributes:
        endpoint: URL without a slash at its end; None: Amazon's own.
        region: None: the client's default (a profile, else `us-east-1`).
        path_style: the bucket is named in the path, not in the host.
        allow_http: the endpoint is plain HTTP, and that is allowed.
        seconds: time that one request may take.
        retries: retries of a request after a transient error.
        retry_seconds: time after which no further retry starts.
    """

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    allow_http: bool = False
    seconds: int = 30
    retries: int = 8
    retry_seconds: int = 60

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> S3Settings:
        """Settings from the environment.

        The variables are `AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`, `AWS_DEFAULT_REGION`,
        `AWS_ALLOW_HTTP`, `AWS_MAX_ATTEMPTS` and `AWS_VIRTUAL_HOSTED_STYLE_REQUEST`. A custom endpoint uses path style
        unless the last one is true.

        Raises:
            FatalError: `S3_ENDPOINT_INVALID`: no URL, or plain HTTP to another machine without `AWS_ALLOW_HTTP=true`.
        """
        name = next((name for name in _ENDPOINTS if environ.get(name, "").strip()), None)
        region = environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or None
        tries = environ.get("AWS_MAX_ATTEMPTS", "").strip()
        retries = max(1, int(tries)) - 1 if tries.isdecimal() else cls.retries
        if name is None:
            return cls(region=region, retries=retries)
        endpoint = environ[name].strip().rstrip("/")
        plain = _is_plain(endpoint, name, is_on(environ, "AWS_ALLOW_HTTP"))
        path_style = not is_on(environ, "AWS_VIRTUAL_HOSTED_STYLE_REQUEST")
        return cls(
            endpoint=endpoint,
            region=region or "us-east-1",
            path_style=path_style,
            allow_http=plain,
            retries=retries,
        )

    def store_config(self) -> dict[str, str | bool]:
        """`config` for obstore's `S3Store`, beyond what it reads from the environment."""
        config: dict[str, str | bool] = {}
        if self.region is not None:
            config["region"] = self.region
        if self.endpoint is not None:
            config |= {"aws_endpoint_url_s3": self.endpoint, "endpoint": self.endpoint}
            config["virtual_hosted_style_request"] = not self.path_style
        return config

    def client_options(self) -> dict[str, str | bool]:
        """`client_options` for obstore's stores."""
        return {"timeout": f"{self.seconds}s", "connect_timeout": "5s", "allow_http": self.allow_http}

    def storage_options(self) -> dict[str, str]:
        """Options of this store for `deltalake`, which finds credentials by itself, profiles included."""
        options = {**self.client_options(), "max_retries": str(self.retries), "retry_timeout": f"{self.retry_seconds}s"}
        config = self.store_config()
        options |= {f"aws_{name}": value for name, value in config.items() if name != "aws_endpoint_url_s3"}
        return {name: str(value).lower() if isinstance(value, bool) else value for name, value in options.items()}


def is_s3(path: str) -> bool:
    return path.startswith(SCHEME)


def buckets(places: Iterable[str]) -> tuple[str, ...]:
    """Distinct buckets of paths and URLs, sorted; empty when all are local."""
    return tuple(sorted({split(place)[0] for place in places if is_s3(place)}))


def split(url: str) -> tuple[str, str]:
    """Bucket and key, neither with a slash at its ends."""
    bucket, _, key = url.removeprefix(SCHEME).partition("/")
    return bucket, key.strip("/")


def is_on(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").strip().lower() in _TRUE


def profile_of(environ: Mapping[str, str]) -> str | None:
    """Where only a profile can hold the credentials, its name; None: the environment or the machine's role has them.

    Empty: there is a file of profiles, but none is named.
    """
    if any(environ.get(name) for name in _OWN_CREDENTIALS):
        return None
    if environ.get("AWS_PROFILE"):
        return environ["AWS_PROFILE"]
    home = Path(os.path.expanduser(environ.get("HOME", "~")), ".aws")  # noqa: PTH111 - it leaves ~ where a user has no home, as Airflow and boto3 do
    files = (
        environ.get("AWS_SHARED_CREDENTIALS_FILE") or home / "credentials",
        environ.get("AWS_CONFIG_FILE") or home / "config",
    )
    return "" if any(Path(file).is_file() for file in files) else None


def _is_plain(endpoint: str, name: str, allowed: bool) -> bool:
    url = urlsplit(endpoint)
    if url.scheme not in ("http", "https") or not url.hostname or "@" in url.netloc or url.query or url.fragment:
        remedy = "write http(s)://host[:port], without credentials"
        raise FatalError(S3_ENDPOINT_INVALID, f"{name} is not the URL of an endpoint", remedy=remedy)
    if url.scheme == "https":
        return False
    if not (allowed or _is_loopback(url.hostname)):
        what = f"{name} is plain HTTP to {url.hostname}, which is not encrypted"
        raise FatalError(S3_ENDPOINT_INVALID, what, remedy="use https://, or set AWS_ALLOW_HTTP=true")
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def laid_over(base: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """`base` updated with `given`, without contradicting variables of `base`."""
    kinds = (_CREDENTIALS, _ENDPOINTS, _REGIONS)
    replaced = {name for kind in kinds if any(name in given for name in kind) for name in kind}
    return {**{name: value for name, value in base.items() if name not in replaced}, **given}


@dataclass(frozen=True)
class _KnownError:
    code: Code
    sign: re.Pattern[str]
    what: str
    remedy: str
    passing: bool = False


_FAULTS = (
    _KnownError(
        S3_CREDENTIALS_EXPIRED,
        re.compile(r"\b(ExpiredToken(Exception)?|TokenRefreshRequired)\b"),
        "the credentials have expired",
        "fetch new ones; a role of the machine, or an Airflow connection that assumes one, renews them by itself",
    ),
    _KnownError(
        S3_CREDENTIALS_REFUSED,
        re.compile(
            r"\b(InvalidAccessKeyId|SignatureDoesNotMatch|InvalidToken|UnrecognizedClientException|XAdminUserNotFound)\b"
        ),
        "S3 does not know the credentials",
        "check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, or the connection of aws_conn_id",
    ),
    _KnownError(
        S3_CREDENTIALS_MISSING,
        re.compile(
            r"169\.254\.169\.254|169\.254\.170\.2|Unable to load credentials|No AWS Credentials|NoCredentialsError"
            r"|no providers? in chain provided credentials|CredentialsNotLoaded|NoAuthWithAWSException"
        ),
        "no credentials are found: neither in the environment nor of a role of this machine",
        f"name an Airflow connection with aws_conn_id, set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or set"
        f" AWS_PROFILE ({PROFILE_REMEDY.partition(',')[0]})",
    ),
    _KnownError(
        S3_BUCKET_MISSING,
        re.compile(r"\bNoSuchBucket\b|UnknownStoreException|bucket does not exist", re.IGNORECASE),
        "there is no such bucket",
        "correct the root or the endpoint, or make the bucket",
    ),
    _KnownError(
        S3_REGION_WRONG,
        re.compile(
            r"PermanentRedirect|AuthorizationHeaderMalformed|redirect without LOCATION|IllegalLocationConstraint"
        ),
        "the bucket is in another region",
        "set AWS_REGION to the bucket's",
    ),
    _KnownError(
        S3_UNREACHABLE,
        re.compile(
            r"error sending request|tcp connect error|dns error|[Cc]onnection refused|ConnectException|UnknownHost"
            r"|Connect to .* failed|ConnectTimeout|error trying to connect|operation timed out|client error \(Connect\)"
        ),
        "the endpoint does not answer",
        "check AWS_ENDPOINT_URL, AWS_REGION and the network",
        passing=True,
    ),
)
# boto3 is missing where it is needed for credentials.
CODES = frozenset({PACKAGE_MISSING, S3_ENDPOINT_INVALID, *(fault.code for fault in _FAULTS)})
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
