"""What a load operator does when it runs; imported only then."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.operators.job_runs import (
    CLAIM_WAIT_SECONDS,
    SHARED,
    SharedLoad,
    TryState,
    agreed,
    begun_of,
    defer,
    failure,
    is_last_try,
    job_id,
    outcomes,
    round_of,
    runner_of,
    unshown,
)
from airflow_gddl.reporting.alerting import notify
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline
from airflow_gddl.reporting.results import SHOWN, LoadedTables, Reporter, add_events, airflow_errors, is_final, summary
from airflow_gddl.runners.descriptor import SubmissionContext
from airflow_gddl.runners.interface import Runner, WaitPolicy
from airflow_gddl.runners.remote import RemoteRunner, TaskKey, out_of_time
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import Loading, LoadRequest
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Question, Stage, observe
from airflow_gddl.runtime.state.documents import StageEnd
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.triggers import ends_at, utc_now
from airflow_gddl.version_compat import AirflowException, AirflowFailException, AirflowSkipException, AirflowTaskTimeout

if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import JobOperator, LoadOperator

Summary = dict[str, Any] | list[dict[str, Any]]
"""Result of a load task."""


def execute(operator: LoadOperator, context: Context, resumed: Mapping[str, Any] | None = None) -> Summary:
    """See `LoadOperator.execute`.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
    """
    begun = begun_of(context, resumed)
    with airflow_errors():
        document, work = document_of(operator.metadata, operator.pipeline), decided(operator.sensor, context)
        if begun is None:  # else its job has its rows already
            document, work = agreed(operator.metadata, document, work, operator.log)
        environ = configuration.environ_of(document)
        return _StageLoad(operator, context, document, environ, begun, work, operator.stage).run()


def decided(sensor: str, context: Context) -> PipelineWork:
    """The sensor's result."""
    answer = context["ti"].xcom_pull(task_ids=sensor)
    if not answer:
        raise AirflowFailException(f"{sensor} returned no result; clear it to poll again")
    return decode(PipelineWork, answer)


def document_of(metadata: str, pipeline: str) -> PipelineDocument:
    """
    Raises:
        MetadataError: `PIPELINE_UNKNOWN`.
    """
    compiled = configuration.compiled_metadata(metadata)
    document = compiled.pipeline(pipeline)
    if document is None:
        why = f": {compiled.state.why}" if compiled.state.why else ""
        remedy = "its tables may have moved to another pack, which loads them in its next run"
        what = f"the metadata has no pipeline {pipeline}{why}"
        raise MetadataError("PIPELINE_UNKNOWN", what, where=metadata, remedy=remedy)
    return document


@dataclass(frozen=True)
class Task:
    """A running task of a pipeline and its way to run jobs."""

    operator: JobOperator
    context: Context
    document: PipelineDocument
    environ: Mapping[str, str]
    begun: TryState | None

    @property
    def run_key(self) -> str:
        """Distinguishes this run from others of the pipeline, in hints, state and submissions."""
        return str(self.context["run_id"])

    def runner(self, *, patient: bool = False, tick: Callable[[], None]) -> Runner:
        """
        Args:
            patient: wait here for a run elsewhere.
            tick: see `RunnerSettings`.
        """
        operator, document = self.operator, self.document
        key = TaskKey(pipeline=operator.pipeline, run=self.run_key, task=operator.job_key)
        since = self.begun.since if self.begun else None
        submission = SubmissionContext(task=key, roots=document.roots, patient=patient, since=since)
        return runner_of(operator, self.context, document, self.environ, submission, tick)

    def state(self) -> StateRecorder:
        """What is remembered of the pipeline."""
        pipeline = self.document.pipeline
        return StateRecorder(
            self.document.roots, pipeline.dag_id, pipeline.tables, environ=self.environ, run=self.run_key
        )

    def stage_end(self, stage: Stage) -> StageEnd:
        return StageEnd(stage=stage, run=self.run_key, max_tries=self.context["ti"].max_tries)

    def reporter(self) -> Reporter:
        """Logs and emits metrics; the results that it receives become the task's lineage."""
        specs = {spec.table: spec for spec in self.document.specs}
        loaded = LoadedTables(roots=self.document.roots, specs=specs, environ=self.environ)
        self.operator.lineage = loaded
        return Reporter(self.operator.log, specs, loaded=loaded)

    def begun_with(self, tables: Sequence[str], runner: Runner) -> TryState:
        """State of this try for a deferral."""
        since = (runner.since or 0) if isinstance(runner, RemoteRunner) else 0
        ends = ends_at(self.operator.execution_timeout) if self.begun is None else self.begun.ends
        return TryState(tables=tuple(tables), since=since, of_try=self.context["ti"].try_number, ends=ends)

    def wait(self, begun: TryState, runner: Runner, run: WaitPolicy, kept: MonitoredPipeline | None = None) -> None:
        """Defer to the triggerer; see `job_runs.defer`."""
        if not isinstance(runner, RemoteRunner):
            raise TypeError(f"{type(runner).__name__} returned a run to wait for")
        operator = self.operator
        operator.log.info("run %s continues%s", run.handle.run, f": {run.handle.page}" if run.handle.page else "")
        defer(operator, self.document, runner, run, begun, kept)

    def job_id(self, part: str) -> str:
        """See `job_runs.job_id`."""
        return job_id(f"{self.operator.pipeline} {part}", self.context)

    def request(self, work: PipelineWork, stage: Stage, part: str, begun: tuple[str, ...] | None = None) -> LoadRequest:
        """
        Args:
            part: distinguishes the jobs of the task.
            begun: see `LoadRequest`.
        """
        return LoadRequest(
            document=self.document,
            work=work,
            stage=stage,
            run=self.run_key,
            job_id=self.job_id(part),
            wait_seconds=CLAIM_WAIT_SECONDS,
            begun=begun,
            max_tries=self.context["ti"].max_tries,
        )


@dataclass(frozen=True)
class Load(Task):
    """A task that loads tables.

    Attributes:
        work: the work that the sensor found.
        stage: the task's part of the work.
    """

    work: PipelineWork
    stage: Stage

    @property
    def is_last(self) -> bool:
        """Whether no later task of the run has tables to load."""
        return self.work.is_last(self.stage)

    def loaded(self, state: StateRecorder, begun: tuple[str, ...] | None) -> Loading:
        """Run the load.

        Args:
            begun: see `LoadRequest.begun`.

        Raises:
            TaskDeferred: its job runs elsewhere.
            AirflowException: its job was stopped.
        """
        operator = self.operator
        reporter = self.reporter()
        request = self.request(self.work, self.stage, operator.job_key, begun)
        loading = Loading(request, state, reporter, task=operator.task_id)
        runner = self.runner(tick=lambda: _each(reporter.tick, loading.tick))
        try:
            tables = self._load(loading, runner)
        except AirflowTaskTimeout as error:
            raise self._timed_out(loading, runner) from error
        operator.job_log = loading.log
        if loading.waiting is not None:
            self.wait(tables, runner, loading.waiting)
        if isinstance(runner, RemoteRunner):
            runner.settle()
        notify(self.context, self.document, operator.log, self.environ)
        operator.loaded = tuple(result.table for result in loading.results)
        if loading.stopped:
            raise AirflowException("the job was stopped; the next try resumes where it stopped")
        return loading

    def _timed_out(self, loading: Loading, runner: Runner) -> BaseException:
        """Record the tables that the task's time limit has stopped; returns what the task ends with."""
        operator = self.operator
        why = out_of_time(self.document.pipeline.tier, operator.execution_timeout)
        if not isinstance(runner, RemoteRunner):
            loading.interrupt(why)
        operator.job_log = loading.log
        operator.loaded = tuple(result.table for result in loading.results)
        notify(self.context, self.document, operator.log, self.environ)
        ended: BaseException = AirflowTaskTimeout(why.message)
        return ended

    def _load(self, loading: Loading, runner: Runner) -> TryState:
        """Load the tables with work; return the state to keep if the task must be deferred."""
        specs = loading.todo()
        if specs:
            loading.load(runner, specs, loading.request.marks)
        ready = not loading.stopped and loading.waiting is None
        if self.work.held and self.is_last and ready:
            self._load_held(loading, runner)
        return self.begun_with([spec.table for spec in specs], runner)

    def _load_held(self, loading: Loading, runner: Runner) -> None:
        """Retry the tables that waited for others, which may be loaded by now."""
        held = loading.request.work.held
        since = dict.fromkeys(held, loading.request.work.looked_at)
        question = Question(run=loading.request.run, now=utc_now(), since=since)
        now = observe(self.document, question, self.environ, configuration.following(self.environ))
        marks = {name: mark for name, mark in {**now.initial, **now.increments}.items() if name in held}
        for table in sorted(held.keys() - marks.keys()):
            self.operator.log.warning("%s still waits for %s", table, ", ".join(held[table]))
        late = [spec for spec in self.document.specs if spec.table in marks]
        if late:
            loading.load(runner, late, marks)


def _each(*ticks: Callable[[], None]) -> None:
    for tick in ticks:
        tick()


@dataclass(frozen=True)
class _StageLoad(Load):
    operator: LoadOperator

    def run(self) -> Summary:
        operator, context, state = self.operator, self.context, self.state()
        loading = self.loaded(state, self.begun.tables if self.begun else None)
        shown = outcomes(loading) if operator.by_table else None
        if loading.failed and (shown is None or not (is_last_try(context) or is_final(loading.failed))):
            raise failure(loading.failed, len(loading.results))
        if shown is not None:
            self._leave_to_tables(loading, len(shown))
        refused = self.work.form.refused(self.document.pipeline.tables)
        if refused is not None and self.is_last:
            raise AirflowFailException(str(refused))
        if shown is None and loading.left and not loading.results:
            raise AirflowSkipException(f"left to another run: {', '.join(sorted(loading.left))}")
        if loading.results or loading.request.marks:
            add_events(context, operator.pipeline, state.take_events(end=self.stage_end(self.stage)))
        elif not shown:
            raise AirflowSkipException(f"nothing for {operator.task_id}")
        return summary(loading.results) if shown is None else shown

    def _leave_to_tables(self, loading: Loading, total: int) -> None:
        """Tell each table's own task what the job brought; the log names the tables whose tasks will fail.

        Raises:
            AirflowException, AirflowFailException: no task of this run will show a table that failed.
        """
        operator, context = self.operator, self.context
        if unseen := unshown(context, operator, loading.failed):
            raise failure(unseen, len(loading.results))
        if failed := sorted(result.table for result in loading.failed):
            what = "%d of %d tables failed. This task succeeds all the same; their own tasks fail: %s"
            operator.log.error(what, len(failed), total, ", ".join(failed[:SHOWN]))
        shared = SharedLoad(log=loading.log, of_round=round_of(context, operator))
        context["ti"].xcom_push(key=SHARED, value=plain(shared))
