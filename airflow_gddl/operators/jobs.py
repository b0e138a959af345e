"""Base classes of the tasks that run jobs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, Context

from airflow_gddl import configuration
from airflow_gddl.assets import alias_of
from airflow_gddl.links.jobs import AssetsLink, JobLogLink
from airflow_gddl.version_compat import TaskDeferred

if TYPE_CHECKING:
    from airflow_gddl.reporting.results import LoadedTables


class JobTask(BaseOperator):
    """Base of the tasks that run jobs; the implementation is in `execution`.

    Args:
        metadata: folder or `s3://` URL.
        runner: name of the runner; null: the one that the metadata names.
        deferrable: wait in the triggerer for a job that runs elsewhere; null: as `[gddl] deferrable` says.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        stop: cancels the run elsewhere that this try started; null when there is none.
    """

    execution: ClassVar[str]
    operator_extra_links: Collection[BaseOperatorLink] = (JobLogLink(),)

    def __init__(
        self, *, metadata: str, runner: str | None = None, deferrable: bool | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata
        self.runner = runner
        self.deferrable = configuration.is_deferrable() if deferrable is None else deferrable
        self.job_log: str | None = None
        self.stop: Callable[[], None] | None = None

    def execute(self, context: Context) -> Any:
        """A summary of the results: counts, and the first tables that failed.

        Raises:
            AirflowSkipException: nothing to do.
            AirflowFailException: a retry would fail, too.
            AirflowException: a table failed, or a transient error.
        """
        try:
            return self._execute(context)
        except TaskDeferred as deferred:
            if self.deferrable:
                raise
            from airflow_gddl.triggers.in_task import run_in_task  # noqa: PLC0415 - imported when needed

            return run_in_task(self, context, deferred)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Resume after the triggerer: the run has ended, or could not be watched.

        Args:
            event: see `GddlRunTrigger`.
        """
        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return self._execute(context, event["begun"])

    def _execute(self, context: Context, begun: Mapping[str, Any] | None = None) -> Any:
        # Every parse and every task of a DAG imports this module; only a task that runs needs the rest.
        return importlib.import_module(self.execution).execute(self, context, begun)

    def on_kill(self) -> None:
        """Cancel the job of a task that was stopped in this process; the triggerer cancels the runs that it watches."""
        if self.stop is not None:
            self.stop()


class JobOperator(JobTask):
    """Base of a pipeline's tasks that load.

    Args:
        pipeline: DAG id.
        outlets: assets that Airflow shows as produced by this task. Events are emitted only through the pipeline's
            alias, for changed tables.

    Attributes:
        loaded: tables that a job was asked to load in this try.
        lineage: tables that this try has loaded, for OpenLineage; null before its job starts.
    """

    operator_extra_links = (JobLogLink(), AssetsLink())

    def __init__(self, *, pipeline: str, outlets: Sequence[Asset] = (), **kwargs: Any) -> None:
        super().__init__(outlets=[alias_of(pipeline), *outlets], **kwargs)
        self.pipeline = pipeline
        self.loaded: tuple[str, ...] = ()
        self.lineage: LoadedTables | None = None

    @property
    def job_key(self) -> str:
        """Distinguishes this task's jobs from those of other tasks of the run; the same for all tries and deferrals."""
        return str(self.task_id)

    def _execute(self, context: Context, begun: Mapping[str, Any] | None = None) -> Any:
        # Airflow emits an event for each asset in `outlets`, changed or not.
        self.outlets = [alias_of(self.pipeline)]
        return super()._execute(context, begun)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 - the provider's interface
        """Return an `OperatorLineage` of the tables that this try has loaded; called by Airflow's OpenLineage provider.

        The provider also calls it for a failed task. At the start of a task there is no lineage yet.
        """
        module = importlib.import_module("airflow_gddl.operators.lineage")
        return module.lineage_of(self.lineage, self.log)
