"""Airflow plugin of the page: the mounted app and the menu entry."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.links.addresses import PREFIX
from airflow_gddl.page.mounting import PageApp
from airflow_gddl.version_compat import conf

FASTAPI_APPS: list[dict[str, Any]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "GDDL tables"}]


def href() -> str:
    """The page's URL path below Airflow's base URL."""
    path = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{path}{PREFIX}/"


def external_views() -> list[dict[str, Any]]:
    """The entry of Airflow's menu. Airflow 3.0 ignores it; its alternative needs the FAB provider."""
    return [{"name": "Tables", "href": href(), "destination": "nav", "url_route": "gddl-tables"}]
