"""Start a table's pipeline when files land, not by the clock: `schedule: {assets: [shop.orders.files]}` in its row."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_gddl.triggers import GddlFilesTrigger

trigger = GddlFilesTrigger(landing="/data/landing", tables=["shop.orders"], poll_seconds=30)
files = Asset("shop.orders.files", watchers=[AssetWatcher(name="shop.orders.files", trigger=trigger)])

with DAG("example_gddl_watcher", schedule=[files], start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=False) as dag:

    @task
    def seen() -> str:
        """Exists only to hold the watcher."""
        return "files landed"

    seen()
