"""Locations of new files (`events.places_with_news`), stored in the lake for all pipelines: whichever pipeline drains
the queue receives the messages of all.

Each drain of the queue leaves one small object below `_gddl/airflow/news`, named by its time; a pipeline reads those
that it has not read. They are written before the queue's messages are deleted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage

OVERLAP = timedelta(minutes=10)
"""Assumed clock skew between machines."""


def folder(lake: str) -> str:
    return join(lake, STATE, "airflow", "news")


def publish(store: Storage, lake: str, places: Collection[str], now: datetime) -> None:
    """
    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    name = f"{_stamp(now)}-{uuid.uuid4().hex[:8]}.json"
    store.write(join(folder(lake), name), json.dumps(sorted(places)).encode())


def names_since(store: Storage, lake: str, moment: datetime) -> list[str]:
    """Names of the objects written since this moment, minus the clock skew."""
    return sorted(found.name for found in store.list(folder(lake), _stamp(moment - OVERLAP)))


def places_in(store: Storage, lake: str, names: Collection[str]) -> set[str]:
    """Their content; objects removed in the meantime are skipped."""
    places: set[str] = set()
    for name in names:
        try:
            places.update(json.loads(store.read(join(folder(lake), name))))
        except FileNotFoundError:
            continue
    return places


def remove_before(store: Storage, lake: str, moment: datetime) -> None:
    """Remove objects that every pipeline has read, or covers by a full listing."""
    last = _stamp(moment - OVERLAP)
    old = (found for found in store.list(folder(lake)) if found.name < last and not found.is_unfinished)
    store.delete(*(found.path for found in old))


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S.%f}"
