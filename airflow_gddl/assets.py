"""Tables as Airflow assets."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias


def table_asset(table: str) -> Asset:
    """The asset of a table, `schema.name`; the same as `Asset("schema.name")`, in every environment."""
    return Asset(table)


def alias_of(dag_id: str) -> AssetAlias:
    """Outlet of a pipeline's tasks; the changed tables' assets are added at run time."""
    return AssetAlias(dag_id)
