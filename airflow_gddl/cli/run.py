"""`gddl run`, once or `--continuous`, and `gddl load`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context, job, metadata, options
from airflow_gddl.cli.context import CliContext, of_outcome
from airflow_gddl.cli.job import (
    Lines,
    Request,
    ask_for_all,
    carry_out,
    job_of,
    recorder_of,
    runner_of,
    show_counts,
    show_plans,
)
from airflow_gddl.cli.screen import Screen, count
from airflow_gddl.cli.verify import require_connection
from airflow_gddl.contract.actions import Load, LoadFromSource, Plan, Rebuild, Run
from airflow_gddl.contract.errors import invalid_option
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.source_access import of_tables
from airflow_gddl.contract.spec import Continuous, DesiredState, JobOptions, TableSpec
from airflow_gddl.runners.descriptor import RUNNERS
from airflow_gddl.runners.interface import JobOutcome
from airflow_gddl.runtime.compiled.keeper import sign
from airflow_gddl.runtime.landing.continuous_job import ContinuousJobMonitor, DesiredStateKeeper

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import LoadedMetadata


def keep(cli: CliContext, request: Request) -> JobOutcome:
    """Load the request's tables until Ctrl-C or SIGTERM, which end the job after its current batch; see `perform`.

    Raises:
        GddlError: nothing was run.
    """
    loaded = metadata.read(cli, request.metadata)
    signature = sign(request.metadata, cli.environ).text
    if RUNNERS.get(loaded.runner).remote:
        remedy = "run it under Airflow, which watches remote jobs, or set GDDL_RUNNER=local"
        what = f"runner {loaded.runner} can't be followed from a terminal"
        raise invalid_option(what, remedy, "--continuous")
    tables, bad = metadata.choose(cli, loaded, request.tables or (), request.metadata)
    if not tables:
        raise metadata.none_enabled(request.metadata)
    run_id = cli.run_id()
    standing = DesiredStateKeeper(
        loaded.roots, f"by-hand-{run_id}", _Followed(cli, request, signature).desired, cli.environ
    )
    standing.put(_desired(loaded, tables))
    spec = job_of(run_id, loaded, tables, JobOptions(continuous=Continuous(folder=standing.folder)))
    recorder = recorder_of(cli, loaded)
    # One line for each turn, since a continuous job has no end for a progress bar.
    monitor = _Monitor(standing=standing, state=recorder, listener=Lines(cli.screen, as_json=request.as_json))
    try:
        cli.screen.warn("the tables are loaded until Ctrl-C", "dim")
        outcome = runner_of(cli, loaded, run_id, monitor.tick).run(spec, monitor)
    finally:
        recorder.flush()
        standing.remove()
    if outcome.exit_status in (0, 1):  # a stop signal is the regular end
        outcome = replace(outcome, cancelled_by=None)
    return replace(outcome, exit_status=of_outcome(outcome, bad_rows=bool(bad)))


def _desired(loaded: LoadedMetadata, tables: tuple[TableSpec, ...]) -> DesiredState:
    access = of_tables(loaded.access, tables)
    return DesiredState(tables=tables, tiers=loaded.tiers, catalogs=loaded.catalogs, access=access)


@dataclass
class _Followed:
    """The metadata, read again when it changed; with invalid rows the job keeps its tables."""

    cli: CliContext
    request: Request
    signature: str

    def desired(self) -> DesiredState | None:
        signature = sign(self.request.metadata, self.cli.environ).text
        if signature == self.signature:
            return None
        self.signature = signature
        loaded = metadata.read(self.cli, self.request.metadata)
        tables, bad = metadata.choose(self.cli, loaded, self.request.tables or (), self.request.metadata)
        return None if bad else _desired(loaded, tables)


class _Monitor(ContinuousJobMonitor):
    """Of a job that Airflow did not start: no other pipeline waits for its tables."""

    def on_result(self, result: JobResult) -> None:
        """Without a line for idle polls."""
        self.state.take(result)
        if result.status != "skipped":
            self.listener.on_result(result)


def run(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    full_refresh: Annotated[
        bool,
        typer.Option("--full-refresh", help="Rebuild from the change table, as the command rebuild does."),
    ] = False,
    every: options.All = False,
    yes: options.Yes = False,
    json: options.Json = False,
    dry_run: options.DryRun = False,
    wait: options.Wait = 0.0,
    continuous: Annotated[
        bool, typer.Option("--continuous", help="Keep running and load files as they land, until Ctrl-C.")
    ] = False,
) -> None:
    """Bring the tables up to date; with --continuous keep them up to date.

    Exit status: 0 success, 1 a table failed, 2 invalid metadata or arguments, 75 transient error: retry.
    """
    cli = context.of(ctx)
    if continuous:
        if full_refresh or dry_run:
            remedy = "run them one after the other"
            raise invalid_option("--continuous can't be combined with --full-refresh or --dry-run", remedy)
        kept = keep(cli, Request(metadata, table, as_json=json))
        job.show_troubles(cli, kept)
        raise typer.Exit(kept.exit_status)
    if full_refresh:
        ask_for_all(table or (), every=every, unasked=yes or dry_run)
    load: Load = Rebuild() if full_refresh else Run()
    request = Request(
        metadata,
        table,
        Plan(of=load) if dry_run else load,
        full_listing=True,
        wait=wait,
        as_json=json,
    )
    carry_out(cli, request, show_plans if dry_run else job.show_runs)


_AGAIN = "Also a table that is loaded already: rows that its source lacks are removed by the next run."


def load(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.NamedTables,
    again: Annotated[bool, typer.Option("--again", help=_AGAIN)] = False,
    source_connection: Annotated[
        str,
        typer.Option(metavar="NAME", help="Connection to the source, instead of the metadata row's."),
    ] = "",
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Read the full load of tables from their source database into their landing folders, as files of AWS DMS. The next
    run loads them. An interrupted load is resumed.

    The CDC service must have captured changes of the tables since before the load.
    """
    cli = context.of(ctx)
    check = partial(require_connection, cli, source_connection)
    request = Request(
        metadata,
        table,
        LoadFromSource(again=again, source_connection=source_connection),
        wait=wait,
        as_json=json,
        check=check,
    )
    carry_out(cli, request, show_loads)


def show_loads(screen: Screen, results: Sequence[JobResult]) -> None:
    """Rows and files of each table's full load."""
    show_counts(screen, ("rows", "files", "position of the log"), results, _load_figures)
    if any(result.status == "succeeded" for result in results):
        screen.say("The next `gddl run`, or run of the DAG, loads these files.")


def _load_figures(result: JobResult) -> list[str]:
    details = job.answer(result)
    return [count(details.get("rows")), count(details.get("files")), str(details.get("position", ""))]
