"""`gddl maintain`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from airflow_gddl.cli import options, summary, surroundings
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.screen import Cell, Column, Screen
from airflow_gddl.cli.text import count
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_COUNTS = ("files_removed", "tombstones_removed", "changes_cut", "runs_removed", "leftovers_removed")


def maintain(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what there is to do, and do nothing.")] = False,
    wait: options.Wait = 0.0,
) -> None:
    """Join small files and remove what nobody needs any more; what readers see stays as it is."""
    around = surroundings.of(ctx)
    asked = JobOptions(action="maintain", dry_run=dry_run, wait_seconds=wait)
    done = perform(around, Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json))
    if not json:
        show_upkeep(around.screen, done.outcome.results)
    summary.show_troubles(around.screen, done.outcome)
    raise typer.Exit(done.exit_status)


def show_upkeep(screen: Screen, results: Sequence[JobResult]) -> None:
    """A row for each table: what was joined and what was removed."""
    titles = ("files joined", "files removed", "tombstones", "changes cut", "runs", "leftovers")
    columns = [Column("table"), Column("status"), *(Column(title, "right") for title in titles)]
    screen.table(columns, [_row(result) for result in results])


def _row(result: JobResult) -> list[Cell | str]:
    found = summary.answer(result)
    joined = sum(c["files_before"] - c["files_after"] for c in found.get("compacted", {}).values())
    return [result.table, summary.status(result.status), count(joined), *(count(found.get(name)) for name in _COUNTS)]
