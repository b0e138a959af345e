"""`gddl erase`: the right to be forgotten."""

from __future__ import annotations

import getpass
from typing import Annotated

import typer

from airflow_gddl.cli import context, options, summary
from airflow_gddl.cli.execution import ask, carry_out, each
from airflow_gddl.cli.job import Request
from airflow_gddl.cli.keys import read_key
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import count
from airflow_gddl.contract.result import JobResult
from airflow_gddl.contract.spec import JobOptions


def erase(  # noqa: PLR0913 - typer reads each option of the command from one parameter
    ctx: typer.Context,
    *,
    table: Annotated[str, typer.Option("--table", metavar="SCHEMA.NAME", help="The table.")],
    key: Annotated[
        list[str],
        typer.Option(
            "--key",
            metavar="COLUMN=VALUE",
            help="A part of the key; all have to be named. @FILE reads parts from a file, @- from standard input.",
        ),
    ],
    yes: options.Yes = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", metavar="", help="Show what the tables hold of the key, and remove nothing.")
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
    code = "ERASE_KEY_INVALID"
    named = read_key(key, code)
    if dry_run:
        from airflow_gddl.cli.explain import show_history  # noqa: PLC0415 - of a dry run alone

        asked = JobOptions(action="explain", key=named)
        carry_out(cli, Request(metadata=metadata, tables=(table,), options=asked, as_json=json), each(show_history))
    ask(f"Erase one key ({', '.join(named)}) from all tables of {table}, for good?", yes=yes)
    asked = JobOptions(action="erase", key=named, asked_by=getpass.getuser(), wait_seconds=wait)
    carry_out(cli, Request(metadata=metadata, tables=(table,), options=asked, as_json=json), each(show_erasure))


def show_erasure(screen: Screen, result: JobResult) -> None:
    """Show removed rows, when storage is cleaned, and landing files that still contain the key."""
    found = summary.answer(result)
    if not found:
        return
    removed = ", ".join(f"{name} {count(n)}" for name, n in found["removed"].items())
    screen.say(f"{result.table}: erased; rows removed: {removed}", "green")
    screen.say(f"remembered as {found['hash']}")
    screen.say(f"`gddl maintain` after {found['stored_until']} removes it from storage")
    for path in found["files"]:
        screen.say(f"still in the landing file {path}", "yellow")
