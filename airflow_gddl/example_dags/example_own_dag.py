"""Tables of the metadata in a DAG of your own: load them, wait for others, go on."""

from __future__ import annotations

from datetime import UTC, datetime

from airflow.sdk import dag, task

from airflow_gddl.operators.jobs import GddlLoadOperator
from airflow_gddl.sensors.loaded import GddlSensor


@dag(
    schedule=None,
    start_date=datetime(2024, 1, 1, tzinfo=UTC),
    catchup=False,
    tags=["gddl"],
    params={"tables": "shop.orders"},
)
def example_gddl_own_dag() -> None:
    """Loads the tables of the trigger form, waits until shop.customers is up to date, and reports."""
    load = GddlLoadOperator(task_id="load", tables="{{ params.tables }}", pool="default_pool")
    wait = GddlSensor(task_id="wait", tables=["shop.customers"], timeout=3600)

    @task
    def report() -> None:
        print("orders and customers are up to date")  # noqa: T201 - goes to the task's log

    [load, wait] >> report()


example_gddl_own_dag()
