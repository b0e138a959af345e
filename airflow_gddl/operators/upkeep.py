"""The task that maintains or verifies the tables of a tier."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from airflow_gddl import configuration
from airflow_gddl.contract import durations
from airflow_gddl.contract.actions import Maintain, Verify, WindowLength
from airflow_gddl.contract.codec import to_json
from airflow_gddl.contract.codes import JOB_CANCELLED
from airflow_gddl.contract.errors import RetriableError, brief
from airflow_gddl.contract.layout import STATE, join
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.hooks.aws import fetch_named
from airflow_gddl.operators.backfills import skip_in_backfill
from airflow_gddl.operators.execution import Execution, clearings
from airflow_gddl.operators.jobs import GddlUpkeepOperator
from airflow_gddl.reporting.results import Reporter, summary
from airflow_gddl.runners.remote import TaskKey, out_of_time_result
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import CLAIM_WAIT_SECONDS
from airflow_gddl.runtime.landing.run_request import invalid_request, loaded_by, refuse_unknown
from airflow_gddl.runtime.state.documents import BY_HAND
from airflow_gddl.runtime.state.recording import StateRecorder, recorded
from airflow_gddl.stores import open_store, read_document
from airflow_gddl.version_compat import AirflowSkipException


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of one task: one small object in the lake, of its last run only.

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


TABLES_PER_JOB = 1000


class UpkeepExecution(Execution):
    """Maintains or verifies tables, in jobs of up to `TABLES_PER_JOB` of the remaining ones each."""

    operator: GddlUpkeepOperator

    def run(self) -> dict[str, Any]:
        skip_in_backfill(self.context)
        requested, action = self._requested(), self._action()
        documents = list(self._documents())
        specs = {spec.table: spec for document in documents for spec in document.specs}
        specs = {name: spec for name, spec in sorted(specs.items()) if not requested or name in requested}
        if not specs:
            raise AirflowSkipException(f"tier {self.operator.tier} has none of the tables")
        document = documents[0]
        environ = configuration.environ_of(document)
        name = f"{self.operator.dag_id}.{self.operator.task_id}.json"
        path = join(document.roots.lake, STATE, "airflow", "maintenance", name)
        progress = Progress(run=self.run_key, cleared=clearings(self.context))
        stored = read_document(open_store(environ), path, Progress)
        if stored is not None and (stored.run, stored.cleared) == (progress.run, progress.cleared):
            progress = stored
        ends, results = self.ends, list[JobResult]()
        while True:
            left_out = {*progress.done, *(result.table for result in self.failed)}
            remaining = [name for name in specs if name not in left_out]
            chosen = self.begun.tables if self.begun else remaining[:TABLES_PER_JOB]
            share = [specs[name] for name in chosen if name in remaining]
            if not share:
                break
            if self.begun is None and ends is not None and time.time() >= ends:
                self.failed += tuple(out_of_time_result(name, "", self.operator.tier) for name in remaining)
                break
            done = self._job(document, share, action, progress.shares)
            results += done
            self.failed += tuple(_short(result) for result in done if result.status == "failed")
            finished = {*progress.done, *(result.table for result in done if result.status != "failed")}
            progress = replace(progress, shares=progress.shares + 1, done=tuple(sorted(finished)))
            open_store(environ).write(path, to_json(progress).encode())
        if self.failed:
            raise self.failure(self.failed, len(specs))
        return summary(results)

    def key(self, document: PipelineDocument, part: str = "") -> TaskKey:  # noqa: ARG002 - tables of all pipelines
        operator = self.operator
        return TaskKey(pipeline=operator.dag_id, run=self.run_key, task=f"{operator.task_id}{part}")

    def _requested(self) -> set[str]:
        """The tables that the run's params name; empty: all.

        Raises:
            MetadataError: `TABLE_AMBIGUOUS`; `OPTION_INVALID`: another field, or a table that no DAG loads
                (`loaded_by`).
        """
        operator, params = self.operator, self.context["params"]
        refuse_unknown(params, ("tables", *(("since", "by") if operator.action == "verify" else ())))
        tables = set(params.get("tables") or ())
        directory = configuration.compiled_metadata(operator.metadata).directory() if tables else None
        return tables if directory is None else set(loaded_by(tables, directory))

    def _action(self) -> Maintain | Verify:
        """What the jobs do; a verification by windows of time where the params say so.

        Raises:
            MetadataError: `OPTION_INVALID`.
        """
        if self.operator.action == "maintain":
            return Maintain()
        params = self.context["params"]
        since, length = params.get("since"), params.get("by") or "hour"
        if not since:
            return Verify()
        if not durations.is_duration(str(since)) or length not in get_args(WindowLength):
            raise invalid_request(f"no windows of time: {since!r} by {length!r}", "write e.g. since: 24h and by: hour")
        windows: dict[str, Any] = {"since_seconds": float(durations.seconds(str(since))), "window": length}
        return Verify(**windows)

    def _documents(self) -> Iterator[PipelineDocument]:
        compiled = configuration.compiled_metadata(self.operator.metadata)
        for pipeline in compiled.pipelines():
            document = compiled.pipeline(pipeline.dag_id) if pipeline.tier == self.operator.tier else None
            if document is not None:
                yield document

    def _job(
        self, document: PipelineDocument, specs: Sequence[TableSpec], action: Maintain | Verify, number: int
    ) -> tuple[JobResult, ...]:
        operator, roots = self.operator, document.roots
        origin = (operator.dag_id, self.run_key, operator.task_id)
        job = JobSpec(
            run_id=f"{self.job_id(operator.task_id)}{number:06d}",
            roots=roots,
            tables=tuple(specs),
            tiers=document.tiers,
            options=JobOptions(action=action, wait_seconds=CLAIM_WAIT_SECONDS, origin=origin),
            access=document.access,
        )
        environ = configuration.environ_of(document)
        if operator.action == "verify":
            environ = {**environ, **fetch_named(str(spec.options.get("verify_connection") or "") for spec in specs)}
        reporter = Reporter(operator.log, {spec.table: spec for spec in specs})
        runner = self.runner(document, environ, reporter.tick, f" {number}")
        outcome = runner.run(job, reporter)
        operator.job_log = outcome.log
        if outcome.cancelled_by is not None:
            raise RetriableError(JOB_CANCELLED, "the job was stopped", remedy="the next try runs the remaining tables")
        self.taken(document, runner, outcome.waiting, [spec.table for spec in specs])
        job_results = [replace(result, action=operator.action, origin=origin) for result in outcome.results]
        known = tuple(recorded(roots, result, time.time(), environ) for result in job_results)
        # One object holds all verifications, so that a later one can end what an earlier one found.
        name = document.pipeline.dag_id if operator.action == "maintain" else BY_HAND
        StateRecorder(roots, name, document.pipeline.tables, environ=environ).take_maintenance(known)
        return known


def _short(result: JobResult) -> JobResult:
    """The result without details, as kept while the task is deferred."""
    error = result.error and replace(result.error, message=brief(result.error.message, 400))
    return JobResult(table=result.table, status=result.status, error=error)
