"""Where Airflow finds the page: what it mounts, and the entry of its menu."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from airflow.plugins_manager import AirflowPlugin

from airflow_gddl.capabilities import conf
from airflow_gddl.page.mounting import PREFIX, PageApp

FASTAPI_APPS: list[dict[str, Any]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "GDDL tables"}]


def href() -> str:
    """The page's address below whatever path Airflow is served under."""
    path = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{path}{PREFIX}/"


def views() -> dict[str, list[dict[str, Any]]]:
    """Attributes of the plugin: an external view where Airflow has them (3.1 or newer), else an entry of its menu."""
    if hasattr(AirflowPlugin, "external_views"):
        view = {"name": "Tables", "href": href(), "destination": "nav", "url_route": "gddl-tables"}
        return {"external_views": [view]}
    return {"appbuilder_menu_items": [{"name": "Tables", "href": href(), "category": "GDDL"}]}
