"""Tables with news, written down in the lake for all pipelines, since whoever empties the queue takes everybody's.

Each drain of the queue leaves one small object below `_gddl/airflow/news`, named by its time; a pipeline reads those it
has not read. They are written before the queue's messages are deleted.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Collection
from datetime import UTC, datetime, timedelta

from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.stores import Storage

OVERLAP = timedelta(minutes=10)
"""How far clocks of different machines may be apart."""


def folder(lake: str) -> str:
    return join(lake, STATE, "airflow", "news")


def publish(store: Storage, lake: str, tables: Collection[str], now: datetime) -> None:
    """
    Raises:
        RetriableError: `STORAGE_BUSY`.
    """
    name = f"{_stamp(now)}-{uuid.uuid4().hex[:8]}.json"
    store.write(join(folder(lake), name), json.dumps(sorted(tables)).encode())


def names_since(store: Storage, lake: str, moment: datetime) -> list[str]:
    """Names of what was written from this moment on, and somewhat before it."""
    return sorted(found.name for found in store.list(folder(lake), _stamp(moment - OVERLAP)))


def tables_in(store: Storage, lake: str, names: Collection[str]) -> set[str]:
    """What they say; one that was removed meanwhile says nothing."""
    tables: set[str] = set()
    for name in names:
        try:
            tables.update(json.loads(store.read(join(folder(lake), name))))
        except FileNotFoundError:
            continue
    return tables


def remove_before(store: Storage, lake: str, moment: datetime) -> None:
    """Those that every pipeline has read or makes up for by a full listing."""
    last = _stamp(moment - OVERLAP)
    store.delete(*(found.path for found in store.list(folder(lake)) if found.name < last))


def _stamp(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y%m%dT%H%M%S.%f}"
