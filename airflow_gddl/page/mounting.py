"""The page's app for Airflow; built on the first request, since every task loads the plugin."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cached_property
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PageApp:
    """An ASGI application that builds the FastAPI application on the first request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._built(scope, receive, send)

    @cached_property
    def _built(self) -> Any:
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.page.app import build_app  # noqa: PLC0415 - see the module
        from airflow_gddl.page.source import PageSource  # noqa: PLC0415 - see the module

        place = configuration.metadata_place(beside=f"{configuration.dags_folder()}/gddl.py")
        return build_app(PageSource(lambda: configuration.snapshot(place), configuration.environ_of))
