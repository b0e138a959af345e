"""The page's app for Airflow; built on the first request, since every task loads the plugin."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class PageApp:
    """An ASGI application that builds the FastAPI application on the first request."""

    def __init__(self) -> None:
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._built()(scope, receive, send)

    def _built(self) -> Any:
        with self._lock:
            if self._app is None:
                from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
                from airflow_gddl.page.app import build_app  # noqa: PLC0415 - see the module
                from airflow_gddl.page.source import PageSource  # noqa: PLC0415 - see the module

                place = configuration.metadata_place(beside=f"{configuration.dags_folder()}/gddl.py")
                self._app = build_app(PageSource(lambda: configuration.snapshot(place), configuration.environ_of))
            return self._app
