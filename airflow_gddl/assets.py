"""Tables as Airflow assets."""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias


def table_asset(table: str) -> Asset:
    """The asset of a table, `schema.name`; the same as `Asset("schema.name")`, in every environment."""
    return Asset(table)


def alias_of(dag_id: str) -> AssetAlias:
    """What a pipeline's tasks name as their outlet; the tables that a run changed are added when it runs."""
    return AssetAlias(dag_id)
