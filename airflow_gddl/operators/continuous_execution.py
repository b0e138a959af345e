"""What a continuous operator does when it runs; imported only then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.errors import GddlError
from airflow_gddl.contract.spec import Continuous, JobOptions, JobSpec
from airflow_gddl.operators.execution import Task, document_of
from airflow_gddl.operators.job_runs import begun_of
from airflow_gddl.reporting.alerting import notify
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline, alert_of, desired_state, monitor_of
from airflow_gddl.reporting.results import add_events, explained, summary
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runners.remote import RemoteRunner
from airflow_gddl.runners.this_machine import how_it_ended
from airflow_gddl.runtime.landing.continuous_job import ContinuousJobMonitor
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.run_request import RunRequestForm, from_params
from airflow_gddl.runtime.landing.tables_with_work import Question, Stage, observe
from airflow_gddl.topology.table_row import in_order
from airflow_gddl.triggers import utc_now
from airflow_gddl.version_compat import AirflowException, AirflowFailException

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlContinuousOperator

_STAGES: tuple[Stage, ...] = ("initial", "increments")


def execute(
    operator: GddlContinuousOperator, context: Context, resumed: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """See `GddlContinuousOperator`.

    Failures are retried after a pause: if the run failed immediately, the next run would start immediately.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
        AirflowException: the job died, a table fails, or it could not be started.
    """
    begun = begun_of(context, resumed)
    try:
        document = document_of(operator.metadata, operator.pipeline)
        form = from_params(dict(context["params"]))
        if document.pipeline.is_retired and begun is None and not form.is_some:
            operator.log.info("the tables of %s are now loaded by other DAGs; no job is started", operator.pipeline)
            return summary([])
        execution = _Execution(operator, context, document, configuration.environ_of(document), begun)
        return execution.load(form) if form.is_some else execution.keep()
    except GddlError as error:
        raise AirflowException(str(error)) from error


@dataclass(frozen=True)
class _Execution(Task):
    def keep(self) -> dict[str, Any]:
        """Run the continuous job until it ends."""
        reporter = self.reporter()
        kept = self._kept()
        alert = alert_of(kept, self.context, self.operator.log, self.environ)
        monitor = monitor_of(kept, self.document, self.environ, reporter, alert)

        def tick() -> None:
            monitor.tick()
            reporter.tick()

        runner = self.runner(tick=tick)
        if self.begun is None:
            monitor.standing.put(desired_state(self.document))
        job = self._job(monitor.standing.folder)
        try:
            outcome = runner.run(job, monitor)
        finally:
            monitor.state.flush()
        self.operator.job_log = outcome.log
        self.operator.loaded = tuple(monitor.last)
        if outcome.waiting is not None:
            begun = self.begun_with([spec.table for spec in self.document.specs], runner)
            self.wait(begun, runner, outcome.waiting, kept)
        if isinstance(runner, RemoteRunner):
            runner.settle()
        return self._ended(monitor, outcome)

    def load(self, form: RunRequestForm) -> dict[str, Any]:
        """Run the requested work in ordinary jobs."""
        work = observe(self.document, Question(run=self.run_key, now=utc_now(), form=form), self.environ)
        results, reporter, state = [], self.reporter(), self.state()
        for stage in _STAGES:
            request = self.request(work, stage, stage)
            loading = Loading(request, state, reporter, task=self.operator.task_id)
            if specs := loading.todo():
                loading.load(self.runner(patient=True, tick=reporter.tick), specs, request.marks)
            self.operator.job_log = loading.log or self.operator.job_log
            results += loading.results
            if loading.stopped:
                raise AirflowException("the job was stopped; the next try resumes where it stopped")
        self.operator.loaded = tuple(result.table for result in results)
        if failed := [result for result in results if result.status == "failed"]:
            raise AirflowException(explained(failed, len(results)))
        if refused := work.form.refused(self.document.pipeline.tables):
            raise AirflowFailException(str(refused))
        add_events(self.context, self.operator.pipeline, state.take_events(end=self.stage_end("increments")))
        return summary(results)

    def _ended(self, monitor: ContinuousJobMonitor, outcome: JobOutcome) -> dict[str, Any]:
        notify(self.context, self.document, self.operator.log, self.environ)
        results = list(monitor.last.values())
        counts = summary(results)
        if outcome.cancelled_by is not None:
            raise AirflowException("the job was stopped; the next one resumes where it stopped")
        if monitor.failing:
            raise AirflowException(explained(monitor.failing, len(results)))
        if outcome.exit_status:
            ended = how_it_ended(outcome.exit_status)
            raise AirflowException(f"[JOB_DIED] the job {ended}; the next try continues. See its log: {outcome.log}")
        pending = monitor.state.take_events(end=self.stage_end("increments"))
        add_events(self.context, self.operator.pipeline, pending)
        return counts

    def _kept(self) -> MonitoredPipeline:
        operator = self.operator
        return MonitoredPipeline(
            metadata=operator.metadata,
            pipeline=operator.pipeline,
            run=self.context["run_id"],
            task=operator.task_id,
        )

    def _job(self, folder: str) -> JobSpec:
        hours = configuration.number("continuous_hours")
        origin = (self.operator.pipeline, self.context["run_id"], self.operator.task_id)
        is_continuous = Continuous(folder=folder, seconds=hours * 3600 if hours > 0 else None)
        return JobSpec(
            run_id=self.job_id("continuous"),
            roots=self.document.roots,
            tables=in_order(self.document.specs),
            tiers=self.document.tiers,
            catalogs=self.document.catalogs,
            access=self.document.access,
            options=JobOptions(continuous=is_continuous, origin=origin),
        )
