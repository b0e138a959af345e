"""Implementation of a table's mapped task; imported only when a task runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import TableSpec
from airflow_gddl.operators.execution import Load, decided, document_of
from airflow_gddl.operators.job_runs import TableOutcome, agreed, begun_of, failure, round_of
from airflow_gddl.reporting.results import add_events, airflow_errors, summary
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.hints import HintBook
from airflow_gddl.runtime.landing.load_task import Stage
from airflow_gddl.runtime.landing.tables_with_work import of_table
from airflow_gddl.version_compat import AirflowFailException

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlTableOperator


def execute(operator: GddlTableOperator, context: Context, resumed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """See `GddlTableOperator`.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
        AirflowFailException: the table failed in the shared job, which has already retried it.
        AirflowException: the table failed in its own job, or a transient error.
    """
    outcome = decode(TableOutcome, operator.outcome)
    if resumed is None and outcome.is_new_to(context["ti"].try_number, round_of(context, operator)):
        return _shown(operator, outcome)
    with airflow_errors():
        return _again(operator, context, outcome.table, resumed)


def _shown(operator: GddlTableOperator, outcome: TableOutcome) -> dict[str, Any]:
    operator.job_log = outcome.log
    operator.loaded = (outcome.table,)
    if outcome.status == "failed":
        raise AirflowFailException(f"{outcome.table} failed: {outcome.why}\nClear this task to load the table alone.")
    operator.log.info("%s %s: %d changes", outcome.table, outcome.status, outcome.changes)
    return {"status": outcome.status, "changes": outcome.changes}


def _again(
    operator: GddlTableOperator, context: Context, table: str, resumed: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Load only this table."""
    document, begun = document_of(operator.metadata, operator.pipeline), begun_of(context, resumed)
    work = of_table(decided(operator.sensor, context), _row(document, table))
    if begun is None:
        document, work = agreed(operator.metadata, document, work, operator.log)
        _row(document, table)
    environ = configuration.environ_of(document)
    stage: Stage = "initial" if work.initial else "increments"
    return _TableLoad(operator, context, document, environ, begun, work, stage).run()


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
        operator, table = self.operator, self.operator.outcome["table"]
        book = HintBook(self.document.roots, operator.pipeline, environ=self.environ)
        loading = self.loaded(book, (table,))
        if loading.failed:
            raise failure(loading.failed, len(loading.results))
        add_events(self.context, operator.pipeline, book.finish_table(table))
        return summary(loading.results)
