"""The task that looks at all tables and tells of those that are late, whether anything loads them or not."""

from __future__ import annotations

from typing import Any

from airflow.sdk import BaseOperator, Context


class GddlWatchOperator(BaseOperator):
    """Tells `[gddl] alert_notifiers` of tables that became late, and of those that are so no more: each once.

    Args:
        metadata: folder or `s3://` URL.
    """

    ui_color = "#fdeacc"

    def __init__(self, *, metadata: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata

    def execute(self, context: Context) -> dict[str, int]:
        """How many tables became late, and how many are so no more.

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
            told = watch(context, directory, self.log, configuration.environ_of(directory))
        except GddlError as error:
            raise AirflowException(str(error)) from error
        for alert in told:
            self.log.info("%s", alert.line)
        return {change: sum(alert.change == change for alert in told) for change in ("began", "over")}
