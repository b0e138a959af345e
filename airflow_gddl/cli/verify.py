"""`gddl verify`."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_gddl.cli import context, exits, options, summary
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.contract.checks import CONNECTION_NAME
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.spec import JobOptions


def verify(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    settle: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", min=0, help="How long a change may take; 0: no changes are on their way."),
    ] = None,
) -> None:
    """Compare each replica with its changes, and with its source; exit status 1 when one differs."""
    require_name(source_connection)
    cli = context.of(ctx).lending(source_connection)
    asked = JobOptions(action="verify", source_connection=source_connection, settle_seconds=settle)
    done = perform(cli, Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json))
    if not json:
        summary.show_verdicts(cli.screen, done.outcome.results)
    summary.show_troubles(cli.screen, done.outcome)
    any_different = any(summary.verdict(result) == "different" for result in done.outcome.results)
    raise typer.Exit(exits.FAILED if any_different else done.exit_status)


def require_name(connection: str) -> None:
    """
    Raises:
        MetadataError: `CONNECTION_INVALID`; the value may be a URL with a password, so it is not shown.
    """
    if connection and not CONNECTION_NAME.fullmatch(connection):
        remedy = "put the URL into a variable, and pass its name, e.g. SHOP_DB"
        raise MetadataError("CONNECTION_INVALID", "not the name of a connection", remedy=remedy)
