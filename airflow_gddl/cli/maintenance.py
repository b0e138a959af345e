"""`gddl maintain`, `gddl release` and `gddl erase`: what is done to stored tables."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

from airflow_gddl.cli import context, job, options
from airflow_gddl.cli.job import Request, ask, carry_out, each, show_counts
from airflow_gddl.cli.options import read_key
from airflow_gddl.cli.screen import Screen, count
from airflow_gddl.contract.actions import Erase, Explain, Maintain, Release
from airflow_gddl.contract.result import MAINTENANCE_COUNTS, JobResult


def maintain(
    ctx: typer.Context,
    *,
    metadata: options.Metadata = "metadata",
    table: options.Tables = None,
    json: options.Json = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show pending work without doing it.")] = False,
    wait: options.Wait = 0.0,
) -> None:
    """Compact small files and remove unreferenced ones; readers see no change."""
    request = Request(metadata, table, Maintain(dry_run=dry_run), wait=wait, as_json=json)
    carry_out(context.of(ctx), request, show_upkeep)


def show_upkeep(screen: Screen, results: Sequence[JobResult]) -> None:
    """Show compacted and removed files of each table."""
    titles = ("files joined", "files removed", "log files", "tombstones", "changes cut", "runs", "leftovers")
    show_counts(screen, titles, results, _counts)


def _counts(result: JobResult) -> list[str]:
    details = job.answer(result)
    joined = sum(c["files_before"] - c["files_after"] for c in details.get("compacted", {}).values())
    return [count(joined), *(count(details.get(name)) for name in MAINTENANCE_COUNTS)]


class Held(StrEnum):
    """See `Release.held`."""

    SWEEP = "sweep"
    TRUNCATE = "truncate"


_ASKED = {
    Held.SWEEP: "Remove the rows of {} that the newest full load lacks?",
    Held.TRUNCATE: "Delete the rows of {} that were there before the truncate of its source?",
}
_UNHELD = {
    Held.SWEEP: "no rows are held, nothing was removed",
    Held.TRUNCATE: "no truncate is held, nothing was deleted",
}


def release(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    held: Annotated[
        Held,
        typer.Argument(
            help="sweep: rows that the newest full load lacks (SWEEP_HELD), whatever their share; confirms that the "
            "load is complete. truncate: rows before a truncate of the source's table (TRUNCATE_HELD).",
        ),
    ],
    table: options.NamedTables,
    yes: options.Yes = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Remove rows whose removal is held, then load the files that wait for it."""
    cli = context.of(ctx)
    ask(_ASKED[held].format(", ".join(table)), yes=yes)
    request = Request(metadata, table, Release(held=held.value), wait=wait, as_json=json)
    carry_out(cli, request, partial(show_releases, unheld=_UNHELD[held]))


def show_releases(screen: Screen, results: Sequence[JobResult], *, unheld: str) -> None:
    """What was removed, and the tables where nothing was held."""
    job.show_runs(screen, results)
    for result in results:
        if result.status == "skipped":
            screen.say(f"{result.table}: {unheld}", "yellow")


def erase(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: options.OneTable,
    key: Annotated[
        list[str],
        typer.Option(
            metavar="COLUMN=VALUE",
            help="A part of the key; all have to be named. @FILE reads parts from a file, @- from standard input.",
        ),
    ],
    yes: options.Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the tables hold of the key, and remove nothing.")
    ] = False,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    wait: options.Wait = 0.0,
) -> None:
    """Permanently remove one key from all of a table's Delta tables, and prevent its return.

    Pass personal keys in a file or on standard input: arguments are visible in the shell's history and the process
    list.
    """
    cli = context.of(ctx)
    named = read_key(key)
    check = partial(options.require_whole_key, named)
    if dry_run:
        from airflow_gddl.cli.explain import show_history  # noqa: PLC0415 - of a dry run alone

        request = Request(
            metadata,
            (table,),
            Explain(key=named, before_erasure=True),
            as_json=json,
            check=check,
        )
        carry_out(cli, request, each(show_history))
    ask(f"Erase one key ({', '.join(named)}) from all tables of {table}, for good?", yes=yes)
    request = Request(
        metadata,
        (table,),
        Erase(key=named, asked_by=context.user_name()),
        wait=wait,
        as_json=json,
        check=check,
    )
    carry_out(cli, request, each(show_erasure))


def show_erasure(screen: Screen, result: JobResult) -> None:
    """Show removed rows, when storage is cleaned, and landing files that still contain the key."""
    details = job.answer(result)
    if not details:
        return
    removed = ", ".join(f"{name} {count(n)}" for name, n in details["removed"].items())
    screen.say(f"{result.table}: erased; rows removed: {removed}", "green")
    screen.say(f"remembered as {details['hash']}")
    screen.say(f"`gddl maintain` after {details['stored_until']} removes it from storage")
    for path in details["files"]:
        screen.say(f"still in the landing file {path}", "yellow")
