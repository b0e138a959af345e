"""`gddl run`."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.continuous import keep
from airflow_gddl.cli.execution import ask_for_all, carry_out
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.plans import show_plans
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import JobOptions


def run(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    full_refresh: Annotated[
        bool,
        typer.Option("--full-refresh", metavar="", help="Rebuild from the change table, as gddl rebuild."),
    ] = False,
    every: options.All = False,
    yes: options.Yes = False,
    json: options.Json = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show the planned batches without running them.")
    ] = False,
    wait: options.Wait = 0.0,
    continuous: Annotated[
        bool, typer.Option("--continuous", metavar="", help="Keep running and load files as they land, until Ctrl-C.")
    ] = False,
) -> None:
    """Bring the tables up to date; with --continuous keep them up to date.

    Exit status: 0 success, 1 a table failed, 2 invalid metadata or arguments, 75 transient error: retry.
    """
    cli = context.of(ctx)
    names = tuple(table or ())
    if continuous:
        if full_refresh or dry_run:
            remedy = "run them one after the other"
            raise MetadataError(
                "CONTINUOUS_REFUSED", "--continuous can't be combined with --full-refresh or --dry-run", remedy=remedy
            )
        kept = keep(cli, Request(metadata=metadata, tables=names, as_json=json))
        summary.show_troubles(cli.screen, kept.outcome)
        raise typer.Exit(kept.exit_status)
    if full_refresh:
        ask_for_all(names, every=every, unasked=yes or dry_run)
    asked = JobOptions(action="plan" if dry_run else "run", full_refresh=full_refresh, full_listing=True,
                       wait_seconds=wait)  # fmt: skip
    request = Request(metadata=metadata, tables=names, options=asked, as_json=json)
    carry_out(cli, request, show_plans if dry_run else summary.show_runs)
