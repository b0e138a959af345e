"""One load task: its tables, jobs and results. No Airflow."""

from __future__ import annotations

import hashlib
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_gddl.contract.actions import Action, HandleErrors, Rebuild, Reload, Run, Verify
from airflow_gddl.contract.codes import DEPENDENCY_FAILED
from airflow_gddl.contract.layout import join, log_folder
from airflow_gddl.contract.result import ErrorInfo, JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.links import is_page
from airflow_gddl.runners.interface import Listener, ProgressEvent, Runner, WaitPolicy
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.run_request import RunRequestForm, is_by_person
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, Stage
from airflow_gddl.runtime.state.recording import StateRecorder
from airflow_gddl.runtime.state.table_runs import TableHint, extra_of

_LOG = logging.getLogger(__name__)


CLAIM_WAIT_SECONDS = 90.0
"""How long a job waits for a table that another run holds."""


@dataclass(kw_only=True)
class Loading:
    """A task's part of a run: runs its jobs, and keeps the pipeline's state.

    Attributes:
        run, task: Airflow's ids.
        job_id: first part of the jobs' run ids; sorts by time, and is unique beyond it.
        begun: tables that this try started with before it was deferred, or the one that a user cleared; null at the
            start of a task that loads what the sensor found. None of them is left to another run.
        max_tries: of the task instance, see `StageEnd`.
        results: of every finished table, in order of completion.
        log: of the last job; null when there was none or it kept none.
        stopped: whether a job was asked to stop.
        waiting: a remote run that has not ended; null when there is none.
        left: tables that another run has loaded since they were listed, or loads now.
    """

    document: PipelineDocument
    work: PipelineWork
    stage: Stage
    state: StateRecorder
    listener: Listener
    run: str
    job_id: str
    task: str = ""
    begun: tuple[str, ...] | None = None
    max_tries: int = 0
    results: list[JobResult] = field(default_factory=list)
    log: str | None = None
    stopped: bool = False
    waiting: WaitPolicy | None = None
    left: set[str] = field(default_factory=set)
    _marks: dict[str, str] = field(default_factory=dict)
    _kept: list[JobResult] = field(default_factory=list)
    _job_started: tuple[JobSpec, float] | None = None

    @property
    def marks(self) -> Mapping[str, str]:
        return self.work.marks(self.stage)

    def todo(self) -> tuple[TableSpec, ...]:
        """Tables of the work that this run has not loaded yet; all, when a finished run was cleared.

        For a resumed try: the tables that it started with. Without those that another run has loaded since they were
        listed: runs overlap, and a task may wait long for a slot of its pool.
        """
        marks, run, stage = self.marks, self.run, self.stage
        if self.begun is not None:
            return tuple(spec for spec in self.document.specs if spec.table in marks and spec.table in self.begun)
        # A retry of a finished stage is not a clearing: Airflow lost the worker between the load and its report.
        end = self.state.known.end_of(stage, run)
        if end is not None and self.max_tries > end.max_tries:
            self.state.change(lambda known: known.reopened(stage, run, marks))
        hints = self.state.known.hints
        done = {  # a cleared sensor makes another listing
            name
            for name, hint in hints.items()
            if (hint.run, hint.mark, hint.looked_at) == (run, marks.get(name), self.work.looked_at)
        }
        open_ = [spec for spec in self.document.specs if spec.table in marks and spec.table not in done]
        loaded = [
            spec.table
            for spec in open_
            if self._may_leave(spec)
            and (hint := hints.get(spec.table)) is not None
            and hint.mark == marks[spec.table]
            and hint.run not in ("", run)
        ]
        if loaded:
            self.left.update(loaded)
            _LOG.info("loaded by another run since they were listed: %s", ", ".join(loaded))
        return tuple(spec for spec in open_ if spec.table not in loaded)

    def _may_leave(self, spec: TableSpec) -> bool:
        """Whether another run may load the table in place of this one."""
        return not self.work.form.is_some and spec.table not in (*self.work.again, *(self.begun or ()))

    def load(self, runner: Runner, specs: Sequence[TableSpec], marks: Mapping[str, str]) -> None:
        """Load tables, each after its dependencies and only if these were loaded.

        Those that another run loads now are left to the next run, and so are those that depend on them; see
        `PipelineWork.elsewhere`. The sensor has left out those that it saw: two runs that begin together see none.

        Raises:
            GddlError: a job could not be started.
        """
        self._marks.update(marks)
        elsewhere: set[str] = set()
        try:
            for wave in waves(specs):
                bad = {result.table: result for result in self.failed}
                ready = [spec for spec in wave if not bad.keys() & spec.depends_on]
                for spec in wave:
                    if spec not in ready:
                        self.on_result(_left_out(spec, [bad[name] for name in sorted(bad.keys() & spec.depends_on)]))
                late = {spec.table for spec in ready if elsewhere & set(spec.depends_on) and self._may_leave(spec)}
                ready = [spec for spec in ready if spec.table not in late]
                taken = self._begin(ready) if ready and not self.stopped else frozenset()
                elsewhere |= late | taken
                ready = [spec for spec in ready if spec.table not in taken]
                if ready and not self.stopped:
                    self._job(runner, ready)
                if self.waiting is not None:
                    break
        finally:
            self.left |= elsewhere
            for table in elsewhere:
                self._marks.pop(table, None)
            self._note_end()

    def _begin(self, specs: Sequence[TableSpec]) -> frozenset[str]:
        """Report the tables as running; return those that another run loads now."""
        busy = self.state.begin((spec.table for spec in specs), leave={s.table for s in specs if self._may_leave(s)})
        if busy:
            _LOG.info("left to the next run, since another run loads them now: %s", ", ".join(sorted(busy)))
        return busy

    def tick(self) -> None:
        """Called while a job runs on this machine."""
        self.state.renew()

    def interrupt(self, why: ErrorInfo) -> None:
        """Fail the tables without a result of a job on this machine that was ended with its task.

        `load` was left by an exception; a job that was not started has no tables here.
        """
        if self._job_started is None:
            return
        job, start = self._job_started
        self._job_started = None
        self.log = join(log_folder(job.roots.lake, job.log_group), f"{job.run_id}.log")
        done, seconds = {result.table for result in self.results}, time.monotonic() - start
        for spec in job.tables:
            if spec.table not in done:
                failed = JobResult(table=spec.table, status="failed", run_id=job.run_id, seconds=seconds, error=why)
                self.on_result(replace(failed, origin=job.options.origin))
        self._note_end()

    def _note_end(self) -> None:
        if self.waiting is None:
            self.state.end()
            return
        # A remote job reports nothing while it runs; its task's timeout limits it.
        unfinished = {spec.table for spec in self.document.specs if spec.table in self._marks}
        unfinished -= {result.table for result in self.results}
        self.state.begin(sorted(unfinished), self.document.pipeline.run_timeout)

    @property
    def _airflow(self) -> tuple[str, str]:
        return self.run, self.task

    @property
    def failed(self) -> list[JobResult]:
        return [result for result in self.results if result.status == "failed"]

    def on_progress(self, event: ProgressEvent) -> None:
        self.listener.on_progress(event)

    def on_result(self, result: JobResult) -> None:
        self.results.append(result)
        self.listener.on_result(result)
        action, hint = self.work.form.action, None
        if action == "verify":  # which has no load result
            return
        whole = action not in ("replay", "dismiss")
        if whole and result.status != "failed":
            mark = "" if result.revisit else self._marks[result.table]
            hint = TableHint(mark=mark, looked_at=self.work.looked_at, run=self.run)
        event = extra_of(result) if hint is not None or action == "replay" else None
        self._kept.append(self.state.take(result, self._airflow, whole=whole, hint=hint, event=event))

    def _job(self, runner: Runner, specs: Sequence[TableSpec]) -> None:
        form = self.work.form
        options = JobOptions(
            action=action_of(form),
            # A user's run lists all folders in full, whatever their size.
            full_listing=is_by_person(self.run) or form.is_some,
            wait_seconds=CLAIM_WAIT_SECONDS,
            origin=(self.document.pipeline.dag_id, *self._airflow),
        )
        names = hashlib.sha256("\n".join(spec.table for spec in specs).encode()).hexdigest()
        job = self.document.job(f"{self.job_id}{names[:4]}", specs, options)
        self._kept = []
        self._job_started = (job, time.monotonic())
        outcome = runner.run(job, self)
        self._job_started = None
        self.log = outcome.log
        if is_page(outcome.log):
            # The URL of the job is known only now.
            for result in self._kept:
                self.state.take(result, (*self._airflow, outcome.log), whole=form.action not in ("replay", "dismiss"))
        self.stopped = outcome.cancelled_by is not None
        self.waiting = outcome.waiting


def action_of(form: RunRequestForm) -> Action:
    """What a job does for a request in Airflow."""
    match form.action:
        case "verify":
            return Verify()
        case "replay":
            return HandleErrors(mode="replay", codes=form.codes)
        case "dismiss":
            return HandleErrors(mode="dismiss", codes=form.codes, reason=form.reason)
        case "rebuild":
            return Rebuild()
        case "reload":
            return Reload(confirmed=form.confirmed, landed_since=form.start or "", landed_until=form.end or "")
    return Run()


def waves(specs: Sequence[TableSpec]) -> Iterator[list[TableSpec]]:
    """Tables in groups: each after the groups of the tables that it depends on."""
    waiting = {spec.table: spec for spec in specs}
    while waiting:
        ready = [spec for spec in waiting.values() if not any(name in waiting for name in spec.depends_on)]
        # The catalog refuses cycles; a cycle that gets here anyway must not block the load.
        ready = ready or list(waiting.values())
        for spec in ready:
            del waiting[spec.table]
        yield ready


def _left_out(spec: TableSpec, failed: Sequence[JobResult]) -> JobResult:
    names = ", ".join(result.table for result in failed)
    message = f"not loaded, because {names} failed, which it depends on. Remedy: fix that first."
    fatal = any(result.error is not None and result.error.fatal for result in failed)
    error = ErrorInfo(code=DEPENDENCY_FAILED, message=message, fatal=fatal)
    return JobResult(table=spec.table, status="failed", error=error)
