"""Looks at landing folders by what a queue tells, rather than by listing them all."""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.codec import decode, to_json
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.spec import Roots
from airflow_gddl.runtime.landing import pending_tables as news
from airflow_gddl.runtime.landing.events import NotAnEventError, objects_of, tables_of
from airflow_gddl.runtime.landing.polling import Poll, look
from airflow_gddl.runtime.landing.queue import Message, Queue
from airflow_gddl.stores import Storage, open_store

_LOG = logging.getLogger(__name__)
_PUBLISH_SECONDS = 1.0
_DRAIN_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class QueuePollState:
    """What a pipeline last saw of its tables.

    Attributes:
        listed_at: ISO 8601 UTC, before the last listing of all tables.
        looked_at: ISO 8601 UTC, before the last look.
        read: names of news that were read, as far as they may be met again.
    """

    listed_at: str
    looked_at: str
    read: tuple[str, ...] = ()
    looks: Mapping[str, Poll] = field(default_factory=dict)
    format: int = 1


@dataclass(frozen=True, kw_only=True)
class Following:
    """Where news come from.

    Attributes:
        full_listing_seconds: all tables are listed after this time, whatever the queue said: events may be lost.
        environ: tells how S3 is reached.
        sleep: seconds; lets others who empty the queue just now write down what they got.
    """

    queue: Queue
    full_listing_seconds: float
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Callable[[], datetime] = lambda: datetime.now(UTC)
    sleep: Callable[[float], None] = time.sleep

    def looks(self, roots: Roots, dag_id: str, tables: Iterable[str]) -> dict[str, Poll]:
        """A look for each table, most of them remembered. A queue that can't be read costs a listing, nothing else.

        Raises:
            RetriableError: `STORAGE_BUSY`.
        """
        wanted, lake, now = sorted(set(tables)), self._store(), self.clock()
        drained = self._drain(roots)
        known = _read(lake, _place(roots.lake, dag_id))
        fresh_until = now - timedelta(seconds=self.full_listing_seconds)
        full = known is None or not drained or datetime.fromisoformat(known.listed_at) < fresh_until
        since = now if known is None or full else datetime.fromisoformat(known.looked_at)
        names = news.names_since(lake, roots.lake, since)
        stamp = now.isoformat(timespec="microseconds")
        if known is None or full:
            known = QueuePollState(listed_at=stamp, looked_at=stamp)
            news.remove_before(lake, roots.lake, fresh_until)
            told = set(wanted)
        else:
            told = news.tables_in(lake, roots.lake, set(names) - set(known.read))
        stale = [table for table in wanted if table in told or table not in known.looks]
        looks = {**known.looks, **look(self._store(), roots.landing, stale)}
        kept = {table: looks[table] for table in wanted}
        now_known = replace(known, looked_at=stamp, read=tuple(names), looks=kept)
        lake.write(_place(roots.lake, dag_id), to_json(now_known).encode())
        return kept

    def _store(self) -> Storage:
        return open_store(self.environ)

    def _drain(self, roots: Roots) -> bool:
        """Whether all that waited in the queue is written down, by this one or by others."""
        end = time.monotonic() + _DRAIN_SECONDS
        try:
            while self._take(roots):
                if time.monotonic() > end:
                    _LOG.warning("more waits in the queue than %.0f s can take: listing all", _DRAIN_SECONDS)
                    return False
        except RetriableError as error:
            _LOG.warning("listing all tables, since the queue of events can't be read: %s", error)
            return False
        self.sleep(_PUBLISH_SECONDS)
        return True

    def _take(self, roots: Roots) -> bool:
        """What the queue gives within a second, written down and then deleted; false when it was nothing."""
        messages: list[Message] = []
        end = time.monotonic() + _PUBLISH_SECONDS
        while time.monotonic() < end:
            some = self.queue.receive()
            messages += some
            if not some:
                break
        good = {message: objects for message in messages if (objects := _objects(message)) is not None}
        tables = tables_of((url for objects in good.values() for url in objects), roots.landing)
        if tables:
            news.publish(self._store(), roots.lake, tables, self.clock())
        self.queue.delete(good)
        return bool(good)


def _objects(message: Message) -> tuple[str, ...] | None:
    """Null for what is no event: left in the queue, whose own policy moves it to where dead letters go."""
    try:
        return objects_of(message.body)
    except NotAnEventError as error:
        _LOG.warning("a message of the queue is no event: %s", error)
        return None


def _place(lake: str, dag_id: str) -> str:
    return join(lake, STATE, "airflow", "looks", f"{dag_id}.json")


def _read(store: Storage, path: str) -> QueuePollState | None:
    """Null when nothing is remembered, or when it is damaged."""
    try:
        return decode(QueuePollState, json.loads(store.read(path)))
    except FileNotFoundError:
        return None
    except ValueError:
        return None
    except GddlError as error:
        if error.code != "SPEC_INVALID":
            raise
        return None
