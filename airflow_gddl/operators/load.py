"""The tasks that load: tables without a replica first, then increments of the others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl.assets import alias_of
from airflow_gddl.links import AssetsLink, JobLogLink


class LoadOperator(BaseOperator):
    """Loads its share of what the sensor found, in one job, and fails at the end if a table failed.

    A try after a failure loads only the tables that are left; a task that had succeeded and is cleared loads all of its
    tables again. The ledger sees to it that nothing is loaded twice.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        sensor: task id of the pipeline's `GddlTablesSensor`.
        runner: name of the runner; null: the one that the metadata names.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        loaded: tables that a job was asked to load in this try.
        stop: cancels the run elsewhere that this try started; null when there is none.
    """

    stage: ClassVar[Literal["initial", "increments"]]
    operator_extra_links = (JobLogLink(), AssetsLink())

    def __init__(
        self, *, metadata: str, pipeline: str, sensor: str = "landed", runner: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[alias_of(pipeline)], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.sensor = sensor
        self.runner = runner
        self.job_log: str | None = None
        self.loaded: tuple[str, ...] = ()
        self.stop: Callable[[], None] | None = None

    def execute(self, context: Context) -> dict[str, Any]:
        """A summary of the load; `results` of it is bounded.

        Raises:
            AirflowSkipException: nothing to do.
            AirflowFailException: trying again would fail again.
            AirflowException: a table failed, or a passing fault.
        """
        # Every parse and every task of a DAG imports this module; only a load that runs needs the rest.
        from airflow_gddl.operators import execution  # noqa: PLC0415 - as said above

        return execution.execute(self, context)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Back from the triggerer: the run that it watched has ended, or it could not tell.

        Args:
            event: see `GddlRunTrigger`.
        """
        from airflow_gddl.contract.codec import decode  # noqa: PLC0415 - as above
        from airflow_gddl.operators import execution  # noqa: PLC0415 - as above

        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return execution.execute(self, context, decode(execution.Begun, event["begun"]))

    def on_kill(self) -> None:
        """The task was stopped while it was in this process; what the triggerer watches, it cancels itself."""
        if self.stop is not None:
            self.stop()


class GddlInitialLoadOperator(LoadOperator):
    """Loads tables that have no replica yet, and does full refreshes; skips itself when there are none."""

    stage = "initial"
    ui_color = "#c7e0f4"


class GddlIncrementalLoadOperator(LoadOperator):
    """Brings tables that have a replica up to date, at the end also those that `depends_on` held back, if it can."""

    stage = "increments"
    ui_color = "#e3eefa"
