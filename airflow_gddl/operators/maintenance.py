"""Tasks that maintain or verify the tables of a tier, find the DAGs of tables, and check all tables for lateness."""

from __future__ import annotations

from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl.operators.jobs import JobTask

Upkeep = Literal["maintain", "verify"]


class GddlUpkeepOperator(JobTask):
    """Maintains or verifies all enabled tables of a tier in jobs, and fails at the end if a table failed.

    A retry skips tables that succeeded in this run.

    Args:
        tier: tier of the tables; the run's param `tables` selects some of them.
        action: action to run on them.
    """

    execution = "airflow_gddl.operators.maintenance_execution"
    ui_color = "#e8e4f0"

    def __init__(self, *, tier: str, action: Upkeep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.action: Upkeep = action


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


class GddlWatchOperator(BaseOperator):
    """Notifies `[gddl] alert_notifiers` once when a problem of a table, row or the metadata begins, once when it ends.

    Args:
        metadata: folder or `s3://` URL.
    """

    ui_color = "#fdeacc"

    def __init__(self, *, metadata: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata

    def execute(self, context: Context) -> dict[str, int]:
        """Return how many problems began, and how many ended.

        Raises:
            AirflowException: the lake or the metadata can't be read.
        """
        from airflow_gddl import configuration  # noqa: PLC0415 - imported when needed
        from airflow_gddl.contract.errors import GddlError  # noqa: PLC0415 - imported when needed
        from airflow_gddl.reporting.alerting import watch  # noqa: PLC0415 - imported when needed
        from airflow_gddl.version_compat import AirflowException  # noqa: PLC0415 - imported when needed

        serving = configuration.snapshot(self.metadata)
        directory = serving.directory()
        if directory is None:
            raise AirflowException(f"the metadata can't be read: {serving.state.why}")
        try:
            sent = watch(context, directory, self.dag_id, self.log, configuration.environ_of(directory))
        except GddlError as error:
            raise AirflowException(str(error)) from error
        for alert in sent:
            self.log.info("%s", alert.line)
        return {change: sum(alert.change == change for alert in sent) for change in ("began", "over")}
