"""The task that finds the DAGs that currently load given tables."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context


class GddlFindOperator(BaseOperator):
    """Finds the DAGs that load the run's tables: `trigger_dag_id`, and the `conf` that asks each for its own.

    Args:
        metadata: folder or `s3://` URL.
    """

    ui_color = "#e8e4f0"

    def __init__(self, *, metadata: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Sorted by DAG id; never empty.

        Raises:
            AirflowFailException: `REQUEST_INVALID`: the request is invalid, or no DAG loads one of the tables.
        """
        from airflow_gddl import configuration  # noqa: PLC0415 - only a task that runs needs the rest
        from airflow_gddl.contract.errors import GddlError  # noqa: PLC0415 - as above
        from airflow_gddl.runtime.landing.rerun import requests_of  # noqa: PLC0415 - as above
        from airflow_gddl.version_compat import AirflowFailException  # noqa: PLC0415 - as above

        try:
            found = requests_of(dict(context["params"]), configuration.snapshot(self.metadata).directory())
        except GddlError as error:
            raise AirflowFailException(str(error)) from error
        for dag_id, conf in found.items():
            self.log.info("%s: %s", dag_id, ", ".join(conf["tables"]))
        return [{"trigger_dag_id": dag_id, "conf": conf} for dag_id, conf in found.items()]
