"""Credentials for platforms. Metadata never contains credentials."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True)
class DatabricksAccess:
    """A workspace and the credentials for it.

    Attributes:
        host: its URL; empty: as the SDK finds it (`DATABRICKS_HOST`, `~/.databrickscfg`).
        headers: the headers that authenticate a request, fresh for each; null: as the SDK finds them.
    """

    host: str = ""
    headers: Callable[[], Mapping[str, str]] | None = field(default=None, repr=False)


class Connections(Protocol):
    """Credentials by the name that the metadata gives them.

    Raises (every method):
        FatalError: `CONNECTION_UNUSABLE`.
    """

    def databricks(self, name: str) -> DatabricksAccess: ...

    def aws(self, name: str, region: str | None) -> Any:
        """A boto3 session."""
        ...


class FromEnvironment:
    """Default credentials of the SDKs: environment variables, profiles, the machine's role. Connection names are
    ignored."""

    def databricks(self, name: str) -> DatabricksAccess:  # noqa: ARG002 - names belong to Airflow
        return DatabricksAccess()

    def aws(self, name: str, region: str | None) -> Any:  # noqa: ARG002 - as above
        import boto3  # noqa: PLC0415 - only where that platform is used

        return boto3.Session(region_name=region)
