"""`gddl check`."""

from __future__ import annotations

import typer

from airflow_gddl.cli import context, exits, options
from airflow_gddl.cli.checking import Checked, check_all
from airflow_gddl.cli.screen import Cell, Screen
from airflow_gddl.cli.text import counted

_STYLES = {"ok": "green", "failed": "bold red", "skipped": "dim"}


def check(ctx: typer.Context, metadata: options.Metadata = "metadata", json: options.Json = False) -> None:
    """Try every connection, folder, permission and version; exit status 1 when something is wrong."""
    cli = context.of(ctx)
    failed = 0
    for checked in check_all(cli, metadata):
        failed += checked.status == "failed"
        if json:
            cli.screen.record(checked)
        else:
            _show(cli.screen, checked)
    if not json:
        style = "bold red" if failed else "green"
        cli.screen.say(f"{counted(failed, 'problem')} found" if failed else "everything works", style)
    raise typer.Exit(exits.FAILED if failed else exits.OK)


def _show(screen: Screen, checked: Checked) -> None:
    screen.spans([Cell(f"{checked.status:<8}", _STYLES[checked.status]), Cell(f"{checked.subject}: {checked.message}")])
