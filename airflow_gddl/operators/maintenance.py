"""Tasks that maintain or verify the tables of a tier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl.links.jobs import JobLogLink

Upkeep = Literal["maintain", "verify"]


class GddlUpkeepOperator(BaseOperator):
    """Maintains or verifies all enabled tables of a tier in jobs, and fails at the end if a table failed.

    Args:
        metadata: folder or `s3://` URL.
        tier: whose tables; the run's param `tables` names some of them alone.
        action: what is done with them.
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
        """A summary of the results.

        Raises:
            AirflowSkipException: the tier has none of the tables.
            AirflowException: a table failed, or a passing fault.
        """
        from airflow_gddl.operators import maintenance_execution as upkeep_execution  # noqa: PLC0415 - imported when needed

        return upkeep_execution.execute(self, context)

    def on_kill(self) -> None:
        """The task was stopped: so is its run."""
        if self.stop is not None:
            self.stop()
