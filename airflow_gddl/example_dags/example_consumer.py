"""A DAG of your own that runs when tables were updated, and reads the extra of the events."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag, task

from airflow_gddl.assets import events_of, table_asset

TABLE = "shop.orders"


@dag(schedule=[table_asset(TABLE)], start_date=datetime(2024, 1, 1, tzinfo=UTC), catchup=False, tags=["gddl"])
def example_gddl_consumer() -> None:
    """Prints rows, lag and Delta version of each update of shop.orders."""

    @task
    def show() -> int:
        events = events_of(TABLE)
        for event in events:
            rows, lag, version = (event.extra.get(name) for name in ("rows", "lag_seconds", "version"))
            print(f"{TABLE}: {rows} rows, {lag} s behind, version {version}")  # noqa: T201 - goes to the task's log
        return len(events)

    show()


example_gddl_consumer()
