"""The login of Airflow's Databricks connections, by the hook of their own provider."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import requests
from airflow.providers.databricks.hooks.databricks_base import BaseDatabricksHook
from databricks.sdk.credentials_provider import CredentialsStrategy, credentials_strategy
from tenacity import RetryError

from airflow_gddl import __version__
from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.codes import CONNECTION_UNUSABLE, PLATFORM_UNREACHABLE
from airflow_gddl.contract.errors import FatalError, GddlError, RetriableError, documented
from airflow_gddl.contract.packages import of_import
from airflow_gddl.runners.databricks.access import DatabricksAccess

_STRATEGY = "airflow-connection"
_REMEDY = f"set the host, and the token as password or another login of {documented('platforms/databricks.md')}"


class LoginHook(BaseDatabricksHook):
    """What the provider adds to each of its requests; it keeps tokens until two minutes before they expire."""

    @property
    def user_agent_value(self) -> str:
        """For requests of tokens; the provider's loads all providers for its own version."""
        return f"airflow-gddl/{__version__}"

    @classmethod
    def get_connection(cls, conn_id: str) -> Any:
        return capabilities.connection(conn_id)

    def access(self) -> DatabricksAccess:
        """
        Raises:
            FatalError: `CONNECTION_UNUSABLE`: it has no host, or its login is refused.
            RetriableError: `PLATFORM_UNREACHABLE`: who gives the tokens does not answer.
        """
        if not self.host:
            raise FatalError(CONNECTION_UNUSABLE, f"connection {self.databricks_conn_id!r} has no host", remedy=_REMEDY)
        self.headers()  # now, rather than in the first call
        # Older providers know no proxies.
        proxies: Mapping[str, str] = getattr(self, "proxies", None) or {}
        login = {"auth_type": _STRATEGY, "credentials_strategy": self._strategy()}
        return DatabricksAccess(host=self._url(), login=login, proxies=proxies)

    def _url(self) -> str:
        url: str = self._endpoint_url("")  # type: ignore[no-untyped-call]  # the provider has no annotation here
        return url.rstrip("/")

    def _strategy(self) -> CredentialsStrategy:
        def configured(_config: object) -> Callable[[], dict[str, str]]:
            return self.headers

        strategy: CredentialsStrategy = credentials_strategy(_STRATEGY, [])(configured)
        return strategy

    def headers(self) -> dict[str, str]:
        """Headers of a request. Raises as `access`."""
        try:
            return {**self._get_aad_headers(), "Authorization": self._authorization()}
        except GddlError:
            raise
        except Exception as error:
            raise _refused(self.databricks_conn_id, error) from error

    def _authorization(self) -> str:
        token = self._get_token()
        if token:
            return f"Bearer {token}"
        connection = self.databricks_conn
        if not connection.login or not connection.password:
            what = f"connection {self.databricks_conn_id!r} names no way to log in"
            raise FatalError(CONNECTION_UNUSABLE, what, remedy=_REMEDY)
        request = requests.Request("GET", self._url(), auth=(connection.login, connection.password))
        return str(request.prepare().headers["Authorization"])


def login(name: str) -> DatabricksAccess:
    """Raises as `LoginHook.access`."""
    return LoginHook(name, caller="airflow-gddl").access()


def _refused(name: str, error: Exception) -> GddlError:
    """An error of the provider: each of its own has the cause as context."""
    if isinstance(missing := error.__context__, ImportError):
        install = "azure-identity" if (missing.name or "").startswith("azure") else ""
        found = of_import(missing, f"the connection {name!r}", install=install)
        if found is not None:
            return found
    said = str(error)
    if "access_token" in said:  # the provider shows an answer that it does not understand
        said = "the answer of the token's endpoint is no token"
    what = f"connection {name!r} can't be used: {type(error).__name__}: {said}"[:500]
    if isinstance(error.__context__, RetryError) or isinstance(error, requests.RequestException | OSError):
        return RetriableError(PLATFORM_UNREACHABLE, what, remedy="the call is retried")
    return FatalError(CONNECTION_UNUSABLE, what, remedy="check it with `airflow connections get`")
