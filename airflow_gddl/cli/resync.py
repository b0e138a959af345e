"""`gddl resync`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.execution import carry_out, show_counts
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import count
from airflow_gddl.cli.verify import require_name
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_COUNTS = ("rows", "appear", "vanish", "change", "far_before", "far_after")


def resync(
    ctx: typer.Context,
    *,
    table: Annotated[
        list[str], typer.Option("--table", metavar="SCHEMA.NAME", help="The table; may be given several times.")
    ],
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    source_connection: options.SourceConnection = "",
    wait: options.Wait = 0.0,
) -> None:
    """Rebuild tables from their files, check them, and swap them in; readers see the old or the new table."""
    require_name(source_connection)
    cli = context.of(ctx).lending(source_connection)
    asked = JobOptions(full_refresh=True, resync=True, source_connection=source_connection, wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json)
    carry_out(cli, request, show_checks)


def show_checks(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show the changes of each table's swap, and the differences of both versions from the source."""
    show_counts(screen, ("rows", "appeared", "vanished", "changed", "far before", "far after"), results, _counts)


def _counts(result: JobResult) -> list[str]:
    found = summary.answer(result).get("resync") or {}
    return [count(found.get(name)) for name in _COUNTS]
