"""The loads of a pipeline's DAG, and the tasks that show or load one of its tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.codes import TABLE_UNKNOWN
from airflow_gddl.contract.errors import MetadataError, brief
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.links import REPAIRS, action_page, is_page, log_page
from airflow_gddl.operators.execution import LoadExecution, agreed, clearings, refuse_unknown
from airflow_gddl.operators.jobs import MAPPED_TASKS, GddlTableOperator, LoadOperator
from airflow_gddl.reporting.results import SHOWN, is_final, reason, summary
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Stage, of_table
from airflow_gddl.topology.pipelines import group_of
from airflow_gddl.version_compat import AirflowFailException, AirflowSkipException

_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class SharedLoad:
    """What a load tells the instances that show its tables, beside their outcomes.

    Attributes:
        log: of its last job; None if there is none.
        round: how often its run was cleared after it had finished, as Airflow counts: each time a new round starts.
        cleared: whether the load itself was cleared.
    """

    log: str | None = None
    round: int = 0
    cleared: bool = False

    def is_shown_by(self, try_number: int, round_: int) -> bool:
        """Whether an instance shows what this load brought; otherwise it was cleared or retried, and loads its table.

        Args:
            try_number: of the instance.
            round_: of the instance.
        """
        return try_number == 1 or (self.cleared and round_ <= self.round)


SHARED = "shared_load"
"""Key of the XCom that holds a load's `SharedLoad` in plain data."""


@dataclass(frozen=True, kw_only=True)
class TableOutcome:
    """A table's result, short enough for an XCom of all tables.

    Attributes:
        status: `left`: another run has loaded the table since it was listed, or loads it now.
        why: code, reason and remedy of a failure; empty otherwise.
        changes: rows written to the change table.
    """

    table: str
    status: Literal["succeeded", "skipped", "failed", "left"]
    why: str = ""
    changes: int = 0


class StageLoad(LoadExecution):
    """Loads the tables of a stage that the sensor found work for."""

    operator: LoadOperator

    def decide(self) -> Iterator[Loading]:
        operator = self.operator
        document, work = self.document(operator.pipeline), decided(operator.sensor, self.context)
        if self.begun is None:  # else its job has its rows already
            document, work = agreed(operator.metadata, document, work, operator.log)
        yield self.loading(document, work, operator.stage)

    def show(self, loadings: Sequence[Loading]) -> dict[str, Any] | list[dict[str, Any]]:
        """Return counts, or the tables' outcomes where instances show these.

        Raises:
            AirflowFailException, AirflowException: a table failed; a requested table is none of the pipeline's.
            AirflowSkipException: there was nothing to load.
        """
        (loading,), operator, ti = loadings, self.operator, self.context["ti"]
        results = loading.results
        shown = outcomes(loading) if operator.by_table else None
        is_last_try = ti.try_number > ti.max_tries
        if loading.failed and (shown is None or not (is_last_try or is_final(loading.failed))):
            raise self.failure(loading.failed, len(results))
        if shown is not None:
            self._leave_to_tables(loading, len(shown))
        if loading.work.is_last(operator.stage):
            refuse_unknown(loading)
        if shown is None and loading.left and not results:
            raise AirflowSkipException(f"left to another run: {', '.join(sorted(loading.left))}")
        if results or loading.marks:
            self.finish(loading.state, operator.stage)
        elif not shown:
            raise AirflowSkipException(f"nothing for {operator.task_id}")
        return summary(results) if shown is None else shown

    def _leave_to_tables(self, loading: Loading, total: int) -> None:
        """Tell each table's own task what the job brought; the log names the tables whose tasks will fail.

        Raises:
            AirflowException, AirflowFailException: no task of this run will show a table that failed.
        """
        operator, context = self.operator, self.context
        if unseen := unshown(context, operator, loading.failed):
            raise self.failure(unseen, len(loading.results))
        if failed := sorted(result.table for result in loading.failed):
            what = "%d of %d tables failed. This task succeeds all the same; their own tasks fail: %s"
            operator.log.error(what, len(failed), total, ", ".join(failed[:SHOWN]))
        # Clearing a task instance raises its `max_tries` above the retries of its task.
        cleared = context["ti"].max_tries > (operator.retries or 0)
        shared = SharedLoad(log=loading.log, round=clearings(context), cleared=cleared)
        context["ti"].xcom_push(key=SHARED, value=plain(shared))


def decided(sensor: str, context: Context) -> PipelineWork:
    """The sensor's result."""
    answer = context["ti"].xcom_pull(task_ids=sensor)
    if not answer:
        raise AirflowFailException(f"{sensor} returned no result; clear it to poll again")
    return decode(PipelineWork, answer)


def outcomes(loading: Loading) -> list[dict[str, Any]]:
    """The outcomes of a load in plain data, sorted by table.

    Args:
        loading: done; tables of its work without a result were loaded by an earlier try.
    """
    made = {table: TableOutcome(table=table, status="succeeded") for table in loading.marks}
    made |= {table: TableOutcome(table=table, status="left") for table in loading.left}
    made |= {result.table: _outcome(result) for result in loading.results}
    # Without empty fields, so that an XCom of 200 tables stays small.
    return [{name: value for name, value in plain(made[table]).items() if value} for table in sorted(made)]


def _outcome(result: JobResult) -> TableOutcome:
    if result.status != "failed":
        return TableOutcome(table=result.table, status=result.status, changes=result.changes_written)
    return TableOutcome(table=result.table, status="failed", why=brief(reason(result), _LONGEST))


_ENDED = {"success", "failed", "skipped", "upstream_failed", "removed"}


def unshown(context: Context, operator: LoadOperator, failed: Sequence[JobResult]) -> list[JobResult]:
    """Failed tables that no instance of this run will show: those of rows that are newer than the run's tasks, and all
    where the load was cleared without its downstream tasks.
    """
    if not failed:
        return []
    run = str(context["run_id"])
    states = context["ti"].get_task_states(dag_id=operator.dag_id, run_ids=[run]).get(run, {})
    waiting = {task for task, state in states.items() if str(getattr(state, "value", state)) not in _ENDED}
    if operator.by_table == "mapped":
        mapped = MAPPED_TASKS[operator.stage]
        return [] if any(task == mapped or task.startswith(f"{mapped}_") for task in waiting) else list(failed)
    return [result for result in failed if f"{group_of(result.table)}.{operator.task_id}" not in waiting]


class TableLoad(LoadExecution):
    """Shows what the shared load brought to one table, or loads it alone when it was cleared or retried."""

    operator: GddlTableOperator

    def execute(self) -> dict[str, Any]:
        """
        Raises:
            AirflowSkipException: the shared load has no result for the table or left it to another run, or the other
                load of its group loads it.
            AirflowFailException: the table failed in the shared job, which has already retried it.
            TaskDeferred, AirflowException: as `Execution.execute`.
        """
        told = self.context["ti"].xcom_pull(task_ids=self.operator.load, key=SHARED)
        shared = decode(SharedLoad, told) if told else SharedLoad()
        if self.begun is None and self._shows(shared):
            return self._shown(shared)
        loaded: dict[str, Any] = super().execute()
        return loaded

    @property
    def work(self) -> PipelineWork:
        return decided(self.operator.sensor, self.context)

    def _shows(self, shared: SharedLoad) -> bool:
        """Whether this try shows what the shared load brought. A task of a group whose table has no work is skipped by
        the sensor, so that its first try is that of a user who cleared it.
        """
        operator = self.operator
        if operator.outcome is None and not self.work.may_load(operator.stage, operator.table):
            return False
        return shared.is_shown_by(self.context["ti"].try_number, clearings(self.context))

    def _shown(self, shared: SharedLoad) -> dict[str, Any]:
        operator, outcome = self.operator, self._outcome()
        if outcome is None:
            held, table = self.work.held, operator.shown
            waits = f"{table} still waits for {', '.join(held[table])}. " if table in held else ""
            what = f"{operator.load} has no result for {table}. {waits}Clear this task to load the table alone."
            raise AirflowSkipException(what)
        if outcome.status == "left":
            what = f"{outcome.table} was left to another run, which had loaded it by then or was loading it"
            raise AirflowSkipException(f"{what}. Clear this task to load the table alone.")
        operator.job_log = log = shared.log
        operator.loaded = (outcome.table,)
        done = f"in the job of {operator.load}"
        if log is not None:
            done += f": {log if is_page(log) else log_page(configuration.airflow_address(), log) or log}"
        if outcome.status == "failed":
            what = f"{outcome.table} failed {done}: {outcome.why}\nClear this task to load the table alone."
            raise AirflowFailException(what)
        operator.log.info("%s %s: %d changes, %s", outcome.table, outcome.status, outcome.changes, done)
        return {"status": outcome.status, "changes": outcome.changes}

    def _outcome(self) -> TableOutcome | None:
        """The table's; None where the load has none: its tables with work are others, or a user marked it."""
        operator = self.operator
        if operator.outcome is not None:
            return decode(TableOutcome, operator.outcome)
        of_load = self.context["ti"].xcom_pull(task_ids=operator.load)
        if not isinstance(of_load, list):  # a summary: the pack got groups after its load had begun
            return None
        return next((decode(TableOutcome, one) for one in of_load if one["table"] == operator.table), None)

    def decide(self) -> Iterator[Loading]:
        operator, table = self.operator, self.operator.shown
        document, whole = self.document(operator.pipeline), self.work
        if operator.outcome is None and self.context["ti"].try_number == 1:
            _require_cleared(table, document, whole)
        work = of_table(whole, _row(document, table))
        stage: Stage = "initial" if work.initial else "increments"
        if operator.outcome is None and stage != operator.stage:  # both tasks of a group run when a user clears it
            other = "initial_load" if work.initial else "incremental_load"
            raise AirflowSkipException(f"{other} of this group loads {table} in this run; clear that task instead")
        if self.begun is None:
            document, work = agreed(operator.metadata, document, work, operator.log)
            _row(document, table)
        yield self.loading(document, work, stage, (table,))

    def show(self, loadings: Sequence[Loading]) -> Any:
        shown = super().show(loadings)
        for result in loadings[0].results:
            self.operator.log.info("%s", what_it_did(result))
        return shown


def _require_cleared(table: str, document: PipelineDocument, work: PipelineWork) -> None:
    """
    Raises:
        AirflowSkipException: nobody has cleared this task of a table without work: its row changed after the poll, so
            that the sensor could not skip it.
    """
    pipeline = document.pipeline
    if table not in pipeline.tables:
        raise AirflowSkipException(
            f"{pipeline.dag_id} no longer loads {table}: its metadata row changed after the run began"
        )
    if table not in work.groups:
        what = f"the poll of this run found no work for {table}, which had no task by then"
        raise AirflowSkipException(f"{what}. The next run loads it; clear this task to load it now.")


def _row(document: PipelineDocument, table: str) -> TableSpec:
    """
    Raises:
        MetadataError: `TABLE_UNKNOWN`.
    """
    row = document.spec_of(table)
    if row is None:
        what = f"{document.pipeline.dag_id} no longer loads {table}"
        remedy = "trigger gddl_rerun with this table: another DAG may load it now"
        raise MetadataError(TABLE_UNKNOWN, what, remedy=remedy)
    return row


def what_it_did(result: JobResult) -> str:
    """About a table that a cleared task has loaded alone, and what else its user may have meant: a line and a link for
    each, since the log's page cuts long lines.
    """
    if result.action != "run" or result.changes_written:
        return f"{result.table} was loaded again, alone: {result.files} files, {result.changes_written} changes"
    links = {action: action_page(configuration.airflow_address(), result.table, action) for action in REPAIRS}
    waiting = "" if result.in_quarantine is None else f" ({result.in_quarantine} rows and files)"
    return (
        f"{result.table} was loaded again, alone: nothing new to load, since a cleared task loads no file twice\n"
        f"To read its files again: reload, {links['reload']}\n"
        f"To make its replica again from the change table: rebuild, {links['rebuild']}\n"
        f"To process its quarantine{waiting} again: replay, {links['replay']}"
    )
