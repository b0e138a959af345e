"""`gddl sweep release`: rows that a reload lacks, and that wait for a person's word."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import options, summary
from airflow_gddl.cli.execution import carry_out
from airflow_gddl.cli.job import Request
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
    """Remove the rows that the newest full load lacks, whatever their share; the load is whole, you say."""
    around = surroundings.of(ctx)
    asked = JobOptions(action="sweep_release", wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    carry_out(around, request, summary.show_runs)
