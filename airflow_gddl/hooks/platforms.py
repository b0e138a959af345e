"""Platform credentials from Airflow connections."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from airflow_gddl import version_compat as capabilities
from airflow_gddl.contract.errors import FatalError, MetadataError
from airflow_gddl.hooks.aws import require_credentials
from airflow_gddl.runners.interface import DatabricksAccess


class FromAirflow:
    """See `Connections`. Uses the providers' hooks, which support all authentication methods; their packages must be
    installed."""

    def databricks(self, name: str) -> DatabricksAccess:
        hooks = _provider("airflow.providers.databricks.hooks.databricks_base", "databricks")

        # A subclass, since only subclasses can request a token.
        class Keys(hooks.BaseDatabricksHook):  # type: ignore[name-defined,misc] # known when the package is there
            """Headers that authenticate a request."""

            def headers(self) -> Mapping[str, str]:
                return {"Authorization": f"Bearer {self._get_token(raise_error=True)}", **self._get_aad_headers()}

            @property
            def url(self) -> str:
                return str(self._endpoint_url("")).rstrip("/")

        try:
            keys = Keys(databricks_conn_id=name)
            return DatabricksAccess(host=keys.url, headers=keys.headers)
        except Exception as error:
            raise _unusable(name, error) from error

    def aws(self, name: str, region: str | None) -> Any:
        hooks = _provider("airflow.providers.amazon.aws.hooks.base_aws", "amazon")
        try:
            require_credentials(capabilities.connection(name))
            return hooks.AwsGenericHook(aws_conn_id=name, region_name=region).get_session()
        except MetadataError:
            raise
        except Exception as error:
            raise _unusable(name, error) from error


def _provider(module: str, package: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        remedy = f"pip install apache-airflow-providers-{package}"
        raise FatalError("RUNNER_PACKAGE_MISSING", f"connections need a package: {error}", remedy=remedy) from error


def _unusable(name: str, error: Exception) -> FatalError:
    what = f"connection {name!r} can't be used: {type(error).__name__}: {error}"[:500]
    return FatalError("CONNECTION_UNUSABLE", what, remedy="check it with `airflow connections get`")
