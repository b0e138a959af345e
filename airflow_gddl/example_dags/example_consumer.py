"""A DAG of your own that runs when tables were updated, and reads the extra of the events."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag, task

from airflow_gddl.assets import table_asset


@dag(schedule=[table_asset("shop.orders")], start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=False, tags=["gddl"])
def example_gddl_consumer() -> None:
    """Prints rows, lag and Delta version of each update of shop.orders."""

    @task
    def show(triggering_asset_events: dict[object, list[object]] | None = None) -> None:
        for asset, events in (triggering_asset_events or {}).items():
            for event in events:
                extra = getattr(event, "extra", {})
                line = f"{asset}: {extra.get('rows')} rows, {extra.get('lag_seconds')} s behind, {extra.get('version')}"
                print(line)  # noqa: T201 - goes to the task's log

    show()


example_gddl_consumer()
