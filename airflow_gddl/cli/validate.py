"""`gddl validate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli import options, problems
from airflow_gddl.cli.exits import BAD_METADATA
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import counted

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem


def validate(ctx: typer.Context, metadata: options.Metadata = "metadata", json: options.Json = False) -> None:
    """Check every metadata row; exit status 2 when one is wrong."""
    from airflow_gddl.metadata.settings import SettingsError  # noqa: PLC0415 - see `metadata.read`

    around = surroundings.of(ctx)
    try:
        catalog = metadata_folder.read(around, metadata)
    except SettingsError as error:
        _answer(around.screen, error.problems, json)
        raise typer.Exit(BAD_METADATA) from error
    _answer(around.screen, catalog.problems, json)
    if not json:
        for table in catalog.unused_keys:
            around.screen.warn(f"keys of {table} are named, but no row has that table", "yellow")
    if catalog.problems:
        raise typer.Exit(BAD_METADATA)
    if not json:
        around.screen.say(f"{counted(len(catalog.tables), 'table')}, no problems", "green")


def _answer(screen: Screen, found: tuple[Problem, ...], as_json: bool) -> None:
    if as_json:
        for problem in found:
            screen.record(problem)
    elif found:
        problems.show(screen, found, error=False)
