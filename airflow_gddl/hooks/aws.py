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
from urllib.parse import urlsplit

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.errors import FatalError, GddlError, MetadataError
from airflow_gddl.contract.iceberg_rest import is_catalog_connection
from airflow_gddl.contract.packages import needed_by
from airflow_gddl.contract.s3 import laid_over
from airflow_gddl.contract.source_access import SourceAccess, announce, connection_text, connection_variable
from airflow_gddl.runners.interface import DatabricksAccess

_LOG = logging.getLogger(__name__)
RENEW_SECONDS = 600.0
"""A connection may assume a role, whose credentials expire after 15 minutes at the earliest."""

# Extra fields of a connection that need Amazon's provider.
_ASSUMING = ("role_arn", "profile_name", "assume_role_method", "session_kwargs", "aws_credential_type")


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
        FatalError: `PACKAGE_MISSING`; only a role and a profile need Amazon's provider.
    """
    try:
        connection = capabilities.connection(conn_id)
        return variables_of(connection)
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


def fetch_catalogs(names: Iterable[str]) -> dict[str, str]:
    """Connections to catalogs as variables for jobs on this machine; variables of the process come before them.

    One that can't be read is left out: the job reports it of the tables that are registered there.
    """
    variables = {}
    for name in names:
        variable = f"AIRFLOW_CONN_{name.upper()}"
        if name in os.environ or variable in os.environ or not is_catalog_connection(name):
            continue
        try:
            variables[variable] = capabilities.connection(name).get_uri()
        except Exception as error:  # noqa: BLE001 - backends raise any error
            _LOG.warning("no connection %s: %s", name, type(error).__name__)
    return variables


def variables_of(connection: Any) -> dict[str, str]:
    """Variables of a connection in the form of Amazon's provider: login and password, or keys or a role in its extra.

    Raises:
        MetadataError: `AWS_CONNECTION_INVALID`: it needs Amazon's provider, or has half of a key.
    """
    require_credentials(connection)
    extra: Mapping[str, Any] = connection.extra_dejson
    service = (extra.get("service_config") or {}).get("s3") or {}
    endpoint = service.get("endpoint_url") or extra.get("endpoint_url")
    variables = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": extra.get("region_name")}
    if any(extra.get(name) for name in _ASSUMING):
        variables |= _assumed(str(connection.conn_id))
    else:
        variables["AWS_ACCESS_KEY_ID"] = connection.login or extra.get("aws_access_key_id")
        variables["AWS_SECRET_ACCESS_KEY"] = connection.password or extra.get("aws_secret_access_key")
        variables["AWS_SESSION_TOKEN"] = extra.get("aws_session_token")
        if bool(variables["AWS_ACCESS_KEY_ID"]) != bool(variables["AWS_SECRET_ACCESS_KEY"]):
            what = f"the connection {connection.conn_id!r} has one of access key and secret key"
            raise _wrong(what, "give both (login and password), or neither")
    return {name: str(value) for name, value in variables.items() if value}


def require_credentials(connection: Any) -> None:
    """
    Raises:
        MetadataError: `AWS_CONNECTION_INVALID`: its type is `emr`, which describes clusters.
    """
    if connection.conn_type == "emr":
        what = (
            f"the connection {connection.conn_id!r} is of type emr, which holds settings of clusters and no credentials"
        )
        raise _wrong(what, "name a connection of type aws")


_AMAZON = "airflow.providers.amazon.aws.hooks.base_aws"


def _assumed(conn_id: str) -> dict[str, str | None]:
    """Keys for a role or profile, from Amazon's provider."""
    user = f"the connection {conn_id!r}, which names a role or a profile,"
    hook = _require(_AMAZON, "apache-airflow-providers-amazon", user).AwsBaseHook
    keys = hook(aws_conn_id=conn_id, client_type="s3").get_credentials()
    return {
        "AWS_ACCESS_KEY_ID": keys.access_key,
        "AWS_SECRET_ACCESS_KEY": keys.secret_key,
        "AWS_SESSION_TOKEN": keys.token,
    }


def _wrong(what: str, remedy: str) -> MetadataError:
    return MetadataError("AWS_CONNECTION_INVALID", what, remedy=remedy)


_AZURE_SCOPE = "2ff814a6-3304-4ab8-85cb-cd0e6f879c1d/.default"
"""Scope of Azure's token for any workspace: learn.microsoft.com, "Get a Microsoft Entra ID access token"."""
_AZURE_MANAGEMENT = "https://management.azure.com/.default"


class FromAirflow:
    """See `Connections`. AWS logs in by the hook of Amazon's provider, Databricks by its SDK."""

    def databricks(self, name: str) -> DatabricksAccess:
        _require("databricks.sdk", "databricks-sdk", f"the connection {name!r}")
        try:
            connection = capabilities.connection(name)
            host, login = _workspace(connection), _databricks_login(connection)
        except GddlError:
            raise
        except Exception as error:
            raise _unusable(name, error) from error
        if not host or not login:
            what = "has no host" if not host else "names no way to log in"
            remedy = "set the host, and the token as password or another login of docs/platforms/databricks.md"
            raise FatalError("CONNECTION_UNUSABLE", f"connection {name!r} {what}", remedy=remedy)
        return DatabricksAccess(host=host, login=login)

    def aws(self, name: str, region: str | None) -> Any:
        hooks = _require(_AMAZON, "apache-airflow-providers-amazon", f"the connection {name!r}")
        try:
            require_credentials(capabilities.connection(name))
            return hooks.AwsGenericHook(aws_conn_id=name, region_name=region).get_session()
        except GddlError:
            raise
        except Exception as error:
            raise _unusable(name, error) from error


def _workspace(connection: Any) -> str:
    """Address of a workspace, as the provider makes it of a connection; empty: the connection has no host."""
    host = str(connection.extra_dejson.get("host") or connection.host or "").rstrip("/")
    port = f":{connection.port}" if connection.port else ""
    return f"{connection.schema or 'https'}://{urlsplit(host).hostname or host}{port}" if host else ""


def _databricks_login(connection: Any) -> dict[str, Any]:
    """Fields of the SDK's `Config`, from those of a connection of the provider's type; empty: there is no login.

    docs/platforms/databricks.md lists them.
    """
    extra, login, password = connection.extra_dejson, connection.login, connection.password
    fields: dict[str, Any] = {}
    if token := extra.get("token") or (password if not login else None):
        fields = {"auth_type": "pat", "token": token}
    elif tenant := extra.get("azure_tenant_id"):
        fields = {"auth_type": "azure-client-secret", "azure_tenant_id": tenant, "azure_client_id": login}
        fields |= {"azure_client_secret": password, "azure_workspace_resource_id": extra.get("azure_resource_id")}
    elif extra.get("use_azure_managed_identity"):
        identity = {"client_id": extra["managed_identity_client_id"]} if "managed_identity_client_id" in extra else {}
        fields = {"credentials_strategy": _of_azure("ManagedIdentityCredential", identity, extra)}
    elif extra.get("use_default_azure_credential"):
        fields = {"credentials_strategy": _of_azure("DefaultAzureCredential", {}, extra)}
    elif extra.get("service_principal_oauth"):
        fields = {"auth_type": "oauth-m2m", "client_id": login, "client_secret": password}
    elif path := extra.get("k8s_projected_volume_token_path"):
        fields = {"auth_type": "file-oidc", "oidc_token_filepath": path}
        fields |= {"client_id": extra.get("client_id"), "token_audience": extra.get("audience")}
    return fields


def _of_azure(kind: str, arguments: Mapping[str, Any], extra: Mapping[str, Any]) -> Any:
    """Logs in by a credential of `azure-identity`, which keeps its tokens; the SDK has none of a managed identity."""
    azure = _require("azure.identity", "azure-identity", "a connection with a login of Azure")
    credential = getattr(azure, kind)(**arguments)
    workspace = extra.get("azure_resource_id")

    def headers() -> dict[str, str]:
        header_values = {"Authorization": f"Bearer {credential.get_token(_AZURE_SCOPE).token}"}
        if workspace:  # the identity is no user of it
            header_values["X-Databricks-Azure-SP-Management-Token"] = credential.get_token(_AZURE_MANAGEMENT).token
            header_values["X-Databricks-Azure-Workspace-Resource-Id"] = workspace
        return header_values

    strategy = importlib.import_module("databricks.sdk.credentials_provider").credentials_strategy
    return strategy("azure-identity", [])(lambda _config: headers)


def _require(module: str, package: str, user: str) -> Any:
    with needed_by(user, install=package):
        return importlib.import_module(module)


def _unusable(name: str, error: Exception) -> FatalError:
    what = f"connection {name!r} can't be used: {type(error).__name__}: {error}"[:500]
    return FatalError("CONNECTION_UNUSABLE", what, remedy="check it with `airflow connections get`")
