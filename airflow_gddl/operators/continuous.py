"""The task of a continuous pipeline: keeps one job alive that takes what lands, as it lands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from airflow.sdk import BaseOperator, Context

from airflow_gddl.assets import alias_of
from airflow_gddl.links import AssetsLink, JobLogLink


class GddlContinuousOperator(BaseOperator):
    """Runs a job that goes on, until its hours are over; the next run of its DAG starts another one at once.

    Rows that are added, changed or removed reach the job while it runs. Stopping the task has the job finish the batch
    that it is at. A run that asks for something (the form's fields) does that alone, in an ordinary job.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        runner: name of the runner; null: the one that the metadata names.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        loaded: tables that the job told of.
        stop: has the run elsewhere end; null when there is none.
    """

    operator_extra_links = (JobLogLink(), AssetsLink())
    ui_color = "#d6ecec"

    def __init__(self, *, metadata: str, pipeline: str, runner: str | None = None, **kwargs: Any) -> None:
        super().__init__(outlets=[alias_of(pipeline)], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.runner = runner
        self.job_log: str | None = None
        self.loaded: tuple[str, ...] = ()
        self.stop: Callable[[], None] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """A summary of the job's last turns.

        Raises:
            AirflowFailException: trying again would fail again.
            AirflowException: the job died, a table fails, or a passing fault: the next try goes on.
        """
        from airflow_gddl.operators import continuous_execution  # noqa: PLC0415 - every parse imports this module

        return continuous_execution.execute(self, context)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Back from the triggerer: the run elsewhere has ended, or can't be looked at.

        Args:
            event: see `GddlRunTrigger`.
        """
        from airflow_gddl.contract.codec import decode  # noqa: PLC0415 - as above
        from airflow_gddl.operators import continuous_execution, execution  # noqa: PLC0415 - as above

        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return continuous_execution.execute(self, context, decode(execution.Begun, event["begun"]))

    def on_kill(self) -> None:
        """The task was stopped while it was in this process; a job of this machine is told by its runner."""
        if self.stop is not None:
            self.stop()
