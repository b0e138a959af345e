"""Common part of commands that run jobs: the job, its output, warnings and errors, the exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

import typer

from airflow_gddl.cli import exits, summary
from airflow_gddl.cli.context import CliContext
from airflow_gddl.cli.job import Request, perform
from airflow_gddl.cli.screen import Cell, Screen, number_columns
from airflow_gddl.contract.errors import MetadataError
from airflow_gddl.contract.result import JobResult

Show = Callable[[Screen, Sequence[JobResult]], None]


def carry_out(
    cli: CliContext, request: Request, show: Show, is_finding: Callable[[JobResult], object] | None = None
) -> NoReturn:
    """Run the request, show the results unless they are printed as JSON, and exit.

    Args:
        is_finding: whether a result makes a command fail that else succeeds; null: none does.

    Raises:
        typer.Exit: always, with the command's status.
        GddlError: nothing was run.
    """
    done = perform(cli, request)
    if not request.as_json:
        show(cli.screen, done.outcome.results)
    summary.show_troubles(cli.screen, done.outcome)
    found = is_finding is not None and any(map(is_finding, done.outcome.results))
    raise typer.Exit(exits.FAILED if found and done.exit_status == exits.OK else done.exit_status)


def ask(question: str, *, yes: bool) -> None:
    """Ask at a terminal before something that can't be taken back; elsewhere nobody could answer.

    Raises:
        typer.Exit: the answer is no.
    """
    if not yes and sys.stdin.isatty() and not typer.confirm(question, default=False, err=True):
        raise typer.Exit(exits.FAILED)


def ask_for_all(tables: Sequence[str], *, every: bool, unasked: bool) -> None:
    """Require a rebuild of all tables to be meant: `--all`, and an answer at a terminal.

    Args:
        every: `--all` was given.
        unasked: `--yes` or `--dry-run` was given.

    Raises:
        MetadataError: `TABLES_UNNAMED`.
        typer.Exit: the answer is no.
    """
    if bool(tables) == every:
        what = "--all was given beside --table" if every else "no table is named to be rebuilt"
        raise MetadataError("TABLES_UNNAMED", what, remedy="write --table SCHEMA.NAME, or --all for all tables")
    if every:
        ask("Rebuild all tables?", yes=unasked)


def each(show: Callable[[Screen, JobResult], None]) -> Show:
    """Shows results one by one."""

    def show_all(screen: Screen, results: Sequence[JobResult]) -> None:
        for result in results:
            show(screen, result)

    return show_all


def show_counts(
    screen: Screen, titles: Sequence[str], results: Sequence[JobResult], counts: Callable[[JobResult], Sequence[str]]
) -> None:
    """A row for each table: its status, and numbers under these titles."""
    rows: list[list[Cell | str]] = [[r.table, summary.status(r.status), *counts(r)] for r in results]
    screen.table(["table", "status", *number_columns(*titles)], rows)
