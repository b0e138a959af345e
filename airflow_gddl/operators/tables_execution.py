"""What `GddlLoadOperator` does when it runs; imported only then."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import MetadataError, RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.operators.execution import Load, document_of
from airflow_gddl.operators.job_runs import TryState, begun_of, failure
from airflow_gddl.operators.jobs import ALIAS
from airflow_gddl.reporting.results import add_events, airflow_errors, summary
from airflow_gddl.runners.interface import Runner
from airflow_gddl.runtime.landing.run_request import from_params, requested, requests_of
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, Stage, observe
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.triggers import utc_now

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlLoadOperator

_WORK = "work"
"""Key of the XCom that holds the work of a try while it is deferred."""


def execute(operator: GddlLoadOperator, context: Context, resumed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """See `GddlLoadOperator`.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
        AirflowFailException: a retry would fail, too.
        AirflowException: a table failed, or a transient error.
    """
    begun = begun_of(context, resumed)
    operator.metadata = configuration.own_metadata_place(operator.metadata)
    with airflow_errors():
        works = _decided(operator, context) if begun is None else _kept(operator, context)
        return _load(operator, context, works, begun)


def _run_key(operator: GddlLoadOperator, context: Context) -> str:
    """The DAGs of the tables have runs with the same ids."""
    return f"{operator.dag_id}@{context['run_id']}"


def _decided(operator: GddlLoadOperator, context: Context) -> dict[str, PipelineWork]:
    """The work by the DAG that loads the tables otherwise."""
    compiled = configuration.compiled_metadata(operator.metadata)
    directory = compiled.directory()
    if directory is None:
        why = compiled.state.why or "it has no tables"
        raise RetriableError("METADATA_UNREADABLE", why, where=operator.metadata, remedy="see the import errors")
    request = {"tables": requested(directory, operator.tables, operator.select, operator.exclude)}
    works = {}
    requests = requests_of({**request, "full_refresh": operator.full_refresh}, directory)
    if requests.refused:
        raise requests.refused[0]
    for dag_id, conf in requests.by_dag.items():
        document = document_of(operator.metadata, dag_id)
        environ = configuration.environ_of(document)
        question = Question(run=_run_key(operator, context), now=utc_now(), form=from_params(conf))
        work = observe(document, question, environ, configuration.following(environ))
        marks = {**work.initial, **work.increments}
        first = operator.full_refresh
        works[dag_id] = replace(work, initial=marks if first else {}, increments={} if first else marks)
    context["ti"].xcom_push(key=_WORK, value={dag_id: plain(work) for dag_id, work in works.items()})
    return works


def _kept(operator: GddlLoadOperator, context: Context) -> dict[str, PipelineWork]:
    ti = context["ti"]
    stored = ti.xcom_pull(task_ids=operator.task_id, key=_WORK, map_indexes=ti.map_index)
    if not stored:
        raise MetadataError("REQUEST_INVALID", "the work of this try was lost", remedy="clear the task")
    return {dag_id: decode(PipelineWork, work) for dag_id, work in stored.items()}


def _load(
    operator: GddlLoadOperator, context: Context, works: Mapping[str, PipelineWork], begun: TryState | None
) -> dict[str, Any]:
    """One job after the other; a resumed try continues with the job that it waited for."""
    results: list[JobResult] = list(begun.failed if begun else ())
    states: list[tuple[StateRecorder, PipelineWork]] = []
    resumed = begun
    for dag_id, work in sorted(works.items()):
        operator.pipeline = dag_id
        document = document_of(operator.metadata, dag_id)
        environ = configuration.environ_of(document)
        run, tables = _run_key(operator, context), document.pipeline.tables
        state = StateRecorder(document.roots, dag_id, tables, environ=environ, run=run)
        states.append((state, work))
        if resumed is not None and not _is_of(resumed, work):  # done before the deferral
            continue
        failed = tuple(result for result in results if result.status == "failed")
        stage: Stage = "initial" if work.initial else "increments"
        loading = _TablesLoad(operator, context, document, environ, resumed, work, stage, failed).loaded(
            state, resumed.tables if resumed else None
        )
        resumed = None
        results += loading.results
    return _ended(operator, context, results, states)


def _ended(
    operator: GddlLoadOperator,
    context: Context,
    results: Sequence[JobResult],
    states: Sequence[tuple[StateRecorder, PipelineWork]],
) -> dict[str, Any]:
    """Fails with the tables that failed; events of the others are then sent by the DAGs that load them otherwise."""
    failed = [result for result in results if result.status == "failed"]
    if failed:
        raise failure(failed, sum(len({**work.initial, **work.increments}) for _, work in states))
    operator.pipeline = ALIAS
    for state, work in states:
        for table in (*work.initial, *work.increments):
            add_events(context, ALIAS, state.take_events(table))
    return summary(results)


def _is_of(begun: TryState, work: PipelineWork) -> bool:
    return bool(set(begun.tables) & {*work.initial, *work.increments})


@dataclass(frozen=True)
class _TablesLoad(Load):
    """The load of the tables of one DAG.

    Attributes:
        failed: results of this try's earlier jobs.
    """

    operator: GddlLoadOperator
    failed: tuple[JobResult, ...] = ()

    @property
    def run_key(self) -> str:
        return _run_key(self.operator, self.context)

    def begun_with(self, tables: Iterable[str], runner: Runner) -> TryState:
        return replace(super().begun_with(tuple(tables), runner), failed=self.failed)
