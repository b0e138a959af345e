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
            AirflowFailException: `REQUEST_INVALID`: the request is invalid, or no DAG loads one of the tables;
                `DAG_PAUSED`: a run of one of the DAGs would stay queued, so that none is triggered.
        """
        from airflow_gddl import configuration  # noqa: PLC0415 - only a task that runs needs the rest
        from airflow_gddl.contract.errors import FatalError, GddlError  # noqa: PLC0415 - as above
        from airflow_gddl.runtime.landing.run_request import requests_of  # noqa: PLC0415 - as above
        from airflow_gddl.version_compat import AirflowFailException, is_paused  # noqa: PLC0415 - as above

        try:
            found = requests_of(dict(context["params"]), configuration.snapshot(self.metadata).directory())
            if paused := [dag_id for dag_id in found if is_paused(context.get("ti"), dag_id)]:
                what = "the run of a paused DAG stays queued; nothing was triggered"
                remedy = "unpause it, then clear this task"
                raise FatalError("DAG_PAUSED", what, where=", ".join(paused), remedy=remedy)
        except GddlError as error:
            raise AirflowFailException(str(error)) from error
        for dag_id, conf in found.items():
            self.log.info("%s: %s", dag_id, ", ".join(conf["tables"]))
        return [{"trigger_dag_id": dag_id, "conf": conf} for dag_id, conf in found.items()]
