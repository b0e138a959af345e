"""`gddl errors list` and `gddl errors replay`: the quarantine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.commands import Group
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, carry_out
from airflow_gddl.cli.screen import Cell, Screen, count, counted
from airflow_gddl.contract.errors import FatalError, GddlError
from airflow_gddl.contract.layout import Layout
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.s3 import is_s3
from airflow_gddl.contract.spec import JobOptions, TableSpec
from airflow_gddl.runtime.delta_tables import quarantined_codes

if TYPE_CHECKING:
    from airflow_gddl.metadata.loading import Catalog

_FIRST = ("code", "reason")
_NAMED = 5

app = Group("Quarantined rows and files: list them, or process them again.")


@app.command(name="list")
def list_errors(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Maximum rows of each table.")] = 100,
) -> None:
    """Show quarantined rows with their reasons."""
    cli = context.of(ctx)
    asked = JobOptions(action="errors_list", limit=limit)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json)
    carry_out(cli, request, show_quarantines)


@app.command()
def replay(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    wait: options.Wait = 0.0,
    code: Annotated[
        list[str] | None, typer.Option("--code", metavar="CODE", help="Only rows with this code. Repeat for more.")
    ] = None,
) -> None:
    """Process the quarantined rows again, after their cause was fixed; exit status 1 when some fail again."""
    cli = context.of(ctx)
    asked = JobOptions(action="errors_replay", wait_seconds=wait, codes=tuple(code or ()))
    check = partial(_require_codes, cli, asked.codes)
    request = Request(metadata=metadata, tables=tuple(table or ()), options=asked, as_json=json, check=check)
    carry_out(cli, request, partial(show_replays, codes=asked.codes), attrgetter("quarantined"))


def _require_codes(cli: CliContext, codes: Sequence[str], catalog: Catalog, tables: Sequence[TableSpec]) -> None:
    """Look for each code in the quarantine of the tables; one that can't be read here is left to the job.

    Raises:
        FatalError: `CODE_NOT_QUARANTINED`.
    """
    if not codes:
        return
    there: Counter[str] = Counter()
    for spec in tables:
        path = Layout.of(catalog.roots, spec).errors
        try:
            found = quarantined_codes(path, cli.environ)
        except GddlError:
            return
        if found is None and (is_s3(path) or not Path(catalog.roots.lake).is_dir()):
            return
        there.update(found or {})
    if missing := [code for code in codes if not there[code]]:
        known = ", ".join(f"{code} {count(number)}" for code, number in sorted(there.items())) or "nothing"
        names = ", ".join(spec.table for spec in tables[:_NAMED]) + (" …" if len(tables) > _NAMED else "")
        what = f"{names}: 0 rows with code {' or '.join(missing)}; in quarantine: {known}"
        remedy = "name codes that are in quarantine, or leave out --code"
        raise FatalError("CODE_NOT_QUARANTINED", what, remedy=remedy)


def show_replays(screen: Screen, results: Sequence[JobResult], *, codes: Sequence[str]) -> None:
    """Show each table's result, then how many of its quarantined rows were accepted."""
    summary.show_runs(screen, results)
    for result in results:
        _show_replay(screen, result, codes)


def _show_replay(screen: Screen, result: JobResult, codes: Sequence[str]) -> None:
    """How many of the quarantined rows of one table were accepted."""
    if result.status == "failed":
        return
    if not result.rows_read:
        with_codes = f" with code {' or '.join(codes)}" if codes else ""
        removed = any(warning.code == "SHARD_REMOVED" for warning in result.warnings)
        of_shards = " of its present sources" if removed else ""
        said = f"{result.table}: no rows{of_shards} in quarantine{with_codes}"
        screen.say(said, "yellow" if codes or removed else "green")
        return
    accepted, again = result.rows_read - result.quarantined, result.quarantined
    rest = f"; {count(again)} in quarantine again, see `gddl errors list --table {result.table}`" if again else ""
    screen.say(
        f"{result.table}: {count(accepted)} of {count(result.rows_read)} accepted{rest}", "yellow" if again else "green"
    )


def show_quarantines(screen: Screen, results: Sequence[JobResult]) -> None:
    """The quarantined rows of each table; tables without any share a line."""
    read = [result for result in results if result.status != "failed"]
    empty = [result.table for result in read if not summary.answer(result).get("rows")]
    for result in read:
        if result.table not in empty:
            show_quarantine(screen, result)
    if empty:
        screen.say(f"{empty[0] if len(empty) == 1 else counted(len(empty), 'table')}: nothing in quarantine", "green")


def show_quarantine(screen: Screen, result: JobResult) -> None:
    """The quarantined rows of one table."""
    found = summary.answer(result)
    rows: list[dict[str, Any]] = found["rows"]
    first = f", {count(len(rows))} shown" if found["unresolved"] > len(rows) else ""
    screen.say(f"{result.table}: {count(found['unresolved'])} in quarantine{first}", "bold")
    for row in rows:
        screen.say("")
        screen.spans([Cell(str(row.get("code")), "yellow"), Cell(f"  {row.get('reason') or ''}")])
        others = {name: value for name, value in row.items() if value is not None and name not in _FIRST}
        for name, value in others.items():
            # One line each, since records are too wide for a table.
            screen.spans([Cell(f"  {name:<13}", "dim"), Cell(str(value))])
