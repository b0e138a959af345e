"""Tables as Airflow assets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.sdk import Asset, AssetAlias, get_current_context


def table_asset(table: str) -> Asset:
    """The asset of a table, `schema.name`; the same as `Asset("schema.name")`, in every environment."""
    return Asset(table)


def alias_of(dag_id: str) -> AssetAlias:
    """Outlet of a pipeline's tasks; the changed tables' assets are added at run time."""
    return AssetAlias(dag_id)


def events_of(table: str, events: Mapping[Any, Sequence[Any]] | None = None) -> list[Any]:
    """Events of a table that started this run, in their order, each once; empty when others started it.

    `triggering_asset_events` holds each event twice: under the table's asset and under the alias of the DAG that loaded
    it, so that its values must not be counted.

    Args:
        table: `schema.name`.
        events: `triggering_asset_events` of the task's context; None: of the task that runs now.
    """
    given = get_current_context().get("triggering_asset_events") if events is None else events
    if not given:  # before Airflow 3.1 an asset is no key of a dict
        return []
    try:
        return list(given[table_asset(table)])
    except KeyError:
        return []
