"""Tasks that maintain or verify the tables of a tier."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl.links.jobs import JobLogLink

Upkeep = Literal["maintain", "verify"]


class GddlUpkeepOperator(BaseOperator):
    """Maintains or verifies all enabled tables of a tier in jobs, and fails at the end if a table failed.

    Args:
        metadata: folder or `s3://` URL.
        tier: tier of the tables; the run's param `tables` selects some of them.
        action: action to run on them.
        runner: name of the runner; null: the one that the metadata names.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        stop: cancels the run elsewhere that this try waits for; null when there is none.
    """

    operator_extra_links = (JobLogLink(),)
    ui_color = "#e8e4f0"

    def __init__(self, *, metadata: str, tier: str, action: Upkeep, runner: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata
        self.tier = tier
        self.action: Upkeep = action
        self.runner = runner
        self.job_log: str | None = None
        self.stop: Callable[[], None] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """Return a summary of the results. A retry skips tables that succeeded in this run.

        Raises:
            AirflowSkipException: the tier has none of the tables.
            AirflowException: a table failed, or a transient error.
        """
        return self._execute(context)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Resume after the triggerer: the run has ended, or could not be watched.

        Args:
            event: see `GddlRunTrigger`.
        """
        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return self._execute(context, event["begun"])

    def _execute(self, context: Context, begun: Mapping[str, Any] | None = None) -> dict[str, Any]:
        from airflow_gddl.operators import maintenance_execution  # noqa: PLC0415 - only a task that runs needs the rest

        return maintenance_execution.execute(self, context, begun)

    def on_kill(self) -> None:
        """Cancel the run of a stopped task."""
        if self.stop is not None:
            self.stop()
