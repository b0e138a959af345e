"""What all tasks share that have tables loaded by jobs."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import Asset, BaseOperator, Context

from airflow_gddl.assets import alias_of
from airflow_gddl.links.jobs import AssetsLink, JobLogLink

if TYPE_CHECKING:
    from airflow_gddl.reporting.loaded import LoadedTables


class JobOperator(BaseOperator):
    """A task of a pipeline that runs jobs; what it does is in a module of its own, `execution`.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        runner: name of the runner; null: the one that the metadata names.
        outlets: assets that Airflow shows as produced by this task. Events come by the pipeline's alias alone, of
            tables that changed.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        loaded: tables that a job was asked to load in this try.
        lineage: what this try has loaded, for OpenLineage; null before its job begins.
        stop: cancels the run elsewhere that this try started; null when there is none.
    """

    execution: ClassVar[str]
    operator_extra_links = (JobLogLink(), AssetsLink())

    def __init__(
        self,
        *,
        metadata: str,
        pipeline: str,
        runner: str | None = None,
        outlets: Sequence[Asset] = (),
        **kwargs: Any,
    ) -> None:
        super().__init__(outlets=[alias_of(pipeline), *outlets], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.runner = runner
        self.job_log: str | None = None
        self.loaded: tuple[str, ...] = ()
        self.lineage: LoadedTables | None = None
        self.stop: Callable[[], None] | None = None

    @property
    def job_key(self) -> str:
        """Tells the jobs of this task apart from those of other tasks of the run, tries and defers alike."""
        return str(self.task_id)

    def execute(self, context: Context) -> Any:
        """A summary of the load: counts, and the first tables that failed.

        Raises:
            AirflowSkipException: nothing to do.
            AirflowFailException: trying again would fail again.
            AirflowException: a table failed, or a passing fault.
        """
        return self._execute(context)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Back from the triggerer: the run that it watched has ended, or it could not tell.

        Args:
            event: see `GddlRunTrigger`.
        """
        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return self._execute(context, event["begun"])

    def _execute(self, context: Context, begun: Mapping[str, Any] | None = None) -> Any:
        # Airflow makes an event of each asset that a task names, whether it changed or not.
        self.outlets = [alias_of(self.pipeline)]
        # Every parse and every task of a DAG imports this module; only a load that runs needs the rest.
        return importlib.import_module(self.execution).execute(self, context, begun)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:  # noqa: ARG002 - the provider's interface
        """An `OperatorLineage` of the tables that this try has loaded; called by Airflow's OpenLineage provider alone.

        The provider calls it for a task that failed, too. At the start of a task there is nothing to say yet.
        """
        module = importlib.import_module("airflow_gddl.operators.lineage")
        return module.lineage_of(self.lineage, self.log)

    def on_kill(self) -> None:
        """The task was stopped while it was in this process; what the triggerer watches, it cancels itself."""
        if self.stop is not None:
            self.stop()
