"""The task that checks all tables and rows, whether or not they are being loaded."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context


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
