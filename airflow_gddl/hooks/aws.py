"""Credentials of Airflow connections: as the environment variables that every S3 client reads, and for platforms.

They are fetched on the worker or in the triggerer, and passed on only as environment.
"""

from __future__ import annotations

import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.codes import AWS_CONNECTION_INVALID, CONNECTION_UNUSABLE
from airflow_gddl.contract.connections import is_lent
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.contract.iceberg_rest import is_catalog_connection
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.s3 import laid_over
from airflow_gddl.contract.source_access import SourceAccess, announce, connection_text, connection_variable

_LOG = logging.getLogger(__name__)
RENEW_SECONDS = 600.0
"""A connection may assume a role, whose credentials expire after 15 minutes at the earliest."""


class ConnectedEnviron(Mapping[str, str]):
    """An environment overlaid with a connection, which is fetched on first access, and periodically again.

    Args:
        fetch: the connection's variables.
        clock: seconds, monotonic.

    Raises (when read):
        MetadataError: `AWS_CONNECTION_INVALID`.
    """

    def __init__(
        self,
        fetch: Callable[[], Mapping[str, str]],
        base: Mapping[str, str] = os.environ,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fetch, self._base, self._clock = fetch, base, clock
        self._whole: dict[str, str] = {}
        self._fetched: float | None = None

    def _now(self) -> dict[str, str]:
        if self._fetched is None or self._clock() - self._fetched > RENEW_SECONDS:
            self._whole = laid_over(self._base, self._fetch())
            self._fetched = self._clock()
        return self._whole

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now())

    def __len__(self) -> int:
        return len(self._now())

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"


def fetch(conn_id: str) -> dict[str, str]:
    """The connection's variables; without credentials in it, those of the environment or the machine's role apply.

    Raises:
        MetadataError: `AWS_CONNECTION_INVALID`.
        FatalError: `PACKAGE_MISSING`: Amazon's provider.
    """
    try:
        return variables_of(_hook(conn_id, "s3", None))
    except GddlError:
        raise
    except Exception as error:
        what = f"the connection {conn_id!r} can't be read: {type(error).__name__}"
        raise _wrong(what, "create it (type aws), or correct aws_conn_id") from error


def fetch_sources(access: tuple[SourceAccess, ...]) -> dict[str, str]:
    """References of sources, and the content of their connections, as variables of clients and jobs on this machine.

    A connection that can't be read is left out, so that other sources are still read: a client that needs it raises
    `SOURCE_ACCESS_MISSING`.
    """
    variables: dict[str, str] = {}
    announce(access, variables)
    for conn_id in sorted({one.aws_conn_id for one in access if one.aws_conn_id is not None}):
        try:
            variables[connection_variable(conn_id)] = connection_text(fetch(conn_id))
        except MetadataError as error:
            _LOG.warning("%s", error)
    return variables


def fetch_named(names: Iterable[str]) -> dict[str, str]:
    """Connections to catalogs and databases that metadata names, as variables for jobs on this machine.

    Variables of the process come before them. One that can't be read is left out: the job reports it of the tables
    that need it.
    """
    variables = {}
    for name in sorted({*names} - {""}):
        variable = f"AIRFLOW_CONN_{name.upper()}"
        may_be_named = is_lent(name, os.environ) or is_catalog_connection(name)
        if name in os.environ or variable in os.environ or not may_be_named:
            continue
        try:
            variables[variable] = capabilities.connection(name).get_uri()
        except Exception as error:  # noqa: BLE001 - backends raise any error
            _LOG.warning("no connection %s: %s", name, type(error).__name__)
    return variables


def variables_of(hook: Any) -> dict[str, str]:
    """Variables of a connection, as the hook of Amazon's provider resolves it.

    The hook also has credentials of the process; these are left to clients, which renew them.

    Args:
        hook: an `AwsGenericHook` for S3.
    """
    found = hook.conn_config
    variables = {"AWS_ENDPOINT_URL": found.get_service_endpoint_url("s3"), "AWS_REGION": hook.region_name}
    if found.aws_access_key_id or found.role_arn or found.profile_name:
        keys = hook.get_credentials()
        variables["AWS_ACCESS_KEY_ID"], variables["AWS_SECRET_ACCESS_KEY"] = keys.access_key, keys.secret_key
        variables["AWS_SESSION_TOKEN"] = keys.token
    return {name: str(value) for name, value in variables.items() if value}


def require_credentials(connection: Any) -> None:
    """
    Raises:
        MetadataError: `AWS_CONNECTION_INVALID`: its type is `emr`, which describes clusters; or it has half of a key,
            which the provider would ignore.
    """
    if connection.conn_type == "emr":
        what = (
            f"the connection {connection.conn_id!r} is of type emr, which holds settings of clusters and no credentials"
        )
        raise _wrong(what, "name a connection of type aws")
    if bool(connection.login) != bool(connection.password):
        what = f"the connection {connection.conn_id!r} has one of access key and secret key"
        raise _wrong(what, "give both (login and password), or neither")


def _hook(name: str, service: str, region: str | None) -> Any:
    """Amazon's own hook of this connection, for clients of a service.

    Raises:
        MetadataError: `AWS_CONNECTION_INVALID`.
        FatalError: `PACKAGE_MISSING`.
    """
    with needed_by(f"the connection {name!r}", install="apache-airflow-providers-amazon"):
        hooks = importlib.import_module("airflow.providers.amazon.aws.hooks.base_aws")
    require_credentials(capabilities.connection(name))
    return hooks.AwsGenericHook(aws_conn_id=name, client_type=service, region_name=region)


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError(AWS_CONNECTION_INVALID, what, remedy=remedy)


class FromAirflow:
    """See `Connections`: connections are resolved by the hooks of their own providers."""

    def login(self, platform: str, name: str) -> Any:
        with needed_by(f"the connection {name!r}", install=f"airflow-gddl[{platform}]"):
            hook = importlib.import_module(f"airflow_gddl.hooks.{platform}")
        try:
            return hook.login(name)
        except GddlError:
            raise
        except Exception as error:
            raise _unusable(name, error) from error

    def aws(self, name: str, service: str, region: str | None) -> Any:
        with needed_by(f"the connection {name!r}", install="apache-airflow-providers-amazon"):
            from airflow_gddl.runners.aws import CLIENT  # noqa: PLC0415 - needs boto3
        try:
            hook = _hook(name, service, region)
            # Settings of the connection (`config_kwargs`) come before ours.
            return hook.get_client_type(region_name=region, config=CLIENT.merge(hook.config))
        except GddlError:
            raise
        except Exception as error:
            raise _unusable(name, error) from error


def _unusable(name: str, error: Exception) -> FatalError:
    what = f"connection {name!r} can't be used: {type(error).__name__}: {error}"[:500]
    return FatalError(CONNECTION_UNUSABLE, what, remedy="check it with `airflow connections get`")
