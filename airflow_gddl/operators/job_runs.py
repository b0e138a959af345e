"""Jobs that tasks start: their ids, what runs them, and what is watched of a run elsewhere."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import Context

from airflow_gddl import configuration
from airflow_gddl.contract.codec import plain
from airflow_gddl.hooks.platforms import FromAirflow
from airflow_gddl.operators.jobs import JobTask
from airflow_gddl.runtime.runners.base import Runner, WaitPolicy
from airflow_gddl.runtime.runners.registry import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runtime.runners.remote import RemoteRunner
from airflow_gddl.runtime.snapshot import PipelineDocument
from airflow_gddl.triggers.runs import TIME_TO_END, GddlRunTrigger, Watch


def job_id(of: str, context: Context) -> str:
    """Sorts by time, and differs from try to try.

    Args:
        of: distinguishes the jobs of a run.
    """
    attempt = f"{of} {context['run_id']} {context['ti'].try_number}"
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{hashlib.sha256(attempt.encode()).hexdigest()[:8]}"


def runner_of(
    operator: JobTask,
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
        own=document.runner_settings,
        submission=submission,
        connections=FromAirflow(),
        tick=tick,
    )
    runner = make_runner(operator.runner or document.runner, settings)
    operator.stop = runner.stop if isinstance(runner, RemoteRunner) else None
    return runner


def watch_of(
    operator: JobTask, document: PipelineDocument, runner: RemoteRunner, run: WaitPolicy, begun: Mapping[str, Any]
) -> Watch:
    """What the triggerer needs to follow a run.

    Args:
        begun: see `Watch`.
    """
    return Watch(
        runner=operator.runner or document.runner,
        settings=document.runner_settings,
        lake=document.roots.lake,
        aws_conn_id=document.aws_conn_id or "",
        task=runner.attempts.key,
        run=run,
        begun=begun,
    )


def defer(operator: JobTask, watch: Watch) -> None:
    """Wait in the triggerer, which cancels the run at `Watch.ends`; nothing of this process is needed to resume.

    Airflow's own timeout, which fails the task without calling the trigger, is for a trigger that is lost.

    Raises:
        TaskDeferred: always.
    """
    limit = operator.execution_timeout
    if watch.ends is not None:
        limit = timedelta(seconds=max(0.0, watch.ends - time.time())) + TIME_TO_END
    operator.defer(trigger=GddlRunTrigger(watch=plain(watch)), method_name="resumed", timeout=limit)
