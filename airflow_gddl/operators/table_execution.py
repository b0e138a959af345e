"""Implementation of the task that shows or loads one table of a pack; imported only when a task runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.links import REPAIRS, action_page, is_page, log_page
from airflow_gddl.operators.execution import Load, decided, document_of
from airflow_gddl.operators.job_runs import SHARED, SharedLoad, TableOutcome, agreed, begun_of, failure, round_of
from airflow_gddl.reporting.results import add_events, airflow_errors, summary
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Stage, of_table
from airflow_gddl.version_compat import AirflowFailException, AirflowSkipException

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlTableOperator


def execute(operator: GddlTableOperator, context: Context, resumed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """See `GddlTableOperator`.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
        AirflowSkipException: the shared load has no result for the table or left it to another run, or the other load
            of its group loads it.
        AirflowFailException: the table failed in the shared job, which has already retried it.
        AirflowException: the table failed in its own job, or a transient error.
    """
    told = context["ti"].xcom_pull(task_ids=operator.load, key=SHARED)
    shared = decode(SharedLoad, told) if told else SharedLoad()
    if resumed is None and _shows(operator, context, shared):
        return _shown(operator, context, shared)
    with airflow_errors():
        return _again(operator, context, resumed)


def _shows(operator: GddlTableOperator, context: Context, shared: SharedLoad) -> bool:
    """Whether this try shows what the shared load brought. A task of a group whose table has no work is skipped by the
    sensor, so that its first try is that of a user who cleared it.
    """
    if operator.outcome is None and not decided(operator.sensor, context).may_load(operator.stage, operator.table):
        return False
    return shared.of_round.is_shown_by(context["ti"].try_number, round_of(context, operator))


def _shown(operator: GddlTableOperator, context: Context, shared: SharedLoad) -> dict[str, Any]:
    outcome = _outcome(operator, context)
    if outcome is None:
        work, table = decided(operator.sensor, context), operator.shown
        waits = f"{table} still waits for {', '.join(work.held[table])}. " if table in work.held else ""
        what = f"{operator.load} has no result for {table}. {waits}Clear this task to load the table alone."
        raise AirflowSkipException(what)
    if outcome.status == "left":
        what = f"{outcome.table} was left to another run, which had loaded it by then or was loading it"
        raise AirflowSkipException(f"{what}. Clear this task to load the table alone.")
    operator.job_log = shared.log
    operator.loaded = (outcome.table,)
    done = f"in the job of {operator.load}{_address(shared.log)}"
    if outcome.status == "failed":
        what = f"{outcome.table} failed {done}: {outcome.why}\nClear this task to load the table alone."
        raise AirflowFailException(what)
    operator.log.info("%s %s: %d changes, %s", outcome.table, outcome.status, outcome.changes, done)
    return {"status": outcome.status, "changes": outcome.changes}


def _address(log: str | None) -> str:
    """Of a job's log, behind what it did; empty where there is none."""
    if log is None:
        return ""
    return f": {log if is_page(log) else log_page(configuration.airflow_address(), log) or log}"


def _outcome(operator: GddlTableOperator, context: Context) -> TableOutcome | None:
    """The table's; None where the load has none: its tables with work are others, or a user marked it."""
    if operator.outcome is not None:
        return decode(TableOutcome, operator.outcome)
    of_load = context["ti"].xcom_pull(task_ids=operator.load)
    if not isinstance(of_load, list):  # a summary: the pack got groups after its load had begun
        return None
    return next((decode(TableOutcome, one) for one in of_load if one["table"] == operator.table), None)


def _again(operator: GddlTableOperator, context: Context, resumed: Mapping[str, Any] | None) -> dict[str, Any]:
    """Load only this table."""
    table = operator.shown
    document, begun = document_of(operator.metadata, operator.pipeline), begun_of(context, resumed)
    decided_work = decided(operator.sensor, context)
    if operator.outcome is None and context["ti"].try_number == 1:
        _require_cleared(table, document, decided_work)
    work = of_table(decided_work, _row(document, table))
    stage: Stage = "initial" if work.initial else "increments"
    if operator.outcome is None and stage != operator.stage:  # both tasks of a group run when a user clears the group
        other = "initial_load" if work.initial else "incremental_load"
        raise AirflowSkipException(f"{other} of this group loads {table} in this run; clear that task instead")
    if begun is None:
        document, work = agreed(operator.metadata, document, work, operator.log)
        _row(document, table)
    environ = configuration.environ_of(document)
    return _TableLoad(operator, context, document, environ, begun, work, stage).run()


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
    row = next((spec for spec in document.specs if spec.table == table), None)
    if row is None:
        what = f"{document.pipeline.dag_id} no longer loads {table}"
        raise MetadataError(
            "TABLE_UNKNOWN", what, remedy="trigger gddl_rerun with this table: another DAG may load it now"
        )
    return row


@dataclass(frozen=True)
class _TableLoad(Load):
    operator: GddlTableOperator

    def run(self) -> dict[str, Any]:
        operator, table, state = self.operator, self.operator.shown, self.state()
        loading = self.loaded(state, (table,))
        if loading.failed:
            raise failure(loading.failed, len(loading.results))
        add_events(self.context, operator.pipeline, state.take_events(table))
        for result in loading.results:
            operator.log.info("%s", what_it_did(result))
        return summary(loading.results)


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
