"""The operators and their links. What they do when they run is in other modules, which are imported only then."""

from __future__ import annotations

import hashlib
import importlib
import pkgutil
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import quote

from airflow.sdk import Asset, BaseOperator, BaseOperatorLink, Context

from airflow_gddl import configuration
from airflow_gddl.assets import alias_of
from airflow_gddl.contract.codes import DAG_PAUSED
from airflow_gddl.links import is_page, log_page
from airflow_gddl.version_compat import AirflowException, AirflowFailException, TaskDeferred, is_paused

if TYPE_CHECKING:
    from airflow_gddl.reporting.results import LoadedTables


class JobLogLink(BaseOperatorLink):
    """Log of the task's last job on this package's page."""

    name = "Job log"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        """Empty when no job was started, or its log is not in the lake: see `PlatformRunLink`."""
        place = str(getattr(operator, "job_log", None) or "")
        return "" if is_page(place) else log_page(configuration.airflow_address(), place)


class PlatformRunLink(BaseOperatorLink):
    """The run of the task's last job on its platform's pages, as the operators of the platforms' providers have it."""

    name = "Platform run"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        """Empty when no job was started, or it ran on this machine."""
        place = str(getattr(operator, "job_log", None) or "")
        return place if is_page(place) else ""


class AssetsLink(BaseOperatorLink):
    """Airflow's page of the tables' assets, with events and consumers."""

    name = "Assets"

    def get_link(self, operator: BaseOperator, *, ti_key: object) -> str:  # noqa: ARG002 - Airflow's signature
        loaded: tuple[str, ...] = getattr(operator, "loaded", ())
        search = f"?name_pattern={quote(loaded[0])}" if len(loaded) == 1 else ""
        return f"{configuration.airflow_address()}/assets{search}"


class JobTask(BaseOperator):
    """Base of the tasks that run jobs; `execution` names the `Execution` that a task's tries are.

    Args:
        metadata: folder or `s3://` URL.
        runner: name of the runner; None: the one that the metadata names.
        deferrable: wait in the triggerer for a job that runs elsewhere; None: as `[gddl] deferrable` says.

    Attributes:
        job_log: where the log of the last job is; null before, and when there is none.
        stop: cancels the run elsewhere that this try started; null when there is none.
    """

    execution: ClassVar[str]
    operator_extra_links: Collection[BaseOperatorLink] = (JobLogLink(), PlatformRunLink())

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
            from airflow_gddl.triggers import run_in_task  # noqa: PLC0415 - imported when needed

            return run_in_task(self, context, deferred)

    def resumed(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Resume after the triggerer: the run has ended, or could not be watched.

        Args:
            event: see `GddlRunTrigger`.
        """
        if "error" in event:
            self.log.warning("the triggerer could not follow the run: %s", event["error"])
        return self._execute(context, event["begun"])

    @property
    def job_key(self) -> str:
        """Distinguishes this task's jobs from those of other tasks of the run; the same for all tries and deferrals."""
        return str(self.task_id)

    def _execute(self, context: Context, begun: Mapping[str, Any] | None = None) -> Any:
        # Every parse and every task of a DAG imports this module; only a task that runs needs the rest.
        return pkgutil.resolve_name(self.execution)(self, context, begun).execute()

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

    operator_extra_links = (JobLogLink(), PlatformRunLink(), AssetsLink())

    def __init__(self, *, pipeline: str, outlets: Sequence[Asset] = (), **kwargs: Any) -> None:
        super().__init__(outlets=[alias_of(pipeline), *outlets], **kwargs)
        self.pipeline = pipeline
        self.loaded: tuple[str, ...] = ()
        self.lineage: LoadedTables | None = None

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


class LoadOperator(JobOperator):
    """Loads its part of the sensor's work in one job, and fails at the end if a table failed.

    A retry loads only the remaining tables; a cleared task that had succeeded loads all of its tables again. The ledger
    ensures that no file is loaded twice. At the end, tables that `depends_on` held back are loaded, if they can be: by
    the load of increments, or by the other where there are none.

    Args:
        sensor: task id of the pipeline's `GddlTablesSensor`.
        by_table: an instance shows each table: the last try succeeds though tables failed, and the result is a
            `TableOutcome` in plain data for each table, instead of counts. `mapped`: instances of the task of
            `MAPPED_TASKS`; `group`: tasks of this one's id in the groups of the tables.
    """

    stage: ClassVar[Literal["initial", "increments"]]
    execution = "airflow_gddl.operators.pipeline_loads:StageLoad"

    def __init__(
        self, *, sensor: str = "landed", by_table: Literal["mapped", "group"] | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.sensor = sensor
        self.by_table = by_table


class GddlInitialLoadOperator(LoadOperator):
    """Loads tables that have no replica yet, and does rebuilds; skips itself when there are none."""

    stage = "initial"
    ui_color = "#c7e0f4"


class GddlIncrementalLoadOperator(LoadOperator):
    """Brings tables that have a replica up to date."""

    stage = "increments"
    ui_color = "#e3eefa"


class GddlContinuousOperator(JobOperator):
    """Runs a continuous job until its time limit; the next run of its DAG starts a new job immediately.

    Rows that are added, changed or removed reach the job while it runs. When the task is stopped, the job finishes its
    current batch. A run with params (the form's fields) runs only that request, in an ordinary job.
    """

    execution = "airflow_gddl.operators.continuous:ContinuousExecution"
    ui_color = "#d6ecec"


MAPPED_TASKS = {"initial": "new_table", "increments": "table"}
"""Task that is mapped over the tables of a load, by the load's stage."""


class GddlTableOperator(JobOperator):
    """Shows the outcome of one table in the pack's shared job: succeeds or fails with that table.

    When cleared or retried, it loads its table in a separate job.

    Args:
        load: task id of the shared load.
        stage: of the shared load.
        outcome: a `TableOutcome` in plain data, of a mapped task; None: that of `table` in the load's result.
        table: of a task in the table's group.
        sensor: task id of the pipeline's `GddlTablesSensor`.
    """

    execution = "airflow_gddl.operators.pipeline_loads:TableLoad"
    ui_color = "#e3eefa"

    def __init__(
        self,
        *,
        load: str,
        stage: Literal["initial", "increments"],
        outcome: Mapping[str, Any] | None = None,
        table: str = "",
        sensor: str = "landed",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.load = load
        self.stage = stage
        self.outcome = outcome
        self.table = table
        self.sensor = sensor

    @property
    def shown(self) -> str:
        """The table."""
        return self.table if self.outcome is None else str(self.outcome["table"])

    @property
    def job_key(self) -> str:
        """Instances of a mapped task load different tables."""
        return f"{self.task_id} {self.shown}"


class GddlLandedOperator(BaseOperator):
    """Shows whether the pipeline's sensor found work for one table: succeeded or skipped, by the scheduler alone.

    No worker runs it, as none runs an `EmptyOperator`; so it has no callbacks, inlets and outlets.

    Args:
        table: whose group it is in.
    """

    inherits_from_empty_operator = True
    ui_color = "#dcefe6"

    def __init__(self, *, table: str, **kwargs: Any) -> None:
        super().__init__(on_success_callback=None, on_execute_callback=None, **kwargs)
        self.table = table

    def execute(self, context: Context) -> None:
        """Nothing: `DAG.test` runs it in its process."""


Upkeep = Literal["maintain", "verify"]


class GddlUpkeepOperator(JobTask):
    """Maintains or verifies all enabled tables of a tier in jobs, and fails at the end if a table failed.

    A retry skips tables that succeeded in this run.

    Args:
        tier: tier of the tables; the run's param `tables` selects some of them.
        action: action to run on them.
    """

    execution = "airflow_gddl.operators.upkeep:UpkeepExecution"
    ui_color = "#e8e4f0"

    def __init__(self, *, tier: str, action: Upkeep, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tier = tier
        self.action: Upkeep = action


REFUSED = "refused"
"""Key of the XCom that says why `find` left tables out."""


class MetadataTask(BaseOperator):
    """Base of the tasks about the metadata itself.

    Args:
        metadata: folder or `s3://` URL.
    """

    def __init__(self, *, metadata: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.metadata = metadata


class GddlFindOperator(MetadataTask):
    """Finds the DAGs that load the run's tables: `trigger_dag_id`, and the `conf` that asks each for its own."""

    ui_color = "#e8e4f0"

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Sorted by DAG id; never empty. Tables that no DAG loads are left to `GddlRefusedOperator`.

        Raises:
            AirflowFailException: `OPTION_INVALID`: the request is invalid, or no DAG loads any of the tables;
                `DAG_PAUSED`: a run of one of the DAGs would stay queued, so that none is triggered.
        """
        from airflow_gddl.contract.errors import FatalError  # noqa: PLC0415 - as above
        from airflow_gddl.reporting.results import airflow_errors  # noqa: PLC0415 - as above
        from airflow_gddl.runtime.landing.run_request import requests_of  # noqa: PLC0415 - as above

        with airflow_errors():
            directory = configuration.compiled_metadata(self.metadata).directory()
            confs, errors = requests_of(dict(context["params"]), directory)
            if paused := [dag_id for dag_id in confs if is_paused(context.get("ti"), dag_id)]:
                what = "the run of a paused DAG stays queued; nothing was triggered"
                remedy = "unpause it, then clear this task"
                raise FatalError(DAG_PAUSED, what, where=", ".join(paused), remedy=remedy)
        for dag_id, its_conf in confs.items():
            self.log.info("%s: %s", dag_id, ", ".join(its_conf["tables"]))
        if refused := [str(error) for error in errors]:
            self.log.error("%s", "; ".join(refused))
            context["ti"].xcom_push(key=REFUSED, value=refused)
        return [{"trigger_dag_id": dag_id, "conf": its_conf} for dag_id, its_conf in confs.items()]


class GddlRefusedOperator(BaseOperator):
    """Fails where `find` left tables out, and names them: the runs of the others are triggered by then.

    Args:
        found_by: id of the task.
    """

    ui_color = "#e8e4f0"

    def __init__(self, *, found_by: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.found_by = found_by

    def execute(self, context: Context) -> None:
        """
        Raises:
            AirflowFailException: `OPTION_INVALID`, `TABLE_AMBIGUOUS`.
        """
        refused = context["ti"].xcom_pull(task_ids=self.found_by, key=REFUSED)
        if refused:
            raise AirflowFailException("; ".join(refused))


class GddlWatchOperator(MetadataTask):
    """Notifies `[gddl] alert_notifiers` when a problem of a table, row or the metadata begins, and when it ends."""

    ui_color = "#fdeacc"

    def execute(self, context: Context) -> dict[str, int]:
        """Return how many problems began, and how many ended.

        Raises:
            AirflowException: the lake or the metadata can't be read.
        """
        from airflow_gddl.operators.backfills import skip_in_backfill  # noqa: PLC0415 - imported when needed
        from airflow_gddl.reporting.alerting import watch  # noqa: PLC0415 - imported when needed
        from airflow_gddl.reporting.results import airflow_errors  # noqa: PLC0415 - imported when needed

        skip_in_backfill(context)
        serving = configuration.compiled_metadata(self.metadata)
        directory = serving.directory()
        if directory is None:
            raise AirflowException(f"the metadata can't be read: {serving.state.why}")
        with airflow_errors(final=False):
            sent = watch(context, directory, self.dag_id, self.log, configuration.environ_of(directory))
        for alert in sent:
            self.log.info("%s", alert.line)
        return {change: sum(alert.change == change for alert in sent) for change in ("began", "over")}


class GddlNewTablesOperator(MetadataTask):
    """Looks for tables without a row at sources that ask for it, or carries out what the run's params decide."""

    ui_color = "#fdeacc"

    def execute(self, context: Context) -> dict[str, list[str]]:
        """Return what is new, by its standing.

        Raises:
            AirflowException: a source, the lake or the metadata can't be read.
        """
        # Every parse imports this module; only a task that runs needs the rest.
        return dict(importlib.import_module("airflow_gddl.operators.new_tables").execute(self, context))


ALIAS = "gddl_load"
"""Asset alias of these tasks."""


class GddlLoadOperator(JobOperator):
    """Loads tables of the metadata, beside the DAGs that load them by schedule.

    The ledger keeps files from being loaded twice, and a table that another run loads is waited for.

    Tables of one DAG share a job. A table that fails does not stop the others; the task fails at the end. Events of
    changed tables' assets are sent when the task succeeds.

    Args:
        tables: names, `schema.name`; a text is split at commas and blanks.
        select, exclude: selectors of tables, `tag:finance`; see `runtime.table_directory.selected`. Without `tables`
            and `select`, the task fails.
        rebuild: make them again from their change tables.
        metadata: folder or `s3://` URL; None: as for the DAGs, from the configuration.
        runner: see `JobTask`.
    """

    execution = "airflow_gddl.operators.tables_load:TablesLoad"
    template_fields: Sequence[str] = ("tables", "select", "exclude", "metadata")
    ui_color = "#e3eefa"

    def __init__(
        self,
        *,
        tables: Sequence[str] | str = (),
        select: Sequence[str] | str = (),
        exclude: Sequence[str] | str = (),
        rebuild: bool = False,
        metadata: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(metadata=metadata or "", pipeline=ALIAS, **kwargs)
        self.tables = tables
        self.select = select
        self.exclude = exclude
        self.rebuild = rebuild

    @property
    def job_key(self) -> str:
        """Other DAGs may have a task of this name, and mapped instances load other tables."""
        what = f"{self.tables} {self.select} {self.exclude}"
        return f"{self.dag_id} {self.task_id} {hashlib.sha256(what.encode()).hexdigest()[:8]}"
