"""Implementation of the maintenance operator; imported only when a task runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, get_args

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract import durations
from airflow_gddl.contract.actions import Maintain, Verify, WindowLength
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.codes import JOB_CANCELLED
from airflow_gddl.contract.connections import is_lent
from airflow_gddl.contract.errors import RetriableError, brief
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.operators.backfills import skip_in_backfill
from airflow_gddl.operators.job_runs import CLAIM_WAIT_SECONDS, TryState, begun_of, defer, failure, job_id, runner_of
from airflow_gddl.reporting.results import Logger, Reporter, airflow_errors, summary
from airflow_gddl.runners.descriptor import SubmissionContext
from airflow_gddl.runners.interface import Runner
from airflow_gddl.runners.remote import RemoteRunner, TaskKey, out_of_time_result
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.run_request import invalid_request, loaded_by, refuse_unknown
from airflow_gddl.runtime.state.documents import BY_HAND
from airflow_gddl.runtime.state.recording import StateRecorder, recorded
from airflow_gddl.stores import open_store, read_document
from airflow_gddl.triggers import ends_at
from airflow_gddl.version_compat import AirflowSkipException, connection


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of one task.

    Attributes:
        run: Airflow's run id.
        cleared: how often the finished run was cleared; each time all tables are processed again.
        shares: number of finished jobs.
        done: tables that succeeded.
    """

    run: str
    cleared: int
    shares: int = 0
    done: tuple[str, ...] = ()
    format: int = 1

    def after(self, done: Iterable[str]) -> Progress:
        """Add a finished job."""
        return replace(self, shares=self.shares + 1, done=tuple(sorted({*self.done, *done})))


@dataclass(frozen=True)
class ProgressFile:
    """Storage of the progress: one small object for each task, of its last run only.

    Raises (every method):
        RetriableError: `STORAGE_BUSY`.
    """

    lake: str
    key: TaskKey
    environ: Mapping[str, str]

    def read(self, cleared: int) -> Progress:
        """Progress of this run; empty where none is stored."""
        progress = read_document(open_store(self.environ), self._path, Progress)
        if progress is None or (progress.run, progress.cleared) != (self.key.run, cleared):
            return Progress(run=self.key.run, cleared=cleared)
        return progress

    def write(self, progress: Progress) -> None:
        open_store(self.environ).write(self._path, to_json(progress).encode())

    @property
    def _path(self) -> str:
        return join(self.lake, STATE, "airflow", "maintenance", f"{self.key.pipeline}.{self.key.task}.json")


if TYPE_CHECKING:
    from airflow_gddl.operators.jobs import GddlUpkeepOperator

TABLES_PER_JOB = 1000


def execute(operator: GddlUpkeepOperator, context: Context, resumed: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """See `GddlUpkeepOperator.execute`.

    Args:
        resumed: a `TryState` in plain data, when the task resumes after a deferral.

    Raises:
        TaskDeferred: a run elsewhere has not ended; the triggerer watches it.
    """
    skip_in_backfill(context)
    begun = begun_of(context, resumed)
    with airflow_errors():
        requested = _asked(operator, context["params"])
        _windows(context["params"])
    documents = list(_documents(operator))
    specs = {spec.table: spec for document in documents for spec in document.specs}
    wanted = {name: spec for name, spec in sorted(specs.items()) if not requested or name in requested}
    if not wanted:
        raise AirflowSkipException(f"tier {operator.tier} has none of the tables")
    with airflow_errors():
        return _Execution(operator, context, documents[0], wanted).run(begun)


def _asked(operator: GddlUpkeepOperator, params: Mapping[str, Any]) -> set[str]:
    """The tables that the run's params name; empty: all.

    Raises:
        MetadataError: `TABLE_AMBIGUOUS`; `OPTION_INVALID`: another field, or a table that no DAG loads (`loaded_by`).
    """
    refuse_unknown(params, ("tables", *(_WINDOWS if operator.action == "verify" else ())))
    tables = set(params.get("tables") or ())
    directory = configuration.compiled_metadata(operator.metadata).directory() if tables else None
    return tables if directory is None else set(loaded_by(tables, directory))


def _documents(operator: GddlUpkeepOperator) -> Iterator[PipelineDocument]:
    compiled = configuration.compiled_metadata(operator.metadata)
    for pipeline in compiled.pipelines():
        document = compiled.pipeline(pipeline.dag_id) if pipeline.tier == operator.tier else None
        if document is not None:
            yield document


@dataclass(frozen=True)
class _Execution:
    """One try: jobs of up to `TABLES_PER_JOB` of the remaining tables each.

    Attributes:
        specs: rows of the tables that the run is about.
    """

    operator: GddlUpkeepOperator
    context: Context
    document: PipelineDocument
    specs: Mapping[str, TableSpec]

    def run(self, begun: TryState | None) -> dict[str, Any]:
        roots, key = self.document.roots, self._key(self.operator.task_id)
        file = ProgressFile(roots.lake, key, configuration.environ_of(self.document))
        progress = file.read(int(getattr(self.context["dag_run"], "clear_number", 0) or 0))
        failed = {result.table: result for result in (begun.failed if begun else ())}
        ends = begun.ends if begun else ends_at(self.operator.execution_timeout)
        results: list[JobResult] = []
        while True:
            remaining = [name for name in self.specs if name not in progress.done and name not in failed]
            share = [name for name in (begun.tables if begun else remaining[:TABLES_PER_JOB]) if name in remaining]
            if not share:
                break
            if begun is None and ends is not None and time.time() >= ends:
                failed |= {name: out_of_time_result(name, "", self.operator.tier) for name in remaining}
                break
            done = self._job(share, progress.shares, begun or self._begun(share, ends, failed.values()))
            begun = None
            results += done
            failed |= {result.table: _short(result) for result in done if result.status == "failed"}
            progress = progress.after(result.table for result in done if result.status != "failed")
            file.write(progress)
        if failed:
            raise failure(list(failed.values()), len(self.specs))
        return summary(results)

    def _begun(self, tables: Sequence[str], ends: float | None, failed: Iterable[JobResult]) -> TryState:
        of_try = self.context["ti"].try_number
        return TryState(tables=tuple(tables), since=-1, of_try=of_try, ends=ends, failed=tuple(failed))

    def _job(self, tables: Sequence[str], number: int, begun: TryState) -> tuple[JobResult, ...]:
        operator, document = self.operator, self.document
        specs = tuple(self.specs[name] for name in tables)
        origin = (operator.dag_id, self.context["run_id"], operator.task_id)
        asked = Verify(**_windows(self.context["params"])) if operator.action == "verify" else Maintain()
        options = JobOptions(action=asked, wait_seconds=CLAIM_WAIT_SECONDS, origin=origin)
        run_id = f"{job_id(operator.task_id, self.context)}{number:06d}"
        job = JobSpec(
            run_id=run_id,
            roots=document.roots,
            tables=specs,
            tiers=document.tiers,
            options=options,
            access=document.access,
        )
        reached = configuration.environ_of(document)
        names = [str(spec.options.get("verify_connection") or "") for spec in specs]
        environ = {**reached, **(connections(names, operator.log) if operator.action == "verify" else {})}
        reporter = Reporter(operator.log, {spec.table: spec for spec in specs})
        runner = self._runner(number, environ, begun.since if begun.since >= 0 else None, reporter.tick)
        outcome = runner.run(job, reporter)
        operator.job_log = outcome.log
        if outcome.cancelled_by is not None:
            raise RetriableError(JOB_CANCELLED, "the job was stopped", remedy="the next try runs the remaining tables")
        if isinstance(runner, RemoteRunner):
            if outcome.waiting is not None:
                defer(operator, document, runner, outcome.waiting, replace(begun, since=runner.since or 0))
            runner.settle()
        job_results = [replace(result, action=operator.action, origin=origin) for result in outcome.results]
        known = tuple(recorded(document.roots, result, time.time(), environ) for result in job_results)
        # One object holds all verifications, so that a later one can end what an earlier one found.
        name = document.pipeline.dag_id if operator.action == "maintain" else BY_HAND
        StateRecorder(document.roots, name, document.pipeline.tables, environ=environ).take_maintenance(known)
        return known

    def _runner(self, number: int, environ: Mapping[str, str], since: int | None, tick: Callable[[], None]) -> Runner:
        key = self._key(f"{self.operator.task_id} {number}")
        submission = SubmissionContext(task=key, roots=self.document.roots, patient=False, since=since)
        return runner_of(self.operator, self.context, self.document, environ, submission, tick)

    def _key(self, task: str) -> TaskKey:
        return TaskKey(pipeline=self.operator.dag_id, run=self.context["run_id"], task=task)


_WINDOWS = ("since", "by")


def _windows(params: Mapping[str, Any]) -> dict[str, Any]:
    """Options of a verification by windows of time.

    Raises:
        MetadataError: `OPTION_INVALID`.
    """
    since, length = params.get("since"), params.get("by") or "hour"
    if not since:
        return {}
    if not durations.is_duration(str(since)) or length not in get_args(WindowLength):
        raise invalid_request(f"no windows of time: {since!r} by {length!r}", "write e.g. since: 24h and by: hour")
    return {"since_seconds": float(durations.seconds(str(since))), "window": length}


def _short(result: JobResult) -> JobResult:
    """The result without details, as kept while the task is deferred."""
    error = result.error and replace(result.error, message=brief(result.error.message, 400))
    return JobResult(table=result.table, status=result.status, error=error)


def connections(names: Iterable[str], log: Logger) -> dict[str, str]:
    """Airflow's connections to sources as environment variables for what reads these; existing variables are kept.

    Args:
        names: of connections; empty ones are left out.
    """
    variables = {}
    for name in sorted({*names} - {""}):
        variable = f"AIRFLOW_CONN_{name.upper()}"
        if name in os.environ or variable in os.environ or not is_lent(name, os.environ):
            continue
        try:
            variables[variable] = connection(name).get_uri()
        except Exception as error:  # noqa: BLE001 - backends raise any error; the job reports it
            log.warning("no connection %s: %s", name, type(error).__name__)
    return variables
