"""The tasks that load: tables without a replica first, then increments of the others."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime
from typing import Any, ClassVar

from airflow.sdk import BaseOperator, Context

from airflow_gddl import configuration
from airflow_gddl.announcing import add_events
from airflow_gddl.assets import alias_of
from airflow_gddl.capabilities import AirflowException, AirflowFailException, AirflowSkipException
from airflow_gddl.contract.codec import decode
from airflow_gddl.contract.errors import GddlError, MetadataError, RetriableError
from airflow_gddl.landing.hint_book import HintBook
from airflow_gddl.landing.loading import Loading, Order, Stage
from airflow_gddl.landing.observing import Question, observe
from airflow_gddl.landing.work import Work
from airflow_gddl.links import AssetsLink, JobLogLink
from airflow_gddl.operators.reporting import Reporter, explained, summary
from airflow_gddl.runners.base import Runner
from airflow_gddl.runners.registry import RunnerSettings, make_runner
from airflow_gddl.snapshot import PipelineDocument
from airflow_gddl.triggers.tables import utc_now


class _LoadOperator(BaseOperator):
    """Loads its share of what the sensor found, in one job, and fails at the end if a table failed.

    A try after a failure loads only the tables that are left; a task that had succeeded and is cleared loads all of its
    tables again. The ledger sees to it that nothing is loaded twice.

    Args:
        metadata: folder or `s3://` URL.
        pipeline: DAG id.
        sensor: task id of the pipeline's `GddlTablesSensor`.
        runner: name of the runner; null: the one that the metadata names.
    """

    stage: ClassVar[Stage]
    operator_extra_links = (JobLogLink(), AssetsLink())

    def __init__(
        self, *, metadata: str, pipeline: str, sensor: str = "landed", runner: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(outlets=[alias_of(pipeline)], **kwargs)
        self.metadata = metadata
        self.pipeline = pipeline
        self.sensor = sensor
        self.runner = runner

    def execute(self, context: Context) -> dict[str, Any]:
        """A summary of the load; `results` of it is bounded.

        Raises:
            AirflowSkipException: nothing to do.
            AirflowFailException: trying again would fail again.
            AirflowException: a table failed, or a passing fault.
        """
        try:
            return self._execute(context)
        except RetriableError as error:
            raise AirflowException(str(error)) from error
        except GddlError as error:
            raise AirflowFailException(str(error)) from error

    def _execute(self, context: Context) -> dict[str, Any]:
        document = self._document()
        work = self._work(context)
        loading = Loading(
            self._order(context, document, work), HintBook(document.roots, self.pipeline), self._hearer(document)
        )
        self._load(loading, document)
        self.job_log = loading.log
        self.loaded = tuple(result.table for result in loading.results)
        counts = summary(loading.results)
        context["ti"].xcom_push(key="results", value=counts)
        if loading.stopped:
            raise AirflowException("the job was told to stop; the next try goes on where it stopped")
        if loading.failed:
            raise AirflowException(explained(loading.failed, len(loading.results)))
        if not loading.results and not loading.order.marks:
            loading.book.pass_by(self.stage, context["run_id"])
            raise AirflowSkipException(f"nothing for {self.task_id}")
        add_events(context, self.pipeline, loading.book.finish(self.stage, context["run_id"]))
        return counts

    def _load(self, loading: Loading, document: PipelineDocument) -> None:
        specs = loading.todo()
        if specs:
            loading.load(self._runner(document), specs, loading.order.marks)

    def _document(self) -> PipelineDocument:
        snapshot = configuration.snapshot(self.metadata)
        document = snapshot.pipeline(self.pipeline)
        if document is None:
            why = f": {snapshot.state.why}" if snapshot.state.why else ""
            remedy = "its tables may be in another pack now, which loads them with its next run"
            what = f"the metadata has no pipeline {self.pipeline}{why}"
            raise MetadataError("PIPELINE_UNKNOWN", what, where=self.metadata, remedy=remedy)
        return document

    def _work(self, context: Context) -> Work:
        answer = context["ti"].xcom_pull(task_ids=self.sensor)
        if not answer:
            raise AirflowFailException(f"{self.sensor} gave no answer; clear it to look again")
        return decode(Work, answer)

    def _order(self, context: Context, document: PipelineDocument, work: Work) -> Order:
        attempt = f"{self.pipeline} {context['run_id']} {self.task_id} {context['ti'].try_number}"
        return Order(
            document=document,
            work=work,
            stage=self.stage,
            run=context["run_id"],
            job_id=f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}",
            wait_seconds=configuration.number("claim_wait_seconds"),
        )

    def _hearer(self, document: PipelineDocument) -> Reporter:
        return Reporter(self.log, {spec.table: spec for spec in document.specs})

    def _runner(self, document: PipelineDocument) -> Runner:
        settings = RunnerSettings(command=configuration.job_command(), environ=os.environ, own=document.runner_settings)
        return make_runner(self.runner or document.runner, settings)


class GddlInitialLoadOperator(_LoadOperator):
    """Loads tables that have no replica yet, and does full refreshes; skips itself when there are none."""

    stage = "initial"
    ui_color = "#c7e0f4"


class GddlIncrementalLoadOperator(_LoadOperator):
    """Brings tables that have a replica up to date, at the end also those that `depends_on` held back, if it can."""

    stage = "increments"
    ui_color = "#e3eefa"

    def _load(self, loading: Loading, document: PipelineDocument) -> None:
        super()._load(loading, document)
        work = loading.order.work
        if not work.held or loading.stopped:
            return
        question = Question(run=loading.order.run, now=utc_now(), since=dict.fromkeys(work.held, work.looked_at))
        now = observe(document, question)
        marks = {name: mark for name, mark in {**now.initial, **now.increments}.items() if name in work.held}
        for table in sorted(work.held.keys() - marks.keys()):
            self.log.warning("%s still waits for %s", table, ", ".join(work.held[table]))
        late = [spec for spec in document.specs if spec.table in marks]
        if late:
            loading.load(self._runner(document), late, marks)
