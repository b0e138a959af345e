"""What an upkeep operator does when it runs; imported only then."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.connections import is_lent
from airflow_gddl.contract.errors import GddlError, RetriableError
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.hooks.platforms import FromAirflow
from airflow_gddl.operators.job_ids import job_id
from airflow_gddl.operators.reporting import Reporter, explained, summary
from airflow_gddl.runtime.runners.attempts import TaskKey
from airflow_gddl.runtime.runners.pace import PollInterval
from airflow_gddl.runtime.runners.registry import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runtime.runners.remote import RemoteRunner
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.runtime.state.recording import recorded
from airflow_gddl.version_compat import AirflowException, AirflowFailException, AirflowSkipException, connection

if TYPE_CHECKING:
    from airflow_gddl.operators.maintenance import GddlUpkeepOperator

TABLES_PER_JOB = 1000


def execute(operator: GddlUpkeepOperator, context: Context) -> dict[str, Any]:
    """See `GddlUpkeepOperator.execute`."""
    documents = list(_documents(operator))
    asked = set(context["params"].get("tables") or ())
    specs = [spec for document in documents for spec in document.specs if not asked or spec.table in asked]
    if not specs:
        raise AirflowSkipException(f"tier {operator.tier} has none of the tables")
    run_id = job_id(operator.task_id, context)
    results: list[JobResult] = []
    try:
        for start in range(0, len(specs), TABLES_PER_JOB):
            some, number = tuple(specs[start : start + TABLES_PER_JOB]), start // TABLES_PER_JOB
            share = _Share(document=documents[0], specs=some, number=number, run_id=f"{run_id}{start:06d}")
            results += _job(operator, context, share)
    except RetriableError as error:
        raise AirflowException(str(error)) from error
    except GddlError as error:
        raise AirflowFailException(str(error)) from error
    failed = [result for result in results if result.status == "failed"]
    if failed:
        raise AirflowException(explained(failed, len(results)))
    return summary(results)


def _documents(operator: GddlUpkeepOperator) -> Iterator[PipelineDocument]:
    snapshot = configuration.snapshot(operator.metadata)
    for pipeline in snapshot.pipelines():
        document = snapshot.pipeline(pipeline.dag_id) if pipeline.tier == operator.tier else None
        if document is not None:
            yield document


@dataclass(frozen=True, kw_only=True)
class _Share:
    """A part of the tables, small enough for one job; `number` counts from 0."""

    document: PipelineDocument
    specs: tuple[TableSpec, ...]
    number: int
    run_id: str


def _job(operator: GddlUpkeepOperator, context: Context, share: _Share) -> tuple[JobResult, ...]:
    document, specs = share.document, share.specs
    origin = (operator.dag_id, context["run_id"], operator.task_id)
    options = JobOptions(action=operator.action, wait_seconds=configuration.number("claim_wait_seconds"), origin=origin)
    job = JobSpec(run_id=share.run_id, roots=document.roots, tables=specs, tiers=document.tiers, options=options)
    reached = configuration.environ_of(document)
    environ = {**reached, **(_connections(operator, specs) if operator.action == "verify" else {})}
    key = TaskKey(pipeline=operator.dag_id, run=context["run_id"], task=f"{operator.task_id} {share.number}")
    settings = RunnerSettings(
        command=configuration.job_command(),
        environ=environ,
        own=document.runner_settings,
        errand=SubmissionContext(task=key, roots=document.roots),
        connections=FromAirflow(),
        pace=PollInterval.of_runs(configuration.number("run_poll_seconds")),
    )
    runner = make_runner(operator.runner or document.runner, settings)
    operator.stop = runner.stop if isinstance(runner, RemoteRunner) else None
    outcome = runner.run(job, Reporter(operator.log, {spec.table: spec for spec in specs}))
    operator.job_log = outcome.log
    if outcome.cancelled_by is not None:
        raise RetriableError("JOB_CANCELLED", "the job was told to stop", remedy="the next try begins again")
    if isinstance(runner, RemoteRunner):
        runner.settle()
    asked = [replace(result, action=operator.action, origin=origin) for result in outcome.results]
    return tuple(recorded(document.roots, result, time.time(), environ) for result in asked)


def _connections(operator: GddlUpkeepOperator, specs: Sequence[TableSpec]) -> dict[str, str]:
    """Airflow's connections to the tables' sources, as the job looks for them; those of the environment stay."""
    found = {}
    for name in sorted({str(spec.options.get("verify_connection") or "") for spec in specs} - {""}):
        variable = f"AIRFLOW_CONN_{name.upper()}"
        if name in os.environ or variable in os.environ or not is_lent(name, os.environ):
            continue
        try:
            found[variable] = connection(name).get_uri()
        except Exception as error:  # noqa: BLE001 - each store of connections has its own; the job tells what is missing
            operator.log.warning("no connection %s: %s", name, type(error).__name__)
    return found
