"""Runs a job for a command: catalog, selection, order, run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_gddl.cli import metadata
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.display import display
from airflow_gddl.cli.exits import of_outcome
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.source_access import of_tables
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
    """A command's request.

    Attributes:
        tables: empty: all enabled tables.
        check: raises an error where the tables can't do what is asked, before anything is run.
    """

    metadata: str
    tables: tuple[str, ...] = ()
    options: JobOptions = field(default_factory=JobOptions)
    as_json: bool = False
    check: Callable[[Catalog, tuple[TableSpec, ...]], None] | None = None


@dataclass(frozen=True, kw_only=True)
class Done:
    """A finished job, and the command's exit status."""

    outcome: JobOutcome
    exit_status: int


def perform(cli: CliContext, request: Request) -> Done:
    """Run the request's tables; invalid rows are reported and do not stop other tables.

    Raises:
        GddlError: nothing was run.
    """
    catalog = metadata.read(cli, request.metadata)
    tables, bad = metadata.choose(cli, catalog, request.tables, request.metadata)
    if not tables and not bad:
        raise MetadataError("NO_TABLES", "no enabled table in the metadata", where=request.metadata, remedy="add a row")
    if request.check is not None:
        request.check(catalog, tables)
    outcome = run_tables(cli, catalog, tables, request) if tables else JobOutcome(results=(), exit_status=0)
    return Done(outcome=outcome, exit_status=of_outcome(outcome, bad_rows=bool(bad)))


def run_tables(cli: CliContext, catalog: Catalog, tables: tuple[TableSpec, ...], request: Request) -> JobOutcome:
    """A job of these tables.

    Raises:
        GddlError: nothing was run.
    """
    spec = JobSpec(
        run_id=cli.run_id(),
        roots=catalog.roots,
        tables=tables,
        tiers=catalog.tiers,
        options=request.options,
        catalogs=catalog.catalogs,
        access=of_tables(catalog.access, tables),
    )
    with display(cli.screen, len(tables), as_json=request.as_json) as listener:
        runner = runner_of(cli, catalog, spec.run_id, listener.tick)
        outcome = runner.run(spec, listener)
    if isinstance(runner, RemoteRunner):
        runner.settle()
    if request.options.action in ("run", "errors_replay", "erase") and not request.options.dry_run:
        recorder = recorder_of(cli, catalog)
        for result in outcome.results:
            recorder.take(result, whole=request.options.action == "run")
        recorder.flush()
    elif request.options.action == "maintain" and not request.options.dry_run:
        recorder_of(cli, catalog).take_maintenance(outcome.results)
    return outcome


def recorder_of(cli: CliContext, catalog: Catalog) -> StateRecorder:
    """Recorder for runs of commands.

    Without a state of manual runs, earlier records are read, too, so that the state covers all tables.
    """
    known = tuple(row.table for row in catalog.tables)
    clock = lambda: cli.now().timestamp()  # noqa: E731 - passed as a value
    return StateRecorder(catalog.roots, BY_HAND, known, clock, cli.environ)


def runner_of(cli: CliContext, catalog: Catalog, run_id: str, tick: Callable[[], None] = nothing) -> Runner:
    """The runner that the metadata names, for this run.

    Raises:
        GddlError: as `make_runner`.
    """
    settings = RunnerSettings(
        command=cli.job_command,
        environ=cli.environ,
        own=catalog.runners.get(catalog.runner, {}),
        submission=SubmissionContext(task=TaskKey(pipeline="command", run=run_id, task="run"), roots=catalog.roots),
        tick=tick,
    )
    return make_runner(catalog.runner, settings)
