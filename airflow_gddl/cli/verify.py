"""`gddl verify`."""

from __future__ import annotations

import typer

from airflow_gddl.cli import exits, options, summary, surroundings
from airflow_gddl.cli.job import Done, Request, perform
from airflow_gddl.contract.spec import JobOptions


def verify(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
) -> None:
    """Compare each replica with what its own change table gives; exit status 1 when one differs."""
    around = surroundings.of(ctx)
    asked = JobOptions(action="verify")
    done = perform(around, Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json))
    if not json:
        summary.show_verdicts(around.screen, done.outcome.results)
    summary.show_troubles(around.screen, done.outcome)
    raise typer.Exit(exits.FAILED if any_different(done) else done.exit_status)


def any_different(done: Done) -> bool:
    return any(summary.verdict(result) == "different" for result in done.outcome.results)
