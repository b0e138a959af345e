"""From a command line to a finished job: catalog, selection, order, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_gddl.cli import metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.display import display
from airflow_gddl.cli.exits import of_outcome
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import JobOptions, JobSpec, TableSpec
from airflow_gddl.runtime.runners.attempts import TaskKey
from airflow_gddl.runtime.runners.base import JobOutcome, Runner
from airflow_gddl.runtime.runners.child import nothing
from airflow_gddl.runtime.runners.registry import RunnerSettings, SubmissionContext, make_runner
from airflow_gddl.runtime.runners.remote import RemoteRunner
from airflow_gddl.runtime.state.documents import BY_HAND
from airflow_gddl.runtime.state.recording import StateRecorder

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog


@dataclass(frozen=True, kw_only=True)
class Request:
    """What the command line asked for. `tables` empty: all that are enabled."""

    metadata: str
    tables: tuple[str, ...] = ()
    options: JobOptions = field(default_factory=JobOptions)
    as_json: bool = False


@dataclass(frozen=True, kw_only=True)
class Done:
    """A job that ended, and the command's exit status after it."""

    outcome: JobOutcome
    exit_status: int


def perform(surroundings: CliContext, request: Request) -> Done:
    """Run the request's tables; bad rows are reported and stop nobody else.

    Raises:
        GddlError: nothing was run, and why.
    """
    catalog = metadata.read(surroundings, request.metadata)
    tables, bad = metadata.choose(surroundings, catalog, request.tables, request.metadata)
    if not tables and not bad:
        raise MetadataError("NO_TABLES", "no enabled table in the metadata", where=request.metadata, remedy="add a row")
    outcome = _run(surroundings, catalog, tables, request) if tables else JobOutcome(results=(), exit_status=0)
    return Done(outcome=outcome, exit_status=of_outcome(outcome, bad_rows=bool(bad)))


def _run(surroundings: CliContext, catalog: Catalog, tables: tuple[TableSpec, ...], request: Request) -> JobOutcome:
    spec = JobSpec(
        run_id=surroundings.run_id(),
        roots=catalog.roots,
        tables=tables,
        tiers=catalog.tiers,
        options=request.options,
    )
    runner = runner_of(surroundings, catalog, spec.run_id)
    with display(surroundings.screen, len(tables), as_json=request.as_json) as listener:
        outcome = runner.run(spec, listener)
    if isinstance(runner, RemoteRunner):
        runner.settle()
    if request.options.action in ("run", "errors_replay"):
        # Where nothing was kept by hand yet, runs of before are read too: what there is must tell of all tables.
        known = tuple(row.table for row in catalog.tables)
        recorder = StateRecorder(
            catalog.roots, BY_HAND, known, lambda: surroundings.now().timestamp(), surroundings.environ
        )
        for result in outcome.results:
            recorder.take(result, whole=request.options.action == "run")
        recorder.flush()
    return outcome


def runner_of(surroundings: CliContext, catalog: Catalog, run_id: str, tick: Callable[[], None] = nothing) -> Runner:
    """
    Raises:
        GddlError: as `make_runner`.
    """
    settings = RunnerSettings(
        command=surroundings.job_command,
        environ=surroundings.environ,
        own=catalog.runners.get(catalog.runner, {}),
        submission=SubmissionContext(task=TaskKey(pipeline="command", run=run_id, task="run"), roots=catalog.roots),
        tick=tick,
    )
    return make_runner(catalog.runner, settings)
