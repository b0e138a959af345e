"""`gddl resync`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import options, summary, surroundings
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.screen import Cell, Column, Screen
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
    """Build tables anew from their files beside the living ones, check them, and swap; readers see old or new."""
    around = surroundings.of(ctx)
    require_name(source_connection)
    asked = JobOptions(full_refresh=True, resync=True, source_connection=source_connection, wait_seconds=wait)
    done = perform(around, Request(metadata=metadata, tables=tuple(table), options=asked, as_json=json))
    if not json:
        show_checks(around.screen, done.outcome.results)
    summary.show_troubles(around.screen, done.outcome)
    raise typer.Exit(done.exit_status)


def show_checks(screen: Screen, results: Sequence[JobResult]) -> None:
    """A row for each table: what the swap has changed, and how far from the source both were."""
    titles = ("rows", "appeared", "vanished", "changed", "far before", "far after")
    columns = [Column("table"), Column("status"), *(Column(title, "right") for title in titles)]
    screen.table(columns, [_row(result) for result in results])


def _row(result: JobResult) -> list[Cell | str]:
    found = summary.answer(result).get("resync") or {}
    return [result.table, summary.status(result.status), *(count(found.get(name)) for name in _COUNTS)]
