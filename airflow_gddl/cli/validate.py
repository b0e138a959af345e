"""`gddl validate`."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from airflow_gddl.cli import context as surroundings
from airflow_gddl.cli import metadata as metadata_folder
from airflow_gddl.cli import options, problems
from airflow_gddl.cli.exits import BAD_METADATA
from airflow_gddl.cli.screen import Screen
from airflow_gddl.cli.text import counted

if TYPE_CHECKING:
    from airflow_gddl.metadata.problems import Problem


class Format(StrEnum):
    """How problems are written."""

    TEXT = "text"
    JSON = "json"
    GITHUB = "github"


def validate(
    ctx: typer.Context,
    metadata: options.Metadata = "metadata",
    json: options.Json = False,
    form: Annotated[
        Format, typer.Option("--format", help="A line a problem: text, JSON, or annotations of GitHub Actions.")
    ] = Format.TEXT,
) -> None:
    """Check every metadata row; exit status 2 when one is wrong."""
    from airflow_gddl.metadata.settings import SettingsError  # noqa: PLC0415 - see `metadata.read`

    around = surroundings.of(ctx)
    form = Format.JSON if json else form
    try:
        catalog = metadata_folder.read(around, metadata)
    except SettingsError as error:
        _answer(around.screen, error.problems, metadata, form)
        raise typer.Exit(BAD_METADATA) from error
    _answer(around.screen, catalog.problems, metadata, form)
    if form is not Format.JSON:
        for table in catalog.unused_keys:
            around.screen.warn(f"keys of {table} are named, but no row has that table", "yellow")
    if catalog.problems:
        raise typer.Exit(BAD_METADATA)
    if form is not Format.JSON:
        around.screen.say(f"{counted(len(catalog.tables), 'table')}, no problems", "green")


def _answer(screen: Screen, found: tuple[Problem, ...], folder: str, form: Format) -> None:
    if form is Format.TEXT and found:
        problems.show(screen, found, folder, error=False)
    for problem in found:
        if form is Format.JSON:
            screen.record(problem)
        elif form is Format.GITHUB:
            screen.dictate(problems.github_annotation(problem, folder))
