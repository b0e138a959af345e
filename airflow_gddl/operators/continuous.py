"""The continuous job of a pipeline, or what a run's params request in its place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_gddl import configuration
from airflow_gddl.contract.spec import Continuous, JobOptions, JobSpec
from airflow_gddl.operators.execution import LoadExecution, refuse_unknown
from airflow_gddl.operators.jobs import GddlContinuousOperator
from airflow_gddl.reporting.alerting import notify
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline, desired_state, monitor_of
from airflow_gddl.reporting.results import summary
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runners.this_machine import how_it_ended
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.continuous_job import ContinuousJobMonitor
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.run_request import from_params
from airflow_gddl.runtime.landing.tables_with_work import Question, observe
from airflow_gddl.triggers import utc_now
from airflow_gddl.version_compat import AirflowException


class ContinuousExecution(LoadExecution):
    """Runs the continuous job until it ends; a request, in ordinary jobs.

    Failures are retried after a pause: if the run failed immediately, the next run would start immediately.
    """

    retries_all = True
    operator: GddlContinuousOperator

    def run(self) -> Any:
        """
        Raises:
            AirflowException: the job died, a table fails, or it could not be started.
        """
        operator = self.operator
        self.form = from_params(dict(self.context["params"]))
        if self.form.is_some:
            self.patient = True
            return super().run()
        document = self.document(operator.pipeline)
        if document.pipeline.is_retired and self.begun is None:
            operator.log.info("the tables of %s are now loaded by other DAGs; no job is started", operator.pipeline)
            return summary([])
        return self._keep(document)

    def decide(self) -> Iterator[Loading]:
        document = self.document(self.operator.pipeline)
        question = Question(run=self.run_key, now=utc_now(), form=self.form)
        loading = self.loading(document, observe(document, question, configuration.environ_of(document)), "initial")
        yield loading
        loading.stage = "increments"
        yield loading  # which has the results of both

    def show(self, loadings: Sequence[Loading]) -> dict[str, Any]:
        loading = loadings[0]
        if loading.failed:
            raise self.failure(loading.failed, len(loading.results))
        refuse_unknown(loading)
        self.finish(loading.state, "increments")
        return summary(loading.results)

    def _keep(self, document: PipelineDocument) -> dict[str, Any]:
        operator, environ = self.operator, configuration.environ_of(document)
        kept = MonitoredPipeline(
            metadata=operator.metadata, pipeline=operator.pipeline, run=self.run_key, task=operator.task_id
        )
        reporter = self.report(document, environ)
        monitor = monitor_of(kept, document, environ, reporter, self.context, operator.log)

        def tick() -> None:
            monitor.tick()
            reporter.tick()

        runner = self.runner(document, environ, tick)
        if self.begun is None:
            monitor.standing.put(desired_state(document))
        try:
            outcome = runner.run(self._job(document, monitor.standing.folder), monitor)
        finally:
            monitor.state.flush()
        operator.job_log = outcome.log
        operator.loaded = tuple(monitor.last)
        self.taken(document, runner, outcome.waiting, [spec.table for spec in document.specs], kept)
        notify(self.context, document, operator.log, environ)
        return self._shown(monitor, outcome)

    def _shown(self, monitor: ContinuousJobMonitor, outcome: JobOutcome) -> dict[str, Any]:
        results = list(monitor.last.values())
        if outcome.cancelled_by is not None:
            raise AirflowException("the job was stopped; the next one resumes where it stopped")
        if monitor.failing:
            raise self.failure(monitor.failing, len(results))
        if outcome.exit_status:
            ended = how_it_ended(outcome.exit_status)
            raise AirflowException(f"[JOB_DIED] the job {ended}; the next try continues. See its log: {outcome.log}")
        self.finish(monitor.state, "increments")
        return summary(results)

    def _job(self, document: PipelineDocument, folder: str) -> JobSpec:
        hours = configuration.number("continuous_hours")
        is_continuous = Continuous(folder=folder, seconds=hours * 3600 if hours > 0 else None)
        origin = (self.operator.pipeline, self.run_key, self.operator.task_id)
        run_id = self.job_id(f"{self.operator.pipeline} continuous")
        return document.job(run_id, document.specs, JobOptions(continuous=is_continuous, origin=origin))
