"""What a load operator does when it runs; imported only then."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.alerting import tell
from airflow_gddl.announcing import add_events
from airflow_gddl.capabilities import AirflowException, AirflowFailException, AirflowSkipException
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import GddlError, MetadataError, RetriableError
from airflow_gddl.landing.hint_book import HintBook
from airflow_gddl.landing.loading import Loading, Order
from airflow_gddl.landing.observing import Question, observe
from airflow_gddl.landing.work import Work
from airflow_gddl.operators.reporting import Reporter, explained, summary
from airflow_gddl.runners.base import Runner
from airflow_gddl.runners.registry import RunnerSettings, make_runner
from airflow_gddl.snapshot import PipelineDocument
from airflow_gddl.triggers.tables import utc_now

if TYPE_CHECKING:
    from airflow_gddl.operators.load import LoadOperator


def execute(operator: LoadOperator, context: Context) -> dict[str, Any]:
    """See `LoadOperator.execute`."""
    try:
        return _Execution(operator, context, _document(operator)).run()
    except RetriableError as error:
        raise AirflowException(str(error)) from error
    except GddlError as error:
        raise AirflowFailException(str(error)) from error


def _document(operator: LoadOperator) -> PipelineDocument:
    snapshot = configuration.snapshot(operator.metadata)
    document = snapshot.pipeline(operator.pipeline)
    if document is None:
        why = f": {snapshot.state.why}" if snapshot.state.why else ""
        remedy = "its tables may be in another pack now, which loads them with its next run"
        what = f"the metadata has no pipeline {operator.pipeline}{why}"
        raise MetadataError("PIPELINE_UNKNOWN", what, where=operator.metadata, remedy=remedy)
    return document


@dataclass(frozen=True)
class _Execution:
    operator: LoadOperator
    context: Context
    document: PipelineDocument

    def run(self) -> dict[str, Any]:
        operator, context = self.operator, self.context
        reporter = Reporter(operator.log, {spec.table: spec for spec in self.document.specs})
        book = HintBook(self.document.roots, operator.pipeline)
        loading = Loading(self._order(), book, reporter, task=operator.task_id)
        self._load(loading)
        tell(context, self.document, operator.log)
        operator.job_log = loading.log
        operator.loaded = tuple(result.table for result in loading.results)
        counts = summary(loading.results)
        context["ti"].xcom_push(key="results", value=counts)
        if loading.stopped:
            raise AirflowException("the job was told to stop; the next try goes on where it stopped")
        if loading.failed:
            raise AirflowException(explained(loading.failed, len(loading.results)))
        if not loading.results and not loading.order.marks:
            loading.book.pass_by(operator.stage, context["run_id"])
            raise AirflowSkipException(f"nothing for {operator.task_id}")
        add_events(context, operator.pipeline, loading.book.finish(operator.stage, context["run_id"]))
        return counts

    def _load(self, loading: Loading) -> None:
        specs = loading.todo()
        if specs:
            loading.load(self._runner(), specs, loading.order.marks)
        if self.operator.stage == "increments" and loading.order.work.held and not loading.stopped:
            self._load_held(loading)

    def _load_held(self, loading: Loading) -> None:
        """Once more at the tables that waited for others: these may be done by now."""
        held = loading.order.work.held
        since = dict.fromkeys(held, loading.order.work.looked_at)
        now = observe(self.document, Question(run=loading.order.run, now=utc_now(), since=since))
        marks = {name: mark for name, mark in {**now.initial, **now.increments}.items() if name in held}
        for table in sorted(held.keys() - marks.keys()):
            self.operator.log.warning("%s still waits for %s", table, ", ".join(held[table]))
        late = [spec for spec in self.document.specs if spec.table in marks]
        if late:
            loading.load(self._runner(), late, marks)

    def _order(self) -> Order:
        operator, context = self.operator, self.context
        answer = context["ti"].xcom_pull(task_ids=operator.sensor)
        if not answer:
            raise AirflowFailException(f"{operator.sensor} gave no answer; clear it to look again")
        attempt = f"{operator.pipeline} {context['run_id']} {operator.task_id} {context['ti'].try_number}"
        return Order(
            document=self.document,
            work=decode(Work, answer),
            stage=operator.stage,
            run=context["run_id"],
            job_id=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}",
            wait_seconds=configuration.number("claim_wait_seconds"),
        )

    def _runner(self) -> Runner:
        own = self.document.runner_settings
        settings = RunnerSettings(command=configuration.job_command(), environ=os.environ, own=own)
        return make_runner(self.operator.runner or self.document.runner, settings)
