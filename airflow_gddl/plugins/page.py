"""Where Airflow finds the page: what it mounts, and the entry of its menu."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.links.addresses import PREFIX
from airflow_gddl.page.mounting import PageApp
from airflow_gddl.version_compat import conf

FASTAPI_APPS: list[dict[str, Any]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "GDDL tables"}]


def href() -> str:
    """The page's address below whatever path Airflow is served under."""
    path = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{path}{PREFIX}/"


def external_views() -> list[dict[str, Any]]:
    """The entry of Airflow's menu. 3.0 leaves it alone; what it has instead would demand the FAB provider."""
    return [{"name": "Tables", "href": href(), "destination": "nav", "url_route": "gddl-tables"}]
