"""`gddl sweep release`: removes rows that a reload lacks, after a user's confirmation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.execution import carry_out
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.screen import Screen
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

app = typer.Typer(help="Rows that a reload lacks: release them to be removed.", no_args_is_help=True)


@app.callback()
def sweep() -> None:
    """Rows that a reload lacks: release them to be removed."""


@app.command()
def release(
    ctx: typer.Context,
    *,
    table: Annotated[
        list[str], typer.Option("--table", metavar="SCHEMA.NAME", help="The table; may be given several times.")
    ],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Remove the rows that the newest full load lacks, regardless of their share; confirms that the load is
    complete."""
    cli = context.of(ctx)
    asked = JobOptions(action="sweep_release", wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    carry_out(cli, request, show_releases)


def show_releases(screen: Screen, results: Sequence[JobResult]) -> None:
    """What was removed, and the tables where nothing was held."""
    summary.show_runs(screen, results)
    for result in results:
        if result.status == "skipped":
            screen.say(f"{result.table}: no rows are held, nothing was removed", "yellow")
