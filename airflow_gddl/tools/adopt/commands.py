"""`gddl adopt`: a replica that another job keeps becomes ours in place, or is given back."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Annotated, Any

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli.job import Request, carry_out
from airflow_gddl.cli.screen import Screen, counted
from airflow_gddl.cli.verify import require_connection, require_name
from airflow_gddl.contract.actions import Adopt
from airflow_gddl.contract.codes import ADOPT_REFUSED
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult

FilesUntil = Annotated[
    str, typer.Option("--files-until", metavar="TIME", help="Files last modified by then are in the table already.")
]
Release = Annotated[
    bool, typer.Option("--release", help="Give a table of ours back: _gddl, our other tables and the ledger go.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Check and show what would be done.")]


def adopt(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.OneTable,
    files_until: FilesUntil = "",
    source_connection: options.SourceConnection = "",
    release: Release = False,
    dry_run: DryRun = False,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Take over a Delta table that another job has kept from the same files, in place; its data files stay."""
    if bool(files_until) == release:
        what = "nothing says which files are in the table already" if not release else "a release takes no files"
        raise MetadataError(ADOPT_REFUSED, what, remedy="write one of --files-until and --release")
    if release and source_connection:
        raise MetadataError(ADOPT_REFUSED, "only an adoption proves something", remedy="leave --source-connection out")
    require_name(source_connection)
    cli = context.of(ctx).lending(source_connection)
    if release and not dry_run:
        job.ask(f"Give {table} back? What only our ledger and tables know of it is removed.", yes=yes)
    action = Adopt(
        mode="release" if release else "take",
        files_until=files_until,
        source_connection=source_connection,
        confirmed=yes or sys.stdin.isatty(),
        dry_run=dry_run,
    )
    check = partial(require_connection, cli, source_connection)
    request = Request(metadata, (table,), action, full_listing=True, wait=wait, as_json=json, check=check)
    carry_out(cli, request, show_released if release else show_adopted)


def show_adopted(screen: Screen, results: Sequence[JobResult]) -> None:
    """What was found of each table, what the next run loads, and whether it was adopted."""
    for result in results:
        found = job.answer(result).get("adopt") or {}
        if "keys" in found:
            _show_found(screen, result.table, found)
        if result.batches:
            screen.say(f"{result.table}: adopted; `gddl run` loads what waits", "green")


def _show_found(screen: Screen, table: str, found: Mapping[str, Any]) -> None:
    screen.say(f"{table}: {counted(found['rows'], 'row')} at version {found['version']}")
    screen.say(f"  keys [{', '.join(found['keys'])}] are unique and not null")
    sequence = ", ".join(found["sequence"])
    told = f"{sequence}, up to {found['max_sequence']}" if sequence else "no column of the table orders changes"
    screen.say(f"  order: {told}")
    screen.say(f"  landing files: {found['files']} are in the table, {found['waiting']} wait for the next run")
    for path in found["next"]:
        screen.say(f"    {path}")
    _show_proved(screen, found.get("proved") or {})
    for added in found["adds"]:
        screen.say(f"  by the next run: {added}")
    screen.say("  by metadata alone: column _gddl, property gddl.baseline")


def _show_proved(screen: Screen, proved: Mapping[str, Any]) -> None:
    if not proved:
        return
    by_files = f", {proved['by_files']} keys with files after the cut" if proved["by_files"] else ""
    screen.say(f"  proved: equal to the source, {counted(proved['source_rows'], 'row')}{by_files}")
    for column, why in proved["not_compared"].items():
        screen.say(f"  {column} was not compared with the source: {why}", "yellow")


def show_released(screen: Screen, results: Sequence[JobResult]) -> None:
    """What of each table is written again, and what goes."""
    for result in results:
        found = job.answer(result).get("release")
        if found is not None:
            screen.say(
                f"{result.table}: {found['files']} of {counted(found['of'], 'data file')} have _gddl and are written "
                f"again without it ({found['bytes']} bytes)"
            )
            gone = ", ".join(found["tables"]) or "none"
            screen.say(f"  tables that go: {gone}; {counted(found['in_quarantine'], 'row')} in quarantine; the ledger")
