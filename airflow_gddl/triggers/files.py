"""Events for new files in landing folders, for an `AssetWatcher`: starts other DAGs when files land."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent
from asgiref.sync import sync_to_async

from airflow_gddl import configuration
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.runtime.landing.polling import Poll, poll
from airflow_gddl.stores import open_store


class GddlFilesTrigger(BaseEventTrigger):
    """Fires an event whenever files in the landing folders of some tables are added, removed or changed.

    Files that exist at the start fire no event. The payload names the tables: `{"tables": ["shop.orders"]}`.

    Args:
        landing: root of the landing folders, local or `s3://`.
        tables: `schema.name` each.
        poll_seconds: time between two polls.
        aws_conn_id: connection that reaches S3; empty: the configured one, else environment or role.
    """

    def __init__(self, *, landing: str, tables: list[str], poll_seconds: float = 60.0, aws_conn_id: str = "") -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # Airflow's own has no annotations
        self.landing, self.tables, self.poll_seconds = landing, sorted(tables), poll_seconds
        self.aws_conn_id = aws_conn_id

    def serialize(self) -> tuple[str, dict[str, Any]]:
        names = ("landing", "tables", "poll_seconds", "aws_conn_id")
        return f"{type(self).__module__}.{type(self).__name__}", {name: getattr(self, name) for name in names}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Runs until cancelled; retries while the store does not respond."""
        before = await self._poll()
        while True:
            await asyncio.sleep(self.poll_seconds)
            now = await self._poll()
            if before is not None and now is not None:
                changed = [table for table in self.tables if now[table].digest != before[table].digest]
                if changed:
                    yield TriggerEvent({"tables": changed})
            before = now or before

    async def _poll(self) -> dict[str, Poll] | None:
        try:
            store = open_store(configuration.environ_for(self.landing, aws_conn_id=self.aws_conn_id))
            return await sync_to_async(poll, thread_sensitive=False)(store, self.landing, self.tables)
        except RetriableError as error:
            self.log.warning("%s", error)
            return None
