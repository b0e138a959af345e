"""Asset events: what Airflow receives about tables that changed.

Airflow sends a task's events only when the task succeeds. A pack with one failing table must still report the others,
so events are stored with the hints until a task of the pipeline succeeds: a load, or the next sensor.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.assets import alias_of, table_asset
from airflow_gddl.contract.result import JobResult
from airflow_gddl.runtime.landing import hints
from airflow_gddl.runtime.landing.hints import Hints
from airflow_gddl.stores import open_store


def extra_of(result: JobResult) -> dict[str, Any] | None:
    """The event's extra; null when the run changed nothing."""
    if result.status != "succeeded" or result.version is None:
        return None
    expectations = {one.name: {"checked": one.checked, "failed": one.failed} for one in result.expectations}
    return {
        **({"expectations": expectations} if expectations else {}),
        "rows": result.main.rows,
        "inserted": result.main.inserted,
        "updated": result.main.updated,
        "deleted": result.main.deleted,
        "changes": result.changes_written,
        "quarantined": result.quarantined,
        "version": result.version,
        "commit_ts": result.freshness.commit_ts,
        "lag_seconds": result.freshness.lag_seconds,
        "mode": result.mode,
        "gddl_run_id": result.run_id,
    }


def add_events(context: Context, dag_id: str, pending: Mapping[str, Mapping[str, Any]]) -> None:
    """Send an event for each of these tables if the running task succeeds."""
    events = context["outlet_events"][alias_of(dag_id)]
    for table, extra in pending.items():
        events.add(table_asset(table), extra=dict(extra))


def announce(context: Context, metadata: str, dag_id: str) -> None:
    """Send all pending events of the pipeline.

    Raises:
        RetriableError: `STORAGE_BUSY`, or `STATE_CONTENDED`.
    """
    document = configuration.snapshot(metadata).pipeline(dag_id)
    if document is None:
        return
    pending: dict[str, Mapping[str, Any]] = {}

    def announced(known: Hints) -> Hints:
        pending.clear()
        pending.update(known.pending)
        return known.announced()

    hints.update(open_store(configuration.environ_of(document)), document.roots.lake, dag_id, announced)
    add_events(context, dag_id, pending)
