"""Jobs that tasks start: the state of a try, ids, runners, the wait for a run elsewhere, and outcomes."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Literal

from airflow.sdk import BaseOperator, Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import decode, plain
from airflow_gddl.contract.codes import METADATA_OUTDATED
from airflow_gddl.contract.errors import RetriableError, brief
from airflow_gddl.contract.result import JobResult
from airflow_gddl.hooks.aws import FromAirflow
from airflow_gddl.operators.jobs import MAPPED_TASKS, JobTask, LoadOperator, PlatformRunLink
from airflow_gddl.reporting.continuous_monitor import MonitoredPipeline
from airflow_gddl.reporting.results import Logger, explained, is_final, reason
from airflow_gddl.runners.descriptor import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runners.interface import Handle, Runner, WaitPolicy
from airflow_gddl.runners.remote import RemoteRunner
from airflow_gddl.runtime.compiled.documents import PipelineDocument
from airflow_gddl.runtime.landing.load_task import Loading
from airflow_gddl.runtime.landing.tables_with_work import PipelineWork, by_rows, differing_rows
from airflow_gddl.topology.pipelines import group_of
from airflow_gddl.triggers import TIME_TO_END, GddlRunTrigger, Watch
from airflow_gddl.version_compat import AirflowException, AirflowFailException

CLAIM_WAIT_SECONDS = 90.0
"""How long a job waits for a table that another run holds."""
_SHOWN = 5


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
        what = f"the metadata on this machine is older than the metadata that the sensor used: {_named(changed_rows)}"
        raise RetriableError(METADATA_OUTDATED, what, where=metadata, remedy=remedy)
    log.warning("the metadata changed after the sensor ran; the newer rows are used: %s", _named(changed_rows))
    return document, by_rows(work, document.specs)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


@dataclass(frozen=True, kw_only=True)
class TryState:
    """State of a try, kept while the task is deferred.

    Attributes:
        tables: tables that the try started with, or those of the job that it waits for.
        since: see `RemoteRunner`.
        of_try: number of the try; some Airflow versions resume a new try with the state of the previous one.
        ends: see `Watch.ends`; counted from the first deferral of the try.
        failed: results of earlier jobs of a maintenance task's try, without details.
    """

    tables: tuple[str, ...]
    since: int
    of_try: int
    ends: float | None = None
    failed: tuple[JobResult, ...] = ()


def begun_of(context: Context, resumed: Mapping[str, Any] | None) -> TryState | None:
    """State of this try; null at its start."""
    begun = None if resumed is None else decode(TryState, resumed)
    return begun if begun is not None and begun.of_try == context["ti"].try_number else None


def job_id(of: str, context: Context) -> str:
    """Sorts by time, and differs from try to try.

    Args:
        of: distinguishes the jobs of a run.
    """
    attempt = f"{of} {context['run_id']} {context['ti'].try_number}"
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}"


def runner_of(
    operator: JobTask,
    context: Context,
    document: PipelineDocument,
    environ: Mapping[str, str],
    submission: SubmissionContext,
    tick: Callable[[], None],
) -> Runner:
    """The runner of a task's jobs; a remote one is stopped with the task.

    Args:
        tick: see `RunnerSettings`.
    """
    settings = RunnerSettings(
        command=configuration.job_command(),
        environ=environ,
        declared=document.runner_settings,
        submission=submission,
        connections=FromAirflow(),
        tick=tick,
    )
    runner = make_runner(operator.runner or document.runner, settings)
    operator.stop = None
    if isinstance(runner, RemoteRunner):
        operator.stop = runner.stop
        runner.on_run = partial(_show_run, operator, context)
    return runner


def _show_run(operator: JobTask, context: Context, handle: Handle) -> None:
    """Have the link lead to the run while it goes on; Airflow itself writes links when a process of the task ends."""
    if handle.page:
        operator.job_log = handle.page
        context["ti"].xcom_push(key=PlatformRunLink().xcom_key, value=handle.page)


def defer(
    operator: JobTask,
    document: PipelineDocument,
    runner: RemoteRunner,
    run: WaitPolicy,
    begun: TryState,
    kept: MonitoredPipeline | None = None,
) -> None:
    """Wait in the triggerer, which cancels the run at `Watch.ends`; nothing of this process is needed to resume.

    Airflow's own timeout, which fails the task without calling the trigger, is for a trigger that is lost.

    Args:
        kept: see `Watch`; such a job ends by itself at its time limit.

    Raises:
        TaskDeferred: always.
    """
    ends = begun.ends if kept is None else None
    watch = Watch(
        runner=operator.runner or document.runner,
        settings=document.runner_settings,
        lake=document.roots.lake,
        aws_conn_id=document.aws_conn_id or "",
        task=runner.attempts.key,
        run=run,
        begun=plain(begun),
        kept=None if kept is None else replace(kept, job=runner.attempts.submission(run.number).run_id),
        ends=ends,
    )
    limit = operator.execution_timeout
    if ends is not None:
        limit = timedelta(seconds=max(0.0, ends - time.time())) + TIME_TO_END
    operator.defer(trigger=GddlRunTrigger(watch=plain(watch)), method_name="resumed", timeout=limit)


_LONGEST = 1000


@dataclass(frozen=True, kw_only=True)
class Round:
    """The round of a run that a task instance belongs to: each clearing of a finished run starts a new round.

    Attributes:
        number: how often the run was cleared, as Airflow counts.
        cleared: whether this instance was cleared.
    """

    number: int = 0
    cleared: bool = False

    def is_shown_by(self, try_number: int, instance_round: Round) -> bool:
        """Whether an instance shows what the load of this round brought; otherwise it was cleared or retried, and loads
        its table.

        Args:
            try_number: of the instance.
            instance_round: round of the instance.
        """
        return try_number == 1 or (self.cleared and instance_round.number <= self.number)


@dataclass(frozen=True, kw_only=True)
class SharedLoad:
    """What a load tells the instances that show its tables, beside their outcomes.

    Attributes:
        log: of its last job; None if there is none.
        of_round: round of the load.
    """

    log: str | None = None
    of_round: Round = Round()


SHARED = "shared_load"
"""Key of the XCom that holds a load's `SharedLoad` in plain data."""


@dataclass(frozen=True, kw_only=True)
class TableOutcome:
    """A table's result, short enough for an XCom of all tables.

    Attributes:
        status: `left`: another run has loaded the table since it was listed, or loads it now.
        why: code, reason and remedy of a failure; empty otherwise.
        changes: rows written to the change table.
    """

    table: str
    status: Literal["succeeded", "skipped", "failed", "left"]
    why: str = ""
    changes: int = 0


def round_of(context: Context, operator: BaseOperator) -> Round:
    """Clearing a task instance raises its `max_tries` above the retries of its task."""
    number = getattr(context["dag_run"], "clear_number", None) or 0
    return Round(number=number, cleared=context["ti"].max_tries > (operator.retries or 0))


def is_last_try(context: Context) -> bool:
    """Whether no retry follows when this try fails."""
    return bool(context["ti"].try_number > context["ti"].max_tries)


def failure(failed: Sequence[JobResult], total: int) -> Exception:
    """What a task of `total` tables raises; it is retried unless each retry would fail with the same errors."""
    final = is_final(failed)
    error: Exception = (AirflowFailException if final else AirflowException)(explained(failed, total, final=final))
    return error


def outcomes(loading: Loading) -> list[dict[str, Any]]:
    """The outcomes of a load in plain data, sorted by table.

    Args:
        loading: done; tables of its work without a result were loaded by an earlier try.
    """
    made = {table: TableOutcome(table=table, status="succeeded") for table in loading.request.marks}
    made |= {table: TableOutcome(table=table, status="left") for table in loading.left}
    made |= {result.table: _outcome(result) for result in loading.results}
    # Without empty fields, so that an XCom of 200 tables stays small.
    return [{name: value for name, value in plain(made[table]).items() if value} for table in sorted(made)]


def _outcome(result: JobResult) -> TableOutcome:
    if result.status != "failed":
        return TableOutcome(table=result.table, status=result.status, changes=result.changes_written)
    return TableOutcome(table=result.table, status="failed", why=brief(reason(result), _LONGEST))


_ENDED = {"success", "failed", "skipped", "upstream_failed", "removed"}


def unshown(context: Context, operator: LoadOperator, failed: Sequence[JobResult]) -> list[JobResult]:
    """Failed tables that no instance of this run will show: those of rows that are newer than the run's tasks, and all
    where the load was cleared without its downstream tasks.
    """
    if not failed:
        return []
    run = str(context["run_id"])
    states = context["ti"].get_task_states(dag_id=operator.dag_id, run_ids=[run]).get(run, {})
    waiting = {task for task, state in states.items() if str(getattr(state, "value", state)) not in _ENDED}
    if operator.by_table == "mapped":
        mapped = MAPPED_TASKS[operator.stage]
        return [] if any(task == mapped or task.startswith(f"{mapped}_") for task in waiting) else list(failed)
    return [result for result in failed if f"{group_of(result.table)}.{operator.task_id}" not in waiting]
