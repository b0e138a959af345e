"""`gddl errors list` and `gddl errors replay`: the quarantine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import options, summary
from airflow_gddl.cli.execution import carry_out, each
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.cli.text import count
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions

_FIRST = ("code", "reason")

app = typer.Typer(help="Rows and files in the quarantine: list them, or try them again.", no_args_is_help=True)


@app.command(name="list")
def list_errors(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Rows of each table, at most.")] = 100,
) -> None:
    """Show what is in quarantine and why."""
    around = surroundings.of(ctx)
    asked = JobOptions(action="errors_list", limit=limit)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json)
    carry_out(around, request, each(show_quarantine))


@app.command()
def replay(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Take the quarantined rows through the job again, after their cause was fixed."""
    around = surroundings.of(ctx)
    asked = JobOptions(action="errors_replay", wait_seconds=wait)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json)
    carry_out(around, request, show_replays)


def show_replays(screen: Screen, results: Sequence[JobResult]) -> None:
    """What the job did to each table, then how many of its quarantined rows were accepted."""
    summary.show_runs(screen, results)
    each(show_replay)(screen, results)


def show_replay(screen: Screen, result: JobResult) -> None:
    """How many of the quarantined rows of one table were accepted."""
    if result.status == "failed":
        return
    if not result.rows_read:
        screen.say(f"{result.table}: no rows in quarantine", "green")
        return
    accepted, again = result.rows_read - result.quarantined, result.quarantined
    rest = f"; {count(again)} in quarantine again, see `gddl errors list --table {result.table}`" if again else ""
    screen.say(
        f"{result.table}: {count(accepted)} of {count(result.rows_read)} accepted{rest}", "yellow" if again else "green"
    )


def show_quarantine(screen: Screen, result: JobResult) -> None:
    """The quarantined rows of one table, or that there are none."""
    found = summary.answer(result)
    rows: list[dict[str, Any]] = found.get("rows", [])
    if not rows:
        if result.status != "failed":
            screen.say(f"{result.table}: nothing in quarantine", "green")
        return
    first = f", the first {count(len(rows))} are" if found["unresolved"] > len(rows) else ""
    screen.say(f"{result.table}: {count(found['unresolved'])} in quarantine{first}", "bold")
    for row in rows:
        screen.say("")
        screen.spans([Cell(str(row.get("code")), "yellow"), Cell(f"  {row.get('reason') or ''}")])
        others = {name: value for name, value in row.items() if value is not None and name not in _FIRST}
        for name, value in others.items():
            # A line each, for a record is wider than any table.
            screen.spans([Cell(f"  {name:<13}", "dim"), Cell(str(value))])
