"""Objects that name tables with news: kept as long as a pipeline may need them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_gddl.runtime.landing import events_queue
from airflow_gddl.stores import Storage


def test_old_objects_are_removed_and_no_object_that_is_being_written(tmp_path: Path) -> None:
    store, lake, now = Storage(), str(tmp_path), datetime(2026, 1, 2, 12, tzinfo=UTC)
    for hours in (3, 0):
        events_queue.publish(store, lake, ["shop/orders"], now - timedelta(hours=hours))
    old, new = events_queue.names_since(store, lake, now - timedelta(days=1))
    beside = Path(events_queue.folder(lake), ".20260102T120000.000000-5f2a.json.77.tmp")
    beside.touch()
    events_queue.remove_before(store, lake, now - timedelta(hours=1))
    assert events_queue.names_since(store, lake, now - timedelta(days=1)) == [new]
    assert events_queue.places_in(store, lake, [old, new]) == {"shop/orders"}
    assert beside.exists()
