"""The course of a task that runs jobs: begin or resume, decide, agree, run, defer, show; imported only when it runs."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, ClassVar

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.codes import METADATA_OUTDATED, PIPELINE_UNKNOWN
from airflow_gddl.contract.errors import MetadataError, RetriableError
from airflow_gddl.contract.names import few
from airflow_gddl.contract.result import JobResult
from airflow_gddl.hooks.aws import FromAirflow
from airflow_gddl.operators.jobs import JobOperator, JobTask, PlatformRunLink
from airflow_gddl.reporting.alerting import notify
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline
from airflow_gddl.reporting.results import (
    LoadedTables,
    Logger,
    Reporter,
    add_events,
    airflow_errors,
    explained,
    is_final,
    summary,
)
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runners.interface import Handle, Runner, WaitPolicy
from airflow_gddl.runners.remote import RemoteRunner, TaskKey, out_of_time
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.tables_with_work import (
    PipelineWork,
    Question,
    Stage,
    by_rows,
    differing_rows,
    observe,
)
from airflow_gddl.runtime.state.documents import StageEnd
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.triggers import TIME_TO_END, GddlRunTrigger, Watch, ends_at, utc_now
from airflow_gddl.version_compat import AirflowException, AirflowFailException, AirflowTaskTimeout


@dataclass(frozen=True, kw_only=True)
class TryState:
    """State of a try, kept while the task is deferred.

    Attributes:
        tables: tables that the try started with, or those of the job that it waits for.
        since: see `RemoteRunner`.
        of_try: number of the try; some Airflow versions resume a new try with the state of the previous one.
        ends: see `Watch.ends`; counted from the first wait of the try.
        failed: results of earlier jobs of the try that failed.
    """

    tables: tuple[str, ...]
    since: int
    of_try: int
    ends: float | None = None
    failed: tuple[JobResult, ...] = ()


class Execution:
    """One try of a task that runs jobs.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Attributes:
        retries_all: every failure is retried, also one that a retry can't mend.
        patient: runs elsewhere are waited for in this process.
        begun: state of this try before the deferral; None at its start, and after the job that it waited for.
        failed: results of the try's earlier jobs that failed.
    """

    operator: JobTask
    retries_all: ClassVar[bool] = False
    patient: bool = False

    def __init__(self, operator: JobTask, context: Context, resumed: Mapping[str, Any] | None) -> None:
        begun = None if resumed is None else decode(TryState, resumed)
        self.operator, self.context = operator, context
        self.begun = begun if begun is not None and begun.of_try == context["ti"].try_number else None
        self.failed: tuple[JobResult, ...] = self.begun.failed if self.begun else ()

    @cached_property
    def ends(self) -> float | None:
        """See `Watch.ends`; counted from the first wait of the try."""
        return self.begun.ends if self.begun else ends_at(self.operator.execution_timeout)

    def execute(self) -> Any:
        """See `JobTask.execute`.

        Raises:
            TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
        """
        with airflow_errors(final=not self.retries_all):
            return self.run()

    def run(self) -> Any:
        """Decide what to do, run the jobs, and return the task's result."""
        raise NotImplementedError

    @property
    def run_key(self) -> str:
        """Distinguishes this run from others of the pipeline, in hints, state and submissions."""
        return str(self.context["run_id"])

    def key(self, document: PipelineDocument, part: str = "") -> TaskKey:
        """Whose submissions the task's jobs are.

        Args:
            part: distinguishes jobs that go on after each other.
        """
        return TaskKey(pipeline=document.pipeline.dag_id, run=self.run_key, task=f"{self.operator.job_key}{part}")

    def job_id(self, of: str) -> str:
        """Sorts by time, and differs from try to try.

        Args:
            of: distinguishes the jobs of a run.
        """
        attempt = f"{of} {self.context['run_id']} {self.context['ti'].try_number}"
        return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}"

    def runner(
        self, document: PipelineDocument, environ: Mapping[str, str], tick: Callable[[], None], part: str = ""
    ) -> Runner:
        """The runner of the task's jobs; a remote one is stopped with the task.

        Args:
            tick: see `RunnerSettings`.
            part: see `key`.
        """
        operator = self.operator
        settings = RunnerSettings(
            command=configuration.job_command(),
            environ=environ,
            declared=document.runner_settings,
            submission=SubmissionContext(
                task=self.key(document, part),
                roots=document.roots,
                patient=self.patient,
                since=self.begun.since if self.begun else None,
            ),
            connections=FromAirflow(),
            tick=tick,
        )
        runner = make_runner(operator.runner or document.runner, settings)
        operator.stop = None
        if isinstance(runner, RemoteRunner):
            operator.stop = runner.stop
            runner.on_run = self.show_run
        return runner

    def show_run(self, handle: Handle) -> None:
        """Have the link lead to the run while it goes on; Airflow writes links when a process of the task ends."""
        if handle.page:
            self.operator.job_log = handle.page
            self.context["ti"].xcom_push(key=PlatformRunLink().xcom_key, value=handle.page)

    def taken(
        self,
        document: PipelineDocument,
        runner: Runner,
        waiting: WaitPolicy | None,
        tables: Iterable[str],
        kept: MonitoredPipeline | None = None,
    ) -> None:
        """Mark a job's results as taken, or wait for it in the triggerer, which cancels the run at `Watch.ends`.

        Nothing of this process is needed to resume.

        Airflow's own timeout, which fails the task without calling the trigger, is for a trigger that is lost.

        Args:
            tables: see `TryState`.
            kept: see `Watch`; such a job ends by itself at its time limit.

        Raises:
            TaskDeferred: the job has not ended.
        """
        if waiting is None:
            if isinstance(runner, RemoteRunner):
                runner.settle()
            self.begun = None
            return
        if not isinstance(runner, RemoteRunner):
            raise TypeError(f"{type(runner).__name__} returned a run to wait for")
        operator, handle = self.operator, waiting.handle
        operator.log.info("run %s continues%s", handle.run, f": {handle.page}" if handle.page else "")
        watch, limit = self._watch(document, runner, waiting, tables, kept), operator.execution_timeout
        if watch.ends is not None:
            limit = timedelta(seconds=max(0.0, watch.ends - time.time())) + TIME_TO_END
        operator.defer(trigger=GddlRunTrigger(watch=plain(watch)), method_name="resumed", timeout=limit)

    def _watch(
        self,
        document: PipelineDocument,
        runner: RemoteRunner,
        waiting: WaitPolicy,
        tables: Iterable[str],
        kept: MonitoredPipeline | None,
    ) -> Watch:
        """See `taken`."""
        begun = TryState(
            tables=tuple(tables),
            since=runner.since or 0,
            of_try=self.context["ti"].try_number,
            ends=self.ends,
            failed=self.failed,
        )
        return Watch(
            runner=self.operator.runner or document.runner,
            settings=document.runner_settings,
            lake=document.roots.lake,
            aws_conn_id=document.aws_conn_id or "",
            task=runner.attempts.key,
            run=waiting,
            begun=plain(begun),
            kept=None if kept is None else replace(kept, job=runner.attempts.submission(waiting.number).run_id),
            ends=None if kept else self.ends,
        )

    def failure(self, failed: Sequence[JobResult], total: int) -> Exception:
        """What a task of `total` tables raises; it is retried unless each retry would fail with the same errors."""
        final = not self.retries_all and is_final(failed)
        error: Exception = (AirflowFailException if final else AirflowException)(explained(failed, total, final=final))
        return error


class LoadExecution(Execution):
    """A try that loads tables; subclasses say which in `decide`, and may override `show`."""

    operator: JobOperator

    def run(self) -> Any:
        return self.show([self.load(loading) for loading in self.decide()])

    def decide(self) -> Iterable[Loading]:
        """The loads of the try; each is decided when the one before it has ended."""
        raise NotImplementedError

    def show(self, loadings: Sequence[Loading]) -> Any:
        """Send the events of the tables, and return a summary.

        Raises:
            AirflowFailException, AirflowException: a table failed.
        """
        if self.failed:
            raise self.failure(self.failed, sum(len(loading.marks) for loading in loadings))
        for loading in loadings:
            for table in loading.marks:
                add_events(self.context, self.operator.pipeline, loading.state.take_events(table))
        return summary([result for loading in loadings for result in loading.results])

    def document(self, pipeline: str) -> PipelineDocument:
        """
        Raises:
            MetadataError: `PIPELINE_UNKNOWN`.
        """
        compiled = configuration.compiled_metadata(self.operator.metadata)
        document = compiled.pipeline(pipeline)
        if document is None:
            why = f": {compiled.state.why}" if compiled.state.why else ""
            remedy = "its tables may have moved to another pack, which loads them in its next run"
            what = f"the metadata has no pipeline {pipeline}{why}"
            raise MetadataError(PIPELINE_UNKNOWN, what, where=self.operator.metadata, remedy=remedy)
        return document

    def report(self, document: PipelineDocument, environ: Mapping[str, str]) -> Reporter:
        """Log and emit metrics of a pipeline's results; they become the task's lineage."""
        specs = {spec.table: spec for spec in document.specs}
        self.operator.lineage = LoadedTables(roots=document.roots, specs=specs, environ=environ)
        self.reporter = Reporter(self.operator.log, specs, loaded=self.operator.lineage)
        return self.reporter

    def loading(
        self, document: PipelineDocument, work: PipelineWork, stage: Stage, begun: tuple[str, ...] | None = None
    ) -> Loading:
        """
        Args:
            begun: see `Loading`; None: those of this try.
        """
        environ, pipeline = configuration.environ_of(document), document.pipeline
        return Loading(
            document=document,
            work=work,
            stage=stage,
            state=StateRecorder(document.roots, pipeline.dag_id, pipeline.tables, environ=environ, run=self.run_key),
            listener=self.report(document, environ),
            run=self.run_key,
            job_id=self.job_id(f"{pipeline.dag_id} {self.operator.job_key}"),
            task=self.operator.task_id,
            begun=self.begun.tables if self.begun and begun is None else begun,
            max_tries=self.context["ti"].max_tries,
        )

    def load(self, loading: Loading) -> Loading:
        """Run the load.

        Raises:
            TaskDeferred: its job runs elsewhere.
            AirflowException: its job was stopped.
        """
        operator, document = self.operator, loading.document

        def tick() -> None:
            self.reporter.tick()
            loading.tick()

        runner = self.runner(document, loading.state.environ, tick)
        try:
            tables = self._load(loading, runner)
        except AirflowTaskTimeout as error:
            why = out_of_time(document.pipeline.tier, operator.execution_timeout)
            if not isinstance(runner, RemoteRunner):
                loading.interrupt(why)
            self._ended(loading)
            raise AirflowTaskTimeout(why.message) from error
        operator.job_log = loading.log
        self.taken(document, runner, loading.waiting, tables)
        self._ended(loading)
        if loading.stopped:
            raise AirflowException("the job was stopped; the next try resumes where it stopped")
        self.failed += tuple(loading.failed)
        return loading

    def finish(self, state: StateRecorder, stage: Stage) -> None:
        """End the stage, and send the events of the run's tables."""
        end = StageEnd(stage=stage, run=self.run_key, max_tries=self.context["ti"].max_tries)
        add_events(self.context, self.operator.pipeline, state.take_events(end=end))

    def _ended(self, loading: Loading) -> None:
        self.operator.job_log = loading.log
        self.operator.loaded = tuple(result.table for result in loading.results)
        notify(self.context, loading.document, self.operator.log, loading.state.environ)

    def _load(self, loading: Loading, runner: Runner) -> list[str]:
        """Load the tables with work, and return their names."""
        specs, work = loading.todo(), loading.work
        if specs:
            loading.load(runner, specs, loading.marks)
        if work.held and work.is_last(loading.stage) and not loading.stopped and loading.waiting is None:
            self._load_held(loading, runner)
        return [spec.table for spec in specs]

    def _load_held(self, loading: Loading, runner: Runner) -> None:
        """Retry the tables that waited for others, which may be loaded by now."""
        document, work = loading.document, loading.work
        question = Question(run=loading.run, now=utc_now(), since=dict.fromkeys(work.held, work.looked_at))
        now = observe(document, question, loading.state.environ, configuration.following(loading.state.environ))
        marks = {name: mark for name, mark in {**now.initial, **now.increments}.items() if name in work.held}
        for table in sorted(work.held.keys() - marks.keys()):
            self.operator.log.warning("%s still waits for %s", table, ", ".join(work.held[table]))
        if late := [spec for spec in document.specs if spec.table in marks]:
            loading.load(runner, late, marks)


def refuse_unknown(loading: Loading) -> None:
    """
    Raises:
        AirflowFailException: the run's request names tables that are none of the pipeline's.
    """
    refused = loading.work.form.refused(loading.document.pipeline.tables)
    if refused is not None:
        raise AirflowFailException(str(refused))


def agreed(
    metadata: str, document: PipelineDocument, work: PipelineWork, log: Logger
) -> tuple[PipelineDocument, PipelineWork]:
    """Return the pipeline and the work for the same rows; read the metadata again if they differ.

    Args:
        metadata: folder or `s3://` URL.
        document: the pipeline as this machine has it.
        work: as decided by the sensor, possibly on another machine.

    Raises:
        RetriableError: `METADATA_OUTDATED`: this machine has older rows than the sensor had.
    """
    if not differing_rows(work, document.specs):
        return document, work
    document = configuration.compiled_metadata(metadata).renewed().pipeline(document.pipeline.dag_id) or document
    changed_rows = differing_rows(work, document.specs)
    if not changed_rows:
        return document, work
    if document.metadata_at < work.metadata_at:
        remedy = "the task is retried; if that does not help, check how metadata changes reach this machine"
        what = f"the metadata on this machine is older than the metadata that the sensor used: {few(changed_rows)}"
        raise RetriableError(METADATA_OUTDATED, what, where=metadata, remedy=remedy)
    log.warning("the metadata changed after the sensor ran; the newer rows are used: %s", few(changed_rows))
    return document, by_rows(work, document.specs)


def clearings(context: Context) -> int:
    """How often the run was cleared after it had finished."""
    return int(getattr(context["dag_run"], "clear_number", None) or 0)
