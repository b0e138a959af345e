"""Airflow plugin of the page: the mounted app and the menu entry."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.links.addresses import PREFIX
from airflow_gddl.version_compat import conf

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PageApp:
    """An ASGI application that builds the FastAPI application on the first request, since every task loads the
    plugin."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._built(scope, receive, send)

    @staticmethod
    def _quarantine_rate() -> float:
        """The default where the setting is no number, which the sensors report."""
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.runtime.state.judging import MOST_QUARANTINED  # noqa: PLC0415 - see the class

        try:
            return configuration.number("alert_quarantine_rate")
        except MetadataError:
            return MOST_QUARANTINED

    @cached_property
    def _built(self) -> Any:
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.page.app import build_app  # noqa: PLC0415 - see the class
        from airflow_gddl.page.source import PageSource  # noqa: PLC0415 - see the class

        place = configuration.metadata_place(beside=f"{configuration.dags_folder()}/gddl.py")
        return build_app(
            PageSource(lambda: configuration.snapshot(place), configuration.environ_of, self._quarantine_rate)
        )


FASTAPI_APPS: list[dict[str, Any]] = [{"app": PageApp(), "url_prefix": PREFIX, "name": "GDDL tables"}]


def href() -> str:
    """The page's URL path below Airflow's base URL."""
    path = urlsplit(str(conf.get("api", "base_url", fallback="") or "")).path.rstrip("/")
    return f"{path}{PREFIX}/"


def external_views() -> list[dict[str, Any]]:
    """The entry of Airflow's menu. Airflow 3.0 ignores it; its alternative needs the FAB provider."""
    return [{"name": "Tables", "href": href(), "destination": "nav", "url_route": "gddl-tables"}]
