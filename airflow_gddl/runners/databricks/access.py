"""A Databricks workspace and the credentials for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class DatabricksAccess:
    """A workspace and the credentials for it.

    Attributes:
        host: its URL; empty: as the SDK finds it (`DATABRICKS_HOST`, `~/.databrickscfg`).
        login: fields of the SDK's `Config`; empty: as the SDK finds them.
        proxies: URLs by scheme, `http` and `https`; empty: those of the environment. They may hold a password.
    """

    host: str = ""
    login: Mapping[str, Any] = field(default_factory=dict, repr=False)
    proxies: Mapping[str, str] = field(default_factory=dict, repr=False)
