"""Polls landing folders by queue messages instead of listing all of them."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.errors import RetriableError
from airflow_gddl.contract.layout import STATE, LandingFolder, join
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing import pending_tables as news
from airflow_gddl.runtime.landing.events import NotAnEventError, has_news, objects_of, places_with_news
from airflow_gddl.runtime.landing.polling import Poll, Scope, poll_folders
from airflow_gddl.runtime.landing.queue import Message, SqsQueue
from airflow_gddl.stores import open_store, read_document

_LOG = logging.getLogger(__name__)
_PUBLISH_SECONDS = 1.0
_DRAIN_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class QueuePollState:
    """Last poll of a pipeline's tables.

    Attributes:
        listed_at: ISO 8601 UTC, before the last listing of all tables.
        looked_at: ISO 8601 UTC, before the last poll.
        read: names of `pending_tables` objects already read, as long as they may be listed again.
    """

    listed_at: str
    looked_at: str
    read: tuple[str, ...] = ()
    looks: Mapping[str, Poll] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True, kw_only=True)
class Following:
    """Source of notifications.

    Attributes:
        full_listing_seconds: all tables are listed after this time, since events may be lost.
        environ: says how S3 is reached.
        sleep: takes seconds; waits for other pipelines that are draining the queue to store their messages.
    """

    queue: SqsQueue
    full_listing_seconds: float
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep

    def poll(self, roots: Roots, dag_id: str, folders: Mapping[str, LandingFolder]) -> dict[str, Poll]:
        """Poll each table, most of them from memory. If the queue can't be read, all tables are listed.

        Args:
            folders: by table, where it lands.

        Raises:
            RetriableError: `STORAGE_BUSY`.
        """
        wanted, lake, now = sorted(folders), open_store(self.environ), self.clock()
        drained = self._drain(roots)
        known = read_document(lake, _place(roots.lake, dag_id), QueuePollState)
        fresh_until = now - timedelta(seconds=self.full_listing_seconds)
        full = known is None or not drained or datetime.fromisoformat(known.listed_at) < fresh_until
        since = now if known is None or full else datetime.fromisoformat(known.looked_at)
        names = news.names_since(lake, roots.lake, since)
        stamp = now.isoformat(timespec="microseconds")
        if known is None or full:
            known = QueuePollState(listed_at=stamp, looked_at=stamp)
            news.remove_before(lake, roots.lake, fresh_until)
            changed = set(folders)
        else:
            places = news.places_in(lake, roots.lake, set(names) - set(known.read))
            changed = {table for table, folder in folders.items() if has_news(folder, roots.landing, places)}
        stale = {table: folders[table] for table in wanted if table in changed or table not in known.looks}
        looks = {**known.looks, **{table: files.poll() for table, files in poll_folders(lake, stale, Scope()).items()}}
        kept = {table: looks[table] for table in wanted}
        now_known = replace(known, looked_at=stamp, read=tuple(names), looks=kept)
        lake.write(_place(roots.lake, dag_id), to_json(now_known).encode())
        return kept

    def _drain(self, roots: Roots) -> bool:
        """Whether all queued messages are stored, by this pipeline or by others."""
        end = time.monotonic() + _DRAIN_SECONDS
        try:
            while self._take(roots):
                if time.monotonic() > end:
                    _LOG.warning("the queue could not be drained within %.0f s: listing all tables", _DRAIN_SECONDS)
                    return False
        except RetriableError as error:
            _LOG.warning("listing all tables, since the queue of events can't be read: %s", error)
            return False
        self.sleep(_PUBLISH_SECONDS)
        return True

    def _take(self, roots: Roots) -> bool:
        """Receive messages for up to a second, store and then delete them; false when there were none."""
        messages: list[Message] = []
        end = time.monotonic() + _PUBLISH_SECONDS
        while time.monotonic() < end:
            some = self.queue.receive()
            messages += some
            if not some:
                break
        good = {message: objects for message in messages if (objects := _objects(message)) is not None}
        places = places_with_news((url for objects in good.values() for url in objects), roots.landing)
        if places:
            news.publish(open_store(self.environ), roots.lake, places, self.clock())
        self.queue.delete(good)
        return bool(good)


def _objects(message: Message) -> tuple[str, ...] | None:
    """Null for a message that is not an event: it stays in the queue, whose redrive policy moves it to the dead-letter
    queue."""
    try:
        return objects_of(message.body)
    except NotAnEventError as error:
        _LOG.warning("a queue message is not an event: %s", error)
        return None


def _place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", "looks", f"{dag_id}.json")
